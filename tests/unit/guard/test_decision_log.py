"""The log says what was refused and why, holds no text, and cannot fill a disk."""

# ruff: noqa: ANN002 - what the tests pass is passed on

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time

import pytest

from memory_audit.errors import IncompleteError, UsageError
from memory_audit.guard.decide.guard_decision import GuardDecision
from memory_audit.guard.decision_log import DecisionLog, as_record
from tests.unit.guard.blocked import HARMFUL, NOW, entry, stone

REFUSED = GuardDecision(
    allowed=False, reason="hazards match", tombstone=stone(), labels=frozenset({"b", "a"}), similarity=0.81234567
)
ALLOWED = GuardDecision(allowed=True, reason="no hazard", labels=frozenset())
OPEN = GuardDecision(allowed=True, reason="model failed", detail="x" * 5_000)


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
    wide = GuardDecision(allowed=False, reason="key alone", tombstone=stone(entry(tenant="globex", entry_id="secret")))
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

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(IncompleteError, match="No space left"):
        log.write(entry(), REFUSED)
    monkeypatch.undo()
    log.close()
    with pytest.raises(UsageError, match="cannot open the decision log"):
        DecisionLog(tmp_path / "none" / "log", clock_ms=lambda: NOW)


@pytest.mark.parametrize("max_bytes", [1_000, 1 << 20])
def test_a_file_that_was_removed_is_made_again_also_at_its_limit(tmp_path, max_bytes):
    log = DecisionLog(tmp_path / "log", clock_ms=lambda: NOW, max_bytes=max_bytes)
    for number in range(6):
        log.write(entry(entry_id=f"w{number}"), REFUSED)
        if number % 2:
            (tmp_path / "log").unlink()
    log.write(entry(entry_id="last"), REFUSED)
    log.close()
    assert [line["entry_id"] for line in lines(tmp_path / "log")] == ["last"]


def test_a_file_that_a_rotator_moved_away_gets_no_more(tmp_path):
    log = DecisionLog(tmp_path / "log", clock_ms=lambda: NOW)
    for name in ("w1", "w2"):
        log.write(entry(entry_id=name), REFUSED)
        (tmp_path / "log").rename(tmp_path / f"log of {name}")
        (tmp_path / "log").touch()
    log.write(entry(entry_id="w3"), REFUSED)
    log.close()
    found = [lines(tmp_path / name) for name in ("log of w1", "log of w2", "log")]
    assert [[line["entry_id"] for line in file] for file in found] == [["w1"], ["w2"], ["w3"]]


def test_a_file_that_a_rotator_cut_has_room_again(tmp_path):
    log = DecisionLog(tmp_path / "log", clock_ms=lambda: NOW, max_bytes=1_500)
    for _ in range(20):
        log.write(entry(), REFUSED)
        os.truncate(tmp_path / "log", 0)
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_two_guards_that_share_a_file_put_aside_only_full_ones(tmp_path):
    logs = [DecisionLog(tmp_path / "log", clock_ms=lambda: NOW, max_bytes=4_000) for _ in range(2)]
    for number in range(60):
        logs[number % 3 == 0].write(entry(entry_id=f"w{number:02}"), REFUSED)
        newest = lines(tmp_path / "log")
        assert newest[-1]["entry_id"] == f"w{number:02}"
        kept = (lines(tmp_path / "log.1") if (tmp_path / "log.1").exists() else []) + newest
        assert [line["entry_id"] for line in kept] == [f"w{n:02}" for n in range(number + 1)][-len(kept) :]
        assert number < 10 or len(kept) >= 7  # a full file has room for that many
    for log in logs:
        log.close()


def test_of_guards_that_find_a_file_full_at_once_one_puts_it_aside(tmp_path, monkeypatch):
    logs = [DecisionLog(tmp_path / "log", clock_ms=lambda: NOW, max_bytes=1_500) for _ in range(4)]
    while not (tmp_path / "log").stat().st_size > 1_000:
        logs[0].write(entry(), REFUSED)
    full = (tmp_path / "log").read_bytes()
    put_aside, in_place, together = DecisionLog._put_aside, DecisionLog._in_place, threading.Barrier(4)

    def at_once(log, file):
        together.wait(10)
        put_aside(log, file)

    def long_ago(log, file):
        found = in_place(log, file)
        time.sleep(0.1 * logs.index(log))
        return found

    monkeypatch.setattr(DecisionLog, "_put_aside", at_once)
    monkeypatch.setattr(DecisionLog, "_in_place", long_ago)
    threads = [threading.Thread(target=log.write, args=(entry(), REFUSED)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "log.1").read_bytes().startswith(full)
    assert len(lines(tmp_path / "log.1")) + len(lines(tmp_path / "log")) == full.count(b"\n") + 4
    for log in logs:
        log.close()


def test_who_holds_a_lock_on_the_file_cannot_make_it_grow_without_end(tmp_path):
    log = DecisionLog(tmp_path / "log", clock_ms=lambda: NOW, max_bytes=1_500)

    def write_much():
        for _ in range(50):
            log.write(entry(), REFUSED)

    with (tmp_path / "log").open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        with pytest.raises(IncompleteError, match="it is full, and another process keeps it from being put aside"):
            write_much()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4_500
    write_much()
    log.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4_500


def test_a_line_of_which_a_part_was_taken_is_written_whole(tmp_path, monkeypatch):
    log, write = DecisionLog(tmp_path / "log", clock_ms=lambda: NOW), os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    log.write(entry(entry_id="w1"), REFUSED)
    log.write(entry(entry_id="w2"), REFUSED)
    log.close()
    assert [line["entry_id"] for line in lines(tmp_path / "log")] == ["w1", "w2"]


def test_half_a_line_before_a_full_disk_spoils_no_other(tmp_path, monkeypatch):
    log, write = DecisionLog(tmp_path / "log", clock_ms=lambda: NOW), os.write
    room = [7]

    def nearly_full(file, data):
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[: room.pop()])

    monkeypatch.setattr(os, "write", nearly_full)
    for _ in range(2):
        with pytest.raises(IncompleteError, match="No space left"):
            log.write(entry(entry_id="w1"), REFUSED)
    monkeypatch.undo()
    log.write(entry(entry_id="w2"), REFUSED)
    log.write(entry(entry_id="w3"), REFUSED)
    log.close()
    half, *whole = (tmp_path / "log").read_text().splitlines()
    assert len(half) == 7
    assert [json.loads(line)["entry_id"] for line in whole] == ["w2", "w3"]
