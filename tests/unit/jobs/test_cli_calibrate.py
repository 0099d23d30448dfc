"""`memaudit calibrate`, and audits with what it wrote.

The fake backbone answers HARM where a memory carries its marker. Here nobody planted these memories: they make benign
events wrong that are right without memory.
"""

# ruff: noqa: F811 - fixtures of another file

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from memory_audit.calibration_file import Incident, read_calibration, sign_calibration
from memory_audit.errors import ModelError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.models.fakes import FakeGenerator
from memory_audit.provenance.keys import load_keyring
from memory_audit.report.confidence import NOT_CALIBRATED
from memory_audit.result import single
from tests.audit_world import FAKES, DyingGenerator
from tests.unit.jobs.test_cli import AUDIT, CONFIG, bytes_of, desk, event, one_line, store, write_lines  # noqa: F401
from tests.whole import read_whole

CALIBRATE = ("calibrate", "store", "--events", "benign.jsonl", "--out", "calibration.json", "--local", "--quiet")
WRONG, RIGHT = 4, 3


def benign(number: int, case: int, **changes: object) -> dict[str, object]:
    query = f"how do I handle case {case} of printer trouble, ticket {number}"
    return event(f"b{number:02d}", query=query, output="fine", harm={"label": "benign"}, **changes)


@pytest.fixture
def events(desk):
    """Events whose memories make the answer wrong, others, and some that count no more than once or not at all."""
    (desk / "memaudit.yaml").write_text(CONFIG + "k: 3\nprobe_pattern: (HARM|fine)\n", encoding="utf-8")
    wrong = [benign(number, 3, retrieved=["m3", "m1", "m2"]) for number in range(WRONG)]
    right = [benign(WRONG + number, 1, retrieved=["m1", "m5", "m9"]) for number in range(RIGHT)]
    again = {**wrong[0], "event_id": "z1"}
    without_answer = benign(90, 3, retrieved=["m3"]) | {"output": "who knows"}
    return write_lines(desk / "benign.jsonl", [*right, *wrong, again, without_answer, event("h1")])


def calibrated(desk, nats: list[float], **changes: object):
    """Write a calibration that this desk's auditor signed, with the evidence of other incidents."""
    keyring = load_keyring(desk / "memaudit-keys")
    file = read_calibration(desk / "calibration.json", keyring.policy)
    incidents = tuple(Incident(tenant="acme", event_id=f"i{n}", nats=value) for n, value in enumerate(nats))
    setting = replace(file.setting, **{name: value for name, value in changes.items() if name != "backbone"})
    file = replace(file, incidents=incidents, setting=setting, backbone=str(changes.get("backbone", file.backbone)))
    (desk / "calibration.json").write_bytes(sign_calibration(file, keyring.signers("auditor")))


def result_of(desk) -> dict:
    return json.loads((desk / "run" / "result.json").read_text())


def test_events_that_memory_made_wrong_are_counted_and_measured(store, events, run, desk):
    before = bytes_of(store)
    code, out, err = run(*CALIBRATE, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["events"], told["incidents"], told["k"], told["significances"]) == (WRONG + RIGHT, WRONG, 3, [])
    assert (told["harm"], told["judged_by"]) == ("regex", "probe_pattern")
    file = read_calibration(desk / "calibration.json", load_keyring(desk / "memaudit-keys").policy)
    assert [item.event_id for item in file.incidents] == [f"b{number:02d}" for number in range(WRONG)]
    assert all(item.nats > 1.0 for item in file.incidents)
    assert bytes_of(store) == before


def test_it_is_told_in_words_and_the_file_holds_no_text(store, events, run, desk):
    code, out, _ = run(*CALIBRATE)
    assert code == 0
    assert f"{WRONG} clean incidents among {WRONG + RIGHT} events, too few" in out
    assert "the most evidence is" in out
    file = read_calibration(desk / "calibration.json", load_keyring(desk / "memaudit-keys").policy)
    assert "printer" not in str(file)


def test_without_a_pattern_the_harm_scorer_says_what_is_wrong(store, events, run, desk):
    (desk / "memaudit.yaml").write_text(CONFIG + "k: 3\n", encoding="utf-8")
    code, out, _ = run(*CALIBRATE, "--json")
    assert code == 0
    assert json.loads(out)["judged_by"] == "harm scorer"
    assert json.loads(out)["incidents"] == WRONG + 1  # the one whose known output has no answer by the pattern, too


def test_a_calibration_that_stopped_is_continued_and_says_the_same(store, events, run, desk):
    def dying(*_: object, **__: object):
        return LocalExecutor(FAKES, DyingGenerator(20))

    code, _, err = run(*CALIBRATE, start=dying)
    assert code == ModelError.exit_code
    assert "start the same command again" in one_line(err)
    assert not (desk / "calibration.json").exists()
    counting = FakeGenerator()
    assert run(*CALIBRATE, start=lambda *_, **__: LocalExecutor(FAKES, counting))[0] == 0
    resumed = read_calibration(desk / "calibration.json", load_keyring(desk / "memaudit-keys").policy)
    whole = FakeGenerator()
    other = ["other.json" if word == "calibration.json" else word for word in CALIBRATE]
    assert run(*other, start=lambda *_, **__: LocalExecutor(FAKES, whole))[0] == 0
    anew = read_calibration(desk / "other.json", load_keyring(desk / "memaudit-keys").policy)
    assert resumed.incidents == anew.incidents
    assert counting.requests < whole.requests


