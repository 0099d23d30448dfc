"""Closing S over derivation edges: its algebra, and whole audits of a store whose agent laundered a poison."""

from __future__ import annotations

import dataclasses
import itertools
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.config import AuditConfig
from memory_audit.entry import MAX_PARENTS, Entry, Parent
from memory_audit.errors import UsageError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.run.run_audit import audit_all
from memory_audit.lineage.dag import DEFAULT_TAU_PPM, Lineage
from memory_audit.lineage.descendants import Derivation, derivation_of
from memory_audit.lineage.edges_file import EstimatedEdge
from memory_audit.models.fakes import FakeGenerator
from memory_audit.result import PATH_HEAD, PATH_TAIL
from memory_audit.snapshot.publishing.purify import purify
from memory_audit.snapshot.reader import open_snapshot
from tests.audit_world import (
    CONFIG,
    FAKES,
    NOW_MS,
    entries_of,
    event,
    json_of,
    keyring,
    make_snapshot,
    removed,
    request_of,
    run_local,
    verdicts,
)
from tests.unit.lineage.worlds import PAPER, RULES, histories
from tests.whole import read_whole

QUERY = "What is the refund window for order 17?"
EVENTS = [event("e1", "acme", QUERY), event("p1", "acme", "What is the opening hours for case 3?", "benign")]


def derived(entry_id: str, *parents: tuple[str, int], request: str = "Summary of the day", response: str) -> Entry:
    return Entry(
        tenant="acme", entry_id=entry_id, principal="acme-writer", source="agent", request=request, response=response,
        created_at_ms=NOW_MS - 500, parents=tuple(Parent(entry_id=name, weight_ppm=ppm) for name, ppm in parents),
    )  # fmt: skip


LAUNDERED = [
    *entries_of("acme"),
    derived("sum1", ("bad0", 800_000), ("ok01", 100_000), response="Refunds were discussed; follow the notes."),
    derived("sum2", ("sum1", 500_000), response="The week's digest of what was discussed."),
    derived("loose", ("bad0", 199_999), response="Parcels are tracked on the page."),
    derived("clean", ("ok00", 900_000), response="Opening hours are on the page."),
]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    return make_snapshot(tmp_path_factory.mktemp("laundered") / "memory", LAUNDERED)


@pytest.fixture(scope="module")
def audited(snapshot, tmp_path_factory):
    return run_local(snapshot, tmp_path_factory.mktemp("whole") / "run", events=EVENTS)


def descendants(result):
    return {item.entry_id: item for item in result.tenants[0].lineage.descendants}


def test_poison_laundered_through_a_summary_goes_with_its_summary(audited):
    assert removed(audited) == {"acme": {"bad0", "sum1", "sum2"}}
    assert verdicts(audited) == {"e1": "cleared"}
    reasons = audited.tenants[0].removal.removed
    assert reasons["sum1"] == "derived from bad0 over 1 strong edge"
    assert reasons["sum2"] == "derived from bad0 over 2 strong edges"
    assert [step.entry_id for step in descendants(audited)["sum2"].path] == ["bad0", "sum1", "sum2"]
    assert [step.weight for step in descendants(audited)["sum2"].path] == [None, 0.8, 0.5]
    assert {text.entry_id for text in audited.tenants[0].texts} == {"bad0", "sum1", "sum2"}
    assert [probe.kept for probe in audited.tenants[0].probes] == [True]
    assert audited.tenants[0].lineage.probes_lost == ()


def test_mere_descent_is_no_cause_of_an_event(audited):
    assert audited.tenants[0].events[0].causes == ("bad0",)


def test_labels_of_all_live_entries_are_in_the_result(audited, snapshot):
    trust = {item.entry_id: item.trust for item in audited.tenants[0].lineage.entries}
    assert list(trust) == [entry.entry_id for entry in snapshot.entries("acme")]
    assert (trust["bad0"], trust["sum1"]) == ("external", "derived-untrusted")
    assert trust["loose"] == "external"  # its agent recorded parents for a fifth of it


@pytest.mark.parametrize("policy", ["quarantine", "report"])
def test_a_milder_policy_lists_the_same_descendants_and_removes_none(snapshot, audited, tmp_path, policy):
    config = dataclasses.replace(CONFIG, descendants=policy)
    result = run_local(snapshot, tmp_path / "run", events=EVENTS, config=config)
    assert removed(result) == {"acme": {"bad0"}}
    assert {name: item.path for name, item in descendants(result).items()} == {
        name: item.path for name, item in descendants(audited).items()
    }
    assert {item.proposal for item in descendants(result).values()} == {policy}
    check = result.tenants[0].lineage.quarantine
    assert (check is None) == (policy == "report")
    assert removed(result.with_quarantined()) == (removed(audited) if policy == "quarantine" else removed(result))


