"""A machine whose clock is ahead stops nobody; a store that it dated already is set right with one command."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace

import pytest

from memory_audit.errors import IncompleteError, UsageError, VerificationError
from memory_audit.jobs.clock import FIRST_MS, as_utc, publisher_ms
from tests.unit.jobs.test_cli import AUDIT, CONFIG, bytes_of, event, memories, one_line, write_lines
from tests.unit.jobs.test_published_unpinned import unkept

HOUR_NS = 3_600_000_000_000
FORGET = (
    "forget", "store", "m1", "--tenant", "acme", "--reason", "x", "--backbone", "none", "--embedder", "none",
)  # fmt: skip
READERS = [
    ("verify", "store", "--quiet"), ("export", "store"),
    ("gate", "explain", "store", "--tenant", "acme", "--entry", "m1"),
]  # fmt: skip


@pytest.fixture
def desk(folder, set_up):
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    write_lines(folder / "memories.jsonl", memories())
    write_lines(folder / "more.jsonl", [{**memories()[0], "entry_id": "m99"}])
    write_lines(folder / "yet.jsonl", [{**memories()[0], "entry_id": "m100"}])
    write_lines(folder / "events.jsonl", [event()])
    set_up(("keys", "new"), ("import", "jsonl:memories.jsonl", "store"))
    return folder


def set_clock(patch, hours):
    """Set this process's clock; the file system's stays."""
    real = time.time_ns
    patch.setattr(time, "time_ns", lambda: real() + hours * HOUR_NS)


def without_witness(patch):
    """As on a local disk: the file system has the machine's own clock."""
    patch.setattr("memory_audit.jobs.clock._file_system_ms", lambda _: None, raising=False)


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (1, ("import", "jsonl:more.jsonl", "store")), (9_000, ("import", "jsonl:more.jsonl", "store")),
        (24, ("import", "jsonl:more.jsonl", "new")), (1, (*FORGET, "--apply")),
        (24, ("purge", "run", "store", "--apply")), (24, ("vacuum", "store", "--keep", "0d", "--apply")),
        (1, (*AUDIT[:-3], "other", "--local", "--quiet", "--apply")),
    ],
    ids=["import", "import, a year", "new store", "forget", "purge", "vacuum", "audit"],
)  # fmt: skip
def test_a_clock_ahead_of_the_stores_file_system_publishes_nothing(desk, run, monkeypatch, words, hours):
    if words[0] == "purge":
        assert run(*AUDIT)[0] == 0
    before = bytes_of(desk / "store")
    with monkeypatch.context() as patch:
        set_clock(patch, hours)
        code, _, err = run(*words)
    assert (code, "that of the file system of" in one_line(err)) == (UsageError.exit_code, True)
    assert (bytes_of(desk / "store"), (desk / "new").exists()) == (before, False)
    assert [run(*reader)[0] for reader in READERS] == [0, 0, 0]
    assert run(*words)[0] == 0


def test_a_store_that_was_dated_ahead_is_set_right_by_one_command(desk, run, monkeypatch):
    with monkeypatch.context() as patch:
        set_clock(patch, 24)
        without_witness(patch)
        assert run("import", "jsonl:more.jsonl", "store")[0] == 0
    publishers = [
        ("import", "jsonl:yet.jsonl", "store"), (*FORGET, "--apply"), ("vacuum", "store", "--keep", "0d", "--apply"),
    ]  # fmt: skip
    for words in READERS + publishers:
        code, _, err = run(*words)
        assert (code, "memaudit redate" in one_line(err)) == (VerificationError.exit_code, True)
    before = bytes_of(desk / "store")
    code, out, _ = run("redate", "store")
    assert (code, "would publish version 3" in out, "dry run" in out) == (0, True, True)
    assert bytes_of(desk / "store") == before
    code, out, _ = run("redate", "store", "--apply")
    assert (code, out.splitlines()[-1]) == (0, "version 3 published, with the same memories")
    for words in READERS + publishers:
        assert run(*words)[0] == 0
    assert run("verify", "store", "--deep", "--quiet")[0] == 0
    before = bytes_of(desk / "store")
    code, out, _ = run("redate", "store", "--apply")
    assert (code, "nothing to set right" in out) == (0, True)
    assert json.loads(run("redate", "store", "--json")[1])["needed"] is False
    assert bytes_of(desk / "store") == before


def test_setting_right_needs_a_clock_that_is_not_ahead_itself(desk, run, monkeypatch):
    set_clock(monkeypatch, 24 * 800)
    code, _, err = run("redate", "store", "--apply")
    assert (code, "that of the file system of" in one_line(err)) == (UsageError.exit_code, True)
    assert len(list((desk / "store" / "manifests").iterdir())) == 1


def test_a_store_set_right_and_not_pinned_is_told_and_ended_by_the_same_command(desk, run, monkeypatch):
    with monkeypatch.context() as patch:
        set_clock(patch, 24)
        without_witness(patch)
        assert run("import", "jsonl:more.jsonl", "store")[0] == 0
    with monkeypatch.context() as patch:
        unkept(patch, 3, IncompleteError("no space left on device"))
        code, _, err = run("redate", "store", "--apply")
    assert (code, "version 3 of store is published, but" in one_line(err)) == (IncompleteError.exit_code, True)
    assert run("redate", "store", "--apply")[0] == 0
    assert run("verify", "store", "--quiet")[0] == 0


@pytest.mark.parametrize("witness", [0, FIRST_MS - 1, None])
def test_a_file_system_without_a_clock_is_no_witness(tmp_path, monkeypatch, witness):
    def fstat(_):
        if witness is None:
            raise PermissionError(13, "no")
        return SimpleNamespace(st_mtime_ns=witness * 1_000_000)

    monkeypatch.setattr("memory_audit.jobs.clock.os", SimpleNamespace(fsync=os.fsync, fstat=fstat))
    assert publisher_ms(tmp_path) > FIRST_MS


def test_looking_at_the_clock_leaves_nothing_behind_and_asks_for_no_folder(tmp_path):
    assert publisher_ms(tmp_path / "no" / "such") > FIRST_MS
    assert list(tmp_path.iterdir()) == []


def test_moments_are_told_to_the_minute_as_far_as_years_have_four_digits():
    assert as_utc(0) == "1970-01-01 00:00 UTC"
    assert as_utc(253_402_300_800_000) == "9999-12-31 23:59 UTC"
