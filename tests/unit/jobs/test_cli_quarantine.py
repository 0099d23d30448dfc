"""What a run names is set aside with one command, and comes back with one; nothing of it is lost in between."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.jobs.cli.main import INTERRUPTED
from memory_audit.jobs.run.purge.sealed_run import open_sealed
from tests.unit.jobs.test_cli import AUDIT, CONFIG, bytes_of, event, memories, one_line, write_lines

if TYPE_CHECKING:
    from memory_audit.jobs.run.purge.sealed_run import SealedRun

QUARANTINE = ("purge", "run", "store", "--quarantine", "--apply")
PURGE = ("purge", "run", "store", "--apply")
VERIFY = ("verify", "store", "--quiet", "--deep")
NAMED = {"m3", "m7"}


@pytest.fixture
def desk(folder, set_up):
    """A folder with a sealed run that names two memories of its store."""
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    write_lines(folder / "memories.jsonl", memories())
    write_lines(folder / "more.jsonl", [{**memories()[0], "entry_id": "m99"}])
    write_lines(folder / "events.jsonl", [event()])
    set_up(("keys", "new"), ("import", "jsonl:memories.jsonl", "store"), AUDIT)
    return folder


@pytest.fixture
def quarantined(desk, set_up):
    set_up(QUARANTINE)
    return desk


@pytest.fixture
def run_id(desk):
    return json.loads((desk / "run" / "result.json").read_text())["run_id"]


def exported(run, *options: str) -> list[dict[str, object]]:
    code, out, _ = run("export", "store", *options)
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def ids(rows):
    return {row["entry_id"] for row in rows}


def test_a_quarantine_is_a_dry_run_unless_told_otherwise(desk, run):
    before = bytes_of(desk / "store")
    code, out, _ = run(*QUARANTINE[:-1])
    assert (code, "would quarantine acme/m3" in out, "add --apply to quarantine" in out) == (0, True, True)
    assert bytes_of(desk / "store") == before


def test_what_a_run_names_is_out_of_the_way_and_comes_back_with_one_command(desk, run, run_id):
    before = exported(run)
    code, out, _ = run(*QUARANTINE)
    assert (code, "quarantined acme/m3" in out, "version 2 published with 10 memories" in out) == (0, True, True)
    assert not ids(exported(run)) & NAMED
    assert exported(run, "--removed") == []
    held = exported(run, "--quarantined")
    assert ids(held) == NAMED
    assert {row["run_id"] for row in held} == {run_id}
    assert all(row["reason"] and row["quarantined_at_ms"] and "response" not in row for row in held)
    code, out, _ = run(*VERIFY, "--attestation", "run/quarantine.dsse.json")
    assert (code, "10 memories of 1 tenant, 2 memories in quarantine" in out) == (0, True)
    assert "attestation: version 2 quarantined 2 memories, as the log says" in out
    release = ("release", "store", "--run", run_id)
    assert "would release acme/m3, quarantined by run" in run(*release)[1]
    code, out, _ = run(*release, "--apply")
    assert (code, "version 3 published with 12 memories" in out) == (0, True)
    assert exported(run) == before
    assert exported(run, "--quarantined") == []
    code, out, _ = run(*release, "--apply")
    assert (code, out) == (0, "none of that is in quarantine: store stays as it is\n")
    assert run(*VERIFY)[0] == 0


def test_the_command_that_puts_back_is_told(desk, run, run_id):
    _, out, _ = run(*QUARANTINE)
    (line,) = [line for line in out.splitlines() if "put them back" in line]
    words = line.partition("memaudit ")[2].split()
    assert words == ["release", "store", "--run", run_id, "--apply"]
    assert run(*words)[0] == 0
    assert ids(exported(run)) >= NAMED


def test_some_are_released_by_name_and_the_others_removed_later(quarantined, run):
    code, out, _ = run("release", "store", "m7", "--tenant", "acme", "--reason", "looked at it", "--apply", "--json")
    assert (code, [item["entry_id"] for item in json.loads(out)["released"]]) == (0, ["m7"])
    assert run("import", "jsonl:more.jsonl", "store")[0] == 0
    assert "would remove acme/m3" in run(*PURGE[:-1])[1]
    code, out, _ = run(*PURGE, "--json")
    assert (code, [item["entry_id"] for item in json.loads(out)["removed"]]) == (0, ["m3"])
    assert (ids(exported(run, "--removed")), exported(run, "--quarantined")) == ({"m3"}, [])
    assert "m7" in ids(exported(run))
    code, out, _ = run(*VERIFY, "--attestation", "run/attestation.dsse.json")
    assert (code, "attestation: version 5 removed 1 memory, as the log says" in out) == (0, True)
    for words in (PURGE, QUARANTINE):
        code, _, err = run(*words)
        assert (code, "audit again" in one_line(err)) == (StalePlanError.exit_code, True)
    code, _, err = run("release", "store", "m3", "--tenant", "acme", "--apply")
    assert (code, "is in quarantine, or live" in one_line(err)) == (UsageError.exit_code, True)


def test_a_vacuum_keeps_what_is_in_quarantine_and_says_so(quarantined, run, run_id):
    before = [row for row in memories() if row["entry_id"] in NAMED]
    code, out, _ = run("vacuum", "store", "--keep", "0d", "--apply")
    assert (code, "2 memories in quarantine: the text is kept" in out) == (0, True)
    assert run("release", "store", "--run", run_id, "--apply")[0] == 0
    assert [row for row in exported(run) if row["entry_id"] in NAMED] == before
    assert json.loads(run("vacuum", "store", "--json")[1])["quarantined"] == 0


def test_what_is_in_quarantine_can_be_forgotten_by_hand_and_is_not_imported_again(quarantined, run):
    code, out, _ = run("import", "jsonl:memories.jsonl", "store", "--new-only", "--json")
    assert (code, ids(json.loads(out)["removed"])) == (0, NAMED)
    words = ("forget", "store", "m3", "--tenant", "acme", "--reason", "x", "--backbone", "none", "--embedder", "none")
    assert run(*words, "--apply")[0] == 0
    assert (ids(exported(run, "--removed")), ids(exported(run, "--quarantined"))) == ({"m3"}, {"m7"})


def test_what_is_only_suspected_is_quarantined_when_told_and_never_removed(desk, run, monkeypatch):
    def sealed(*arguments: object) -> SealedRun:
        found = open_sealed(arguments[0], arguments[2])
        (tenant,) = found.result.tenants
        removal = replace(tenant.removal, suspected={"m1": "weak evidence"})
        return replace(found, result=replace(found.result, tenants=(replace(tenant, removal=removal),)))

    monkeypatch.setattr("memory_audit.jobs.cli.purge._sealed", sealed)
    assert ids(json.loads(run(*QUARANTINE[:-1], "--json")[1])["quarantined"]) == NAMED
    assert run(*QUARANTINE, "--suspected")[0] == 0
    assert ids(exported(run, "--quarantined")) == {*NAMED, "m1"}
    assert run(*VERIFY, "--attestation", "run/quarantine.dsse.json")[0] == 0
    assert run(*PURGE, "--doubtful")[0] == 0
    assert (ids(exported(run, "--removed")), ids(exported(run, "--quarantined"))) == (NAMED, {"m1"})


@pytest.mark.parametrize(
    "words",
    [
        ("purge", "run", "store", "--suspected", "--apply"),
        ("release", "store"),
        ("release", "store", "m3"),
        ("release", "store", "--tenant", "acme"),
        ("release", "store", "m3", "--tenant", "acme", "--run", "r"),
        ("release", "store", "m1", "m404", "--tenant", "acme"),
        ("release", "store", "m3", "--tenant", "nobody"),
        ("release", "store", "m3", "--tenant", "acme", "--reason", ""),
        ("export", "store", "--removed", "--quarantined"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_changes_nothing(quarantined, run, words):
    before = bytes_of(quarantined / "store")
    code, _, err = run(*words)
    assert code == UsageError.exit_code
    one_line(err)
    assert bytes_of(quarantined / "store") == before


@pytest.mark.parametrize(
    "at", ["run.purge.purge_run.attest_run", "store.store_session.StoreSession.remember_published"]
)
@pytest.mark.parametrize("words", [QUARANTINE, PURGE])
def test_an_interrupted_purge_of_either_kind_is_finished_by_the_same_command(desk, run, monkeypatch, words, at):
    def killed(*_args: object, **_named: object) -> None:
        raise KeyboardInterrupt

    if words == PURGE:
        assert run(*QUARANTINE)[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(f"memory_audit.jobs.{at}", killed)
        assert run(*words)[0] == INTERRUPTED
    published = bytes_of(desk / "store")
    assert run(*words)[0] == 0
    assert bytes_of(desk / "store") == published
    name = "attestation" if words == PURGE else "quarantine"
    assert run(*VERIFY, "--attestation", f"run/{name}.dsse.json")[0] == 0
    assert run(*words)[0] == StalePlanError.exit_code


def test_a_damaged_quarantine_is_an_integrity_failure(quarantined, run):
    (file,) = (quarantined / "store" / "quarantine").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    code, _, err = run(*VERIFY)
    assert (code, "quarantine/b=" in one_line(err)) == (VerificationError.exit_code, True)