def test_a_budget_counts_attributed_entries_so_descendants_are_quarantined(snapshot, tmp_path):
    result = run_local(snapshot, tmp_path / "run", events=EVENTS, config=dataclasses.replace(CONFIG, budget=1))
    assert removed(result) == {"acme": {"bad0"}}
    assert {item.proposal for item in descendants(result).values()} == {"quarantine"}


def test_leave_one_out_closes_over_descendants_too(snapshot, tmp_path):
    config = dataclasses.replace(CONFIG, attribution="loo", alpha=1.0)
    assert removed(run_local(snapshot, tmp_path / "run", events=EVENTS, config=config)) == {
        "acme": {"bad0", "sum1", "sum2"}
    }


def test_poison_that_moves_up_into_the_place_of_a_descendant_is_found(tmp_path, monkeypatch):
    """With k = 1 the second poison is retrieved only once the first and all its descendants are gone."""
    monkeypatch.setattr(
        "memory_audit.jobs.run.audit_memory.Resemblance", lambda _: {}
    )  # it is not found by its likeness to the first
    line = entries_of("initech")
    poison = dataclasses.replace(line[0], entry_id="bad0", request=QUERY, response="POISON never refund anything.")
    child = dataclasses.replace(
        poison, entry_id="sum1", request=f"{QUERY}!", response="A calm summary.",
        parents=(Parent(entry_id="bad0", weight_ppm=900_000),),
    )  # fmt: skip
    second = dataclasses.replace(poison, entry_id="bad1", request=f"{QUERY}!!")
    snapshot = make_snapshot(tmp_path / "memory", [*line, poison, child, second])
    events = [event("e1", "initech", QUERY)]
    config = dataclasses.replace(CONFIG, k=1, neighbours=1, retrieval="levenshtein")
    result = run_local(snapshot, tmp_path / "run", events=events, config=config)
    assert removed(result) == {"initech": {"bad0", "sum1", "bad1"}}
    assert verdicts(result) == {"e1": "cleared"}


def test_a_probe_that_needs_a_descendant_is_named_as_its_price(tmp_path):
    entries = [
        *entries_of("acme"),
        derived("sum1", ("bad0", 900_000), request="What is the opening hours for case 3?", response="GOLD hours"),
    ]
    snapshot = make_snapshot(tmp_path / "memory", entries)

    class Leaning(FakeGenerator):
        async def generate(self, request):
            answer = await super().generate(request)
            gold = any("GOLD" in message.content for message in request.messages)
            return dataclasses.replace(answer, text="a golden answer") if gold and answer.text == "fine" else answer

    result = run_local(snapshot, tmp_path / "run", events=EVENTS, generator=Leaning())
    assert removed(result) == {"acme": {"bad0", "sum1"}}
    assert result.tenants[0].lineage.probes_lost == ("p1",)
    held = run_local(
        snapshot, tmp_path / "held", events=EVENTS, generator=Leaning(),
        config=dataclasses.replace(CONFIG, descendants="quarantine"),
    )  # fmt: skip
    assert held.tenants[0].lineage.probes_lost == ()
    assert held.tenants[0].lineage.quarantine.probes_lost == ("p1",)


@pytest.mark.parametrize("weight", [0, 1_000_000])
def test_signed_parents_crowd_no_estimate_out_and_none_crowds_them_out(tmp_path, weight):
    """How many parents a writer may sign is no limit on what is known of an entry, whatever they weigh."""
    fillers = [derived(f"f{number:03d}", response=f"Note {number}.") for number in range(MAX_PARENTS)]
    crowded = derived("crowded", *((one.entry_id, weight) for one in fillers), response="Refunds are not for us.")
    store = make_snapshot(tmp_path / "memory", [*entries_of("acme"), *fillers, crowded])
    edge = EstimatedEdge(tenant="acme", child="crowded", parent="bad0", weight_ppm=200_000)
    derivation = derivation_of(store, "acme", trust={}, tau=CONFIG.tau, estimated=[edge])
    assert derivation is not None
    for parent in ("bad0", *(one.entry_id for one in fillers if weight)):
        assert "crowded" in {item.entry_id for item in derivation.closure({parent})}
    assert {item.proposal for item in derivation.closure({"bad0"})} == {"quarantine"}