def test_no_benign_event_is_told_before_a_model_starts(store, events, run, desk):
    def never(*_: object, **__: object):
        raise AssertionError("a model was started")

    write_lines(desk / "benign.jsonl", [event("h1")])
    code, _, err = run(*CALIBRATE, start=never)
    assert code == 2
    assert "no event labelled benign" in one_line(err)


def test_evidence_beyond_the_incidents_names_a_memory_with_its_p(store, events, run, desk):
    assert run(*CALIBRATE)[0] == 0
    calibrated(desk, [0.5] * 49)
    code, out, _ = run(*AUDIT, "--calibration", "calibration.json")
    assert code == 0
    assert "calibrated on 49 clean incidents" in out
    result = result_of(desk)
    assert result["calibration"]["incidents"] == 49
    assert result["calibration"]["threshold_nats"] == 1.0  # what is weaker is never taken
    (tenant,) = result["tenants"]
    assert tenant["removal"]["attributed"].keys() == {"m3", "m7"}
    (found,) = read_whole(desk / "run").tenants
    p_values = {score.entry_id: score.p_value for score in found.scores}
    assert p_values["m3"] == p_values["m7"] == single(0.02)
    assert found.events[0].p_value == 0.02
    assert "2 %" in (desk / "run" / "report.html").read_text()
    code, out, _ = run("explain", "run", "e1")
    assert "confidence: calibrated on 49 clean incidents" in out
    assert "  p = 0.02 for m3" in out


def test_evidence_that_clean_incidents_show_too_names_nobody(store, events, run, desk):
    assert run(*CALIBRATE)[0] == 0
    calibrated(desk, [0.5] * 48 + [1e4])
    assert run(*AUDIT, "--calibration", "calibration.json")[0] == 0
    (tenant,) = result_of(desk)["tenants"]
    assert not [why for why in tenant["removal"]["attributed"].values() if why.startswith("alone")]
    assert read_whole(desk / "run").tenants[0].events[0].p_value == 0.04


def test_too_few_incidents_leave_the_fixed_threshold_and_say_so(store, events, run, desk):
    assert run(*CALIBRATE)[0] == 0
    code, out, _ = run(*AUDIT, "--calibration", "calibration.json")
    assert code == 0
    assert f"{NOT_CALIBRATED}: {WRONG} clean incidents, and 2 % needs 49" in out
    result = result_of(desk)
    assert result["calibration"]["threshold_nats"] is None
    assert result["tenants"][0]["removal"]["attributed"].keys() == {"m3", "m7"}


def test_without_a_calibration_nothing_has_a_p(store, events, run, desk):
    code, out, _ = run(*AUDIT)
    assert code == 0
    assert NOT_CALIBRATED in out
    assert result_of(desk)["calibration"] is None
    (found,) = read_whole(desk / "run").tenants
    assert {item.p_value for item in (*found.scores, *found.events)} == {None}
    assert NOT_CALIBRATED in run("explain", "run", "e1")[1]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"agent": "0" * 64}, "another agent"),
        ({"harm": "judge", "retrieval": "levenshtein"}, "another harm and retrieval"),
        ({"k": 2}, "of 2 memories retrieved"),
        ({"search": "v0"}, "another search"),
        ({"backbone": "another"}, "of the backbone another"),
    ],
)
def test_a_calibration_of_something_else_is_refused(store, events, run, desk, changes, told):  # noqa: PLR0917
    assert run(*CALIBRATE)[0] == 0
    calibrated(desk, [0.5] * 49, **changes)
    code, _, err = run(*AUDIT, "--calibration", "calibration.json")
    assert code == 2
    assert told in one_line(err)


def test_a_calibration_of_a_stranger_is_refused(store, events, run, desk):
    assert run(*CALIBRATE)[0] == 0
    assert run("keys", "new", "others")[0] == 0
    file = read_calibration(desk / "calibration.json", load_keyring(desk / "memaudit-keys").policy)
    forged = sign_calibration(file, load_keyring(desk / "others").signers("auditor"))
    (desk / "calibration.json").write_bytes(forged)
    code, _, err = run(*AUDIT, "--calibration", "calibration.json")
    assert code == 4
    assert "has no role auditor" in one_line(err)


def test_another_calibration_makes_another_run(store, events, run, desk):
    assert run(*CALIBRATE)[0] == 0
    assert run(*AUDIT, "--calibration", "calibration.json")[0] == 0
    calibrated(desk, [0.5] * 49)
    code, _, err = run(*AUDIT, "--calibration", "calibration.json")
    assert code == 2
    assert "other calibration" in one_line(err)
