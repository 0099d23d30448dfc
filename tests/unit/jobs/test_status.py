"""What a run or a night tells while it is at work."""

from __future__ import annotations

import json
import os

import pytest

from memory_audit.errors import EventError, ModelError, UsageError
from memory_audit.jobs.nightly import night as module
from memory_audit.jobs.run.run_audit import audit_and_seal
from memory_audit.jobs.watching import status
from memory_audit.jobs.watching import tally as module_of_tally
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.jobs.watching.status import STATUS_FILE, Status, StatusFile, read_status, status_lines
from memory_audit.jobs.watching.tally import Tally
from memory_audit.provenance import durable
from tests.unit.jobs.nightly.conftest import desk, night  # noqa: F401 - fixtures

AT = 1_760_000_000_000


def test_a_stage_is_written_when_it_begins_now_and_then_and_when_it_ends(tmp_path, monkeypatch):
    path = tmp_path / STATUS_FILE
    written = []
    monkeypatch.setattr(durable, "replace", lambda _, data, **_options: written.append(json.loads(data)))
    with Reporter(None, heard=StatusFile(path)).stage("comparing", 10) as stage:
        for _ in range(10):
            stage.advance()
    assert [(record["done"], record["total"]) for record in written] == [(0, 10), (10, 10)]
    assert written[0]["stage"] == "comparing"
    monkeypatch.setattr(status, "EVERY_S", 0.0)
    with Reporter(None, heard=StatusFile(path)).stage("comparing", 10) as stage:
        for _ in range(10):
            stage.advance()
    assert len(written) == 2 + 11


def test_nothing_is_written_before_there_is_a_folder_of_its_kind(tmp_path):
    told = StatusFile(tmp_path / STATUS_FILE, "run.json")
    with told, Reporter(None, heard=told).stage("a", 1):
        assert not told.path.exists()
        (tmp_path / "run.json").write_bytes(b"")
        with Reporter(None, heard=told).stage("b", 1):
            assert read_status(told.path).stage == "b"
    assert not told.path.exists()


def test_work_goes_on_where_no_status_can_be_written(tmp_path):
    (tmp_path / "gone").mkdir()
    told = StatusFile(tmp_path / "gone" / STATUS_FILE)
    (tmp_path / "gone" / STATUS_FILE).mkdir()
    with Reporter(None, heard=told).stage("a", 1) as stage:
        stage.advance()


def told(**changes):  # noqa: ANN003
    record = {
        "stage": "round 3", "done": 120, "total": 400, "spent_s": 40.0, "left_s": 93.3, "at_ms": AT, "host": "n\x1b1",
        "pid": 7, "tally": Tally(),
    }  # fmt: skip
    return Status(**{**record, **changes})


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "round 3: 120/400, 3 a second, about 93 s left; process 7 on n\x1b1"),
        ({"total": None, "left_s": None}, "round 3: 120, 3 a second; process 7 on n\x1b1"),
        ({"done": 0, "left_s": None}, "round 3: 0/400; process 7 on n\x1b1"),
        (
            {"at_ms": AT - 90_000, "left_s": None},
            "round 3: 120/400, 3 a second, nothing heard for 90 s; process 7 on n\x1b1",
        ),
    ],
)
def test_a_line_for_people(changes, line):
    assert list(status_lines(told(**changes), {}, AT)) == [line.replace("\x1b", "<U+001B>")]


def test_groups_failed_tenants_and_the_kinds_of_errors_are_told(monkeypatch):
    tally = Tally()
    tally.expect("group", 1_200)
    tally.expect("tenant", 9_000)
    tally.end("group", 200)
    tally.end("tenant", 1_500)
    monkeypatch.setattr(module_of_tally, "now_ms", lambda: AT - 12_000)
    tally.note(EventError("POISON"), "ac\x1bme")
    tally.note(ModelError("POISON"))
    lines = list(status_lines(told(tally=tally), {"6d-a1": told(stage="comparing", total=None, left_s=None)}, AT))
    assert lines[1:] == [
        "groups: 200 of 1,200 groups done, 1 at work; tenants: 1,500 of 9,000",
        "  6d-a1: comparing: 120, 3 a second; process 7 on n<U+001B>1",
        "errors: 1 EventError, 1 ModelError; the last one 12 s ago",
        "  failed: ac<U+001B>me (EventError)",
    ]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"stage": "x", "done": "x"}', b"\x00" * 70_000])
def test_a_damaged_status_is_one_line(tmp_path, data):
    (tmp_path / STATUS_FILE).write_bytes(data)
    with pytest.raises(UsageError, match=STATUS_FILE):
        read_status(tmp_path / STATUS_FILE)


def test_a_night_at_work_and_one_that_ended(desk, run, night, monkeypatch):  # noqa: F811
    seen = []
    audit = audit_and_seal

    def looking(*arguments, **options):  # noqa: ANN002, ANN003
        found = audit(*arguments, **options)
        seen.append((desk / "nights" / STATUS_FILE).read_text())
        return found

    monkeypatch.setattr(module, "audit_and_seal", looking)
    night()
    assert json.loads(seen[0])["pid"] == os.getpid()
    assert "POISON" not in seen[0]
    (told,) = (desk / "nights").glob("*/audit-*")
    assert run("status", str(told))[:2] == (0, "sealed\n")
    code, out, _ = run("status", "nightly.yaml")
    assert (code, "night 1 ended with exit code 1" in out) == (0, True)
