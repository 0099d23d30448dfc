"""`memaudit explain`: the path of one event through a run's search, from the log that the run wrote."""

# ruff: noqa: F811 - fixtures of another file

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import pytest

from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.settings import SearchSettings
from memory_audit.attribution.search.state import SearchPhase
from memory_audit.attribution.trace import MAX_BYTES, MAX_NAMED, SearchLog, Step, TraceLine, parse_log
from memory_audit.errors import UsageError
from memory_audit.jobs.cli.report import _PHASES
from tests.audit_world import group_of
from tests.unit.attribution.test_combinations import composed, together
from tests.unit.attribution.test_leave_one_out import loo_of
from tests.unit.attribution.test_search import hijack
from tests.unit.attribution.world import World, make_event
from tests.unit.jobs.test_cli import AUDIT, one_line
from tests.unit.jobs.test_cli_purge import desk  # noqa: F401 - a fixture
from tests.whole import read_whole

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def audited(desk, run):
    assert run(*AUDIT)[0] == 0
    return desk / "run"


def event_of(run_folder) -> str:
    return read_whole(run_folder).tenants[0].events[0].event_id


def test_the_path_of_an_event_is_told_in_plain_words(audited, run):
    code, out, err = run("explain", "run", event_of(audited))
    assert (code, err) == (0, "")
    removed = json.loads((audited / "result.json").read_bytes())["tenants"][0]["removal"]["attributed"]
    lines = out.splitlines()
    assert lines[0] == f"Event {event_of(audited)} of tenant acme"
    assert "round 1: Does memory cause the harm?" in lines
    assert "  asked     the answer with every memory in place: harm 1.00" in lines
    assert "  asked     the answer with no memory: harm 0.00" in lines
    for name, why in removed.items():
        assert f"  followed  {name} joins the set: {why}" in lines
    assert "  followed  cleared: harm is gone on replay without the removed set" in lines
    assert lines[-3].startswith("  search    ")
    assert lines[-1].startswith("confidence: not calibrated for this model")


def test_the_same_is_told_as_json(audited, run):
    code, out, _ = run("explain", "run", event_of(audited), "--json")
    lines = json.loads(out)
    assert code == 0
    assert [line["round"] for line in lines] == sorted(line["round"] for line in lines)
    assert lines[0]["asked"][0] == {
        "kind": "full", "measure": "text", "point": 0, "entries": [], "count": 0, "harm": 1.0, "nats": None,
    }  # fmt: skip
    assert {line["event_id"] for line in lines} == {event_of(audited)}


def test_the_log_holds_no_text_of_memories_questions_or_answers(desk, audited):
    log = (group_of(audited) / "search.jsonl").read_text()
    written = [*(desk / "memories.jsonl").read_text().splitlines(), *(desk / "events.jsonl").read_text().splitlines()]
    for record in map(json.loads, written):
        for name in ("request", "response", "query", "output"):
            if record.get(name):
                assert record[name] not in log


def test_a_second_start_leaves_the_log_as_it_is_and_a_purge_takes_the_run(audited, run):
    before = (group_of(audited) / "search.jsonl").read_bytes()
    assert run(*AUDIT)[0] == 0
    assert (group_of(audited) / "search.jsonl").read_bytes() == before
    assert run("purge", "run", "store", "--apply")[0] == 0


def test_a_log_that_was_changed_is_found_by_the_purge_and_one_that_is_gone_is_not_missed(audited, run):
    data = (group_of(audited) / "search.jsonl").read_bytes()
    (group_of(audited) / "search.jsonl").write_bytes(data.replace(b"reproduction", b"restoration!"))
    assert run("purge", "run", "store")[0] == 4
    (group_of(audited) / "search.jsonl").unlink()
    assert run("purge", "run", "store")[0] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nowhere", "e-1"), "nowhere: no run there"),
        (("store", "e-1"), "store: no run there"),
        (("run", "other"), "run: no harmful event 'other' in its search; probes are not searched"),
    ],
)
@pytest.mark.usefixtures("audited")
def test_what_is_no_run_or_no_event_of_it_is_refused_in_one_line(run, words, told):
    code, out, err = run("explain", *words)
    assert (code, out, one_line(err).strip()) == (2, "", f"memaudit: {told}")


def test_a_run_without_its_log_is_refused_in_one_line(audited, run):
    (group_of(audited) / "search.jsonl").unlink()
    code, _, err = run("explain", "run", "e-1")
    assert (code, "no search.jsonl" in one_line(err)) == (2, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: "[]",
        lambda line: "{",
        lambda line: json.dumps({**line, "round": "1"}),
        lambda line: json.dumps({**line, "event_id": 5}),
        lambda line: json.dumps({**line, "followed": "x"}),
        lambda line: json.dumps({**line, "asked": [{"kind": "full"}]}),
        lambda line: json.dumps({**line, "strange": 1}),
    ],
)
def test_a_damaged_log_is_refused_in_one_line(audited, run, change):
    lines = (group_of(audited) / "search.jsonl").read_text().splitlines()
    (group_of(audited) / "search.jsonl").write_text("\n".join([lines[0], change(json.loads(lines[1]))]))
    code, _, err = run("explain", "run", event_of(audited))
    assert (code, "search.jsonl:2" in one_line(err)) == (2, True)