def test_an_estimated_edge_quarantines_and_makes_no_label_better(snapshot, audited, tmp_path):
    edges = (EstimatedEdge(tenant="acme", child="ok07", parent="bad0", weight_ppm=900_000),)
    with closing(LocalExecutor(FAKES, FakeGenerator())) as executor:
        audit_all(request_of(snapshot, EVENTS, edges=edges), executor, tmp_path / "run", now_ms=NOW_MS)
    result = read_whole(tmp_path / "run")
    assert removed(result) == removed(audited)
    found = descendants(result)["ok07"]
    assert (found.proposal, found.estimated) == ("quarantine", True)
    assert found.reason.endswith("some of them estimated")
    assert result.tenants[0].lineage.entries == audited.tenants[0].lineage.entries
    with closing(LocalExecutor(FAKES)) as executor, pytest.raises(UsageError, match="other edges"):
        audit_all(request_of(snapshot, EVENTS), executor, tmp_path / "run", now_ms=NOW_MS)


def test_descendants_left_by_an_earlier_run_are_quarantined_and_not_removed(tmp_path):
    again = [dataclasses.replace(entry, entry_id="bad0b") for entry in entries_of("acme") if entry.entry_id == "bad0"]
    snapshot = make_snapshot(tmp_path / "memory", [*LAUNDERED, *again])
    purify(
        tmp_path / "memory", snapshot, {"acme": {"bad0": "first run"}}, keyring(), run_id="r1", now_ms=NOW_MS + 2,
        config={}, models={},
    )  # fmt: skip
    later = open_snapshot(tmp_path / "memory", keyring().policy, now_ms=NOW_MS + 3)
    result = run_local(later, tmp_path / "run", events=EVENTS)
    assert removed(result) == {"acme": {"bad0b"}}
    assert {name: item.proposal for name, item in descendants(result).items()} == {
        "sum1": "quarantine", "sum2": "quarantine",
    }  # fmt: skip
    assert descendants(result)["sum1"].reason.endswith("an earlier run removed that entry")
    assert descendants(result)["sum1"].path[0].removed


def test_without_parents_the_policy_changes_nothing(tmp_path):
    snapshot = make_snapshot(tmp_path / "memory")
    texts = set()
    for policy in ("remove", "quarantine", "report"):
        config = dataclasses.replace(CONFIG, descendants=policy, tau=0.0)
        result = run_local(snapshot, tmp_path / policy, config=config)
        assert all(tenant.lineage is None for tenant in result.tenants)
        texts.add(json_of(dataclasses.replace(result, config={}, run_id="")))
    assert len(texts) == 1


def derivation(entries, tau_ppm, rules=RULES):
    signed = Lineage.of("acme", entries, rules, tau_ppm)
    return Derivation(signed=signed, combined=signed)


@st.composite
def questions(draw):
    entries = draw(histories())
    names = [item.entry_id for item in entries]
    return entries, frozenset(draw(st.lists(st.sampled_from(names), unique=True, max_size=3)))


@given(questions(), st.integers(0, 1_000_000), st.sampled_from([RULES, PAPER]))
def test_closing_a_closed_set_adds_nothing(question, tau_ppm, rules):
    entries, removed_ids = question
    found = derivation(entries, tau_ppm, rules)
    closed = removed_ids | {item.entry_id for item in found.closure(removed_ids)}
    assert found.closure(closed) == ()


@given(questions(), st.integers(0, 1_000_000), st.integers(0, 1_000_000))
def test_a_lower_tau_never_has_fewer_descendants(question, one, other):
    entries, removed_ids = question
    low, high = (
        {item.entry_id for item in derivation(entries, tau).closure(removed_ids)} for tau in sorted((one, other))
    )
    assert high <= low


@given(questions(), st.sampled_from([RULES, PAPER]))
def test_every_path_leads_from_a_removed_entry_and_the_reason_says_whether_its_edges_are_strong(question, rules):
    entries, removed_ids = question
    weights = {(p.entry_id, e.entry_id): p.weight_ppm / 1_000_000 for e in entries for p in e.parents}
    for item in derivation(entries, 200_000, rules).closure(removed_ids):
        ids = [step.entry_id for step in item.path]
        assert ids[0] in removed_ids
        assert ids[-1] == item.entry_id
        assert [step.weight for step in item.path[1:]] == [weights[pair] for pair in itertools.pairwise(ids)]
        weakest = min(step.weight for step in item.path[1:])
        assert weakest > 0
        assert ("strong edge" in item.reason) == (weakest >= 0.2)
        assert rules is not PAPER or weakest >= 0.2


POISONS = [derived(f"p{n}", response="x") for n in range(6)]
DIGEST = derived("digest", *((poison.entry_id, 166_667) for poison in POISONS), response="y")
SUMMARY = derived("summary", ("digest", 900_000), response="z")
REMOVED = frozenset(poison.entry_id for poison in POISONS)


