"""The log says what was refused and why, holds no text, and cannot fill a disk."""

# ruff: noqa: ANN002 - what the tests pass is passed on

from __future__ import annotations

import json

import pytest

from audit.errors import IncompleteError, UsageError
from audit.forget import decision_log
from audit.forget.decision import Decision
from audit.forget.decision_log import DecisionLog, as_record
from tests.unit.forget.locks import HARMFUL, NOW, entry, stone

REFUSED = Decision(
    allowed=False, reason="hazards match", tombstone=stone(), labels=frozenset({"b", "a"}), similarity=0.81234567
)
ALLOWED = Decision(allowed=True, reason="no hazard", labels=frozenset())
OPEN = Decision(allowed=True, reason="model failed", detail="x" * 5_000)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_refusals_and_failures_are_written_and_no_text(tmp_path):
    log = DecisionLog(tmp_path / "log", clock_ms=lambda: NOW)
    for decision in (REFUSED, ALLOWED, OPEN):
        log.write(entry(HARMFUL), decision)
    log.close()
    first, second = lines(tmp_path / "log")
    assert (first["ts_ms"], first["labels"], first["similarity"]) == (NOW, ["a", "b"], 0.8123)
    assert first["tombstone"]["entry_id"] == "m1"
    assert (second["reason"], second["allowed"], len(second["detail"])) == ("model failed", True, 300)
    assert "skip" not in (tmp_path / "log").read_text()


def test_what_was_let_in_is_written_on_demand(tmp_path):
    log = DecisionLog(tmp_path / "log", clock_ms=lambda: NOW, allowed_too=True)
    log.write(entry("tea"), ALLOWED)
    log.close()
    assert [line["reason"] for line in lines(tmp_path / "log")] == ["no hazard"]


def test_another_tenants_entry_is_not_named_to_this_one():
    wide = Decision(allowed=False, reason="key alone", tombstone=stone(entry(tenant="globex", entry_id="secret")))
    record = as_record(entry(), wide)
    assert "secret" not in json.dumps(record)
    assert "globex" not in json.dumps(record)


def test_a_full_file_is_put_aside(tmp_path):
    log = DecisionLog(tmp_path / "log", clock_ms=lambda: NOW, max_bytes=1_500)
    for _ in range(20):
        log.write(entry(), REFUSED)
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]
    assert all(path.stat().st_size <= 1_500 for path in tmp_path.iterdir())


def test_a_log_that_cannot_be_written_stops_the_guard(tmp_path, monkeypatch):
    log = DecisionLog(tmp_path / "log", clock_ms=lambda: NOW)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(decision_log.os, "write", full)
    with pytest.raises(IncompleteError, match="No space left"):
        log.write(entry(), REFUSED)
    monkeypatch.undo()
    log.close()
    with pytest.raises(UsageError, match="cannot open the decision log"):
        DecisionLog(tmp_path / "none" / "log", clock_ms=lambda: NOW)