def test_what_somebody_wrote_into_the_log_steers_no_terminal(audited, run):
    line = json.loads((group_of(audited) / "search.jsonl").read_text().splitlines()[0])
    line |= {"why": "\x1b[2Jdone", "followed": ["[bold]x[/bold] \u202egnp"], "phase": "\x1b[31m"}
    (group_of(audited) / "search.jsonl").write_text(json.dumps(line))
    code, out, _ = run("explain", "run", event_of(audited))
    assert code == 0
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[bold]x[/bold]" in out


def logged(search_of: Callable[..., Any], world: World, **options: Any) -> list[TraceLine]:
    log = SearchLog()
    world.run(search_of(world, tell=log.of("t"), **options))
    return list(parse_log(log.data(), "log"))


def set_search(world: World, *, tell: Callable[[Step], None], events: int = 2, **options: Any) -> SetSearch:
    asked = [make_event(number, query=f"query {number}") for number in range(events)]
    return SetSearch(world.memory, asked, SearchSettings(attribution_nats=2.0, **options), tell=tell)


def test_every_question_is_told_once_with_its_answer():
    world = World(16, {f"query {number}": list(range(16)) for number in range(2)}, hijack({1, 5, 9}))
    lines = logged(set_search, world)
    told = sum(len(line.asked) + line.more for line in lines)
    assert told == len(world.asked)
    assert {line.event_id for line in lines} == {"e000", "e001"}


def test_memories_that_bring_the_harm_together_are_told_as_a_set():
    world, log = World(20, {"query 0": list(range(20))}, composed(together({1, 2, 3}, of=2)), k=8), SearchLog()
    world.run(SetSearch(world.memory, [make_event(0)], SearchSettings(attribution_nats=2.0), tell=log.of("t")))
    lines = list(parse_log(log.data(), "log"))
    (joined,) = ({line for line in told.followed if "joins" in line} for told in lines if "joins" in str(told.followed))
    why = "joins the set: 2 of 3 together raise the odds of the harm in e000 by 6.0 nats, none alone: "
    assert {line.partition(" ")[0] for line in joined} == {"m001", "m002", "m003"}
    assert all(why in line for line in joined)


def test_every_phase_of_a_search_has_a_question_in_plain_words():
    assert _PHASES.keys() >= set(get_args(SearchPhase))


def test_a_budget_that_ends_a_search_is_told():
    world = World(12, {"query 0": list(range(12))}, hijack({0}))
    last = logged(set_search, world, events=1, max_replays=4)[-1]
    assert last.followed == ("not cleared: budget of 4 replays is spent",)
    assert last.why == "budget of 4 replays is spent"


def test_plain_leave_one_out_tells_its_steps_too():
    world = World(12, {"query 0": list(range(12))}, hijack({0}))
    lines = logged(loo_of, world, rank=lambda influence: sorted(influence, key=lambda name: -influence[name]))
    assert [line.phase for line in lines] == ["reproduction", "necessity", "choosing"]
    assert lines[1].followed[0] == "m000 by its absence lowers the odds by 2.5 nats"
    assert lines[2].followed == (
        "m000 joins the set: in the smallest prefix of the ranking that ends the harm",
    )  # fmt: skip


def test_a_long_search_writes_a_bounded_log(monkeypatch):
    monkeypatch.setattr("memory_audit.attribution.trace.MAX_BYTES", 2_000)
    world = World(30, {f"query {number}": list(range(30)) for number in range(4)}, hijack(set(range(12))))
    log = SearchLog()
    world.run(set_search(world, tell=log.of("t"), events=4))
    assert 0 < len(log.data()) <= 2_000
    assert list(parse_log(log.data(), "log"))
    assert MAX_BYTES > 2_000


def test_a_line_names_few_entries_of_a_large_set():
    world = World(60, {"query 0": list(range(60))}, hijack(set(range(20))))
    lines = logged(set_search, world, events=1)
    shown = [asked for line in lines for asked in line.asked]
    assert max(len(asked.entries) for asked in shown) <= MAX_NAMED < max(asked.count for asked in shown)


def test_a_line_that_is_none_is_named():
    with pytest.raises(UsageError, match="log:1: not a line of a search log"):
        list(parse_log(b'{"tenant": 1}', "log"))