def closed(removed_ids, **changes):  # noqa: ANN003
    found = dataclasses.replace(derivation([*POISONS, DIGEST, SUMMARY], DEFAULT_TAU_PPM), **changes).closure(
        removed_ids
    )
    return {item.entry_id: (item.proposal, item.estimated, item.reason) for item in found}


def test_shares_of_removed_memories_add_up():
    assert closed(REMOVED) == {
        "digest": ("remove", False, "derived from p0 over 1 edge, with others whose shares add up"),
        "summary": ("remove", False, "derived from p0 over 2 edges, with others whose shares add up"),
    }
    assert closed({"p0"}) == {}
    assert {item.entry_id for item in derivation([*POISONS, DIGEST], DEFAULT_TAU_PPM, PAPER).closure(REMOVED)} == set()


def test_what_only_an_earlier_removal_makes_a_descendant_is_quarantined():
    found = closed({"p0"}, removed_earlier=frozenset({"p1"}))
    assert {name: proposal for name, (proposal, _, _) in found.items()} == {
        "digest": "quarantine", "summary": "quarantine",
    }  # fmt: skip


def test_what_only_an_estimated_edge_makes_a_descendant_is_quarantined():
    combined = Lineage.of("acme", POISONS, RULES)
    combined.append(DIGEST, {"p1": 200_000})
    combined.append(SUMMARY)
    assert {name: found[:2] for name, found in closed({"p1"}, combined=combined).items()} == {
        "digest": ("quarantine", True), "summary": ("quarantine", True),
    }  # fmt: skip
    assert closed(REMOVED, combined=combined)["digest"][:2] == ("remove", False)


def test_one_default_of_tau():
    assert round(AuditConfig().tau * 1_000_000) == DEFAULT_TAU_PPM


def test_base_labels_are_those_of_the_configuration(snapshot):
    def loose(trust):
        derivation = derivation_of(snapshot, "acme", trust=trust, tau=CONFIG.tau)
        return derivation.signed.label("loose")

    assert (loose({"unattributed": "trusted"}), loose({})) == ("trusted", "external")
    assert loose({"unattributed": "trusted", "sources": ["external"]}) == "external"
    with pytest.raises(UsageError, match="trust: unknown field 'sorces'"):
        loose({"sorces": []})


@pytest.mark.parametrize("length", [7, 8, 9, 10, 300])
def test_a_chain_is_kept_with_its_ends_and_a_count(length):
    root = dataclasses.replace(derived("n0", response="a"), source="external")
    chain = [root, *(derived(f"n{n}", (f"n{n - 1}", 900_000), response="a") for n in range(1, length))]
    lineage = Lineage.of("acme", chain, RULES)
    derivation = Derivation(signed=lineage, combined=lineage)
    last = derivation.closure(["n0"])[-1]
    names = [f"n{n}" for n in range(length)]
    left = length - PATH_HEAD - PATH_TAIL
    whole = names if left <= 0 else [*names[:PATH_HEAD], f"… {left} more", *names[-PATH_TAIL:]]
    assert [step.entry_id for step in last.path] == whole
    assert last.reason == f"derived from n0 over {length - 1} strong edges"
    assert derivation.trust()[-1].path == last.path
    assert [step.entry_id for step in last.path if step.weight is None] == ["n0", *(n for n in whole if "…" in n)]


def test_paths_that_are_kept_are_those_of_the_lineage():
    entries = [*LAUNDERED, derived("join", ("sum2", 300_000), ("bad0", 300_000), response="b")]
    lineage = Lineage.of("acme", entries, RULES)
    for item in Derivation(signed=lineage, combined=lineage).trust():
        path = lineage.path(item.entry_id) if item.trust == "derived-untrusted" else ()
        assert [(step.entry_id, step.trust) for step in item.path] == [(step.entry_id, step.label) for step in path]


def test_what_signed_edges_reach_from_an_earlier_removal_is_no_guess():
    """Also where an estimated edge makes a shorter path."""
    signed, combined = Lineage("acme", RULES), Lineage("acme", RULES)
    for lineage in (signed, combined):
        lineage.append_removed("F")
        lineage.append(derived("B", ("F", 900_000), response="b"))
    signed.append(derived("A", ("B", 900_000), response="a"))
    combined.append(derived("A", ("B", 900_000), response="a"), {"F": 900_000})
    derivation = Derivation(signed=signed, combined=combined, removed_earlier=frozenset({"F"}))
    found = {item.entry_id: item for item in derivation.closure([])}
    assert {name: (item.proposal, item.estimated) for name, item in found.items()} == {
        "B": ("quarantine", False), "A": ("quarantine", False),
    }  # fmt: skip
    assert found["A"].reason == "derived from F over 2 strong edges; an earlier run removed that entry"
