"""Purges that were stopped on the way: the same command finishes what was begun, and nothing is lost or done twice."""

# ruff: noqa: ANN002, ANN003 - whatever is called is killed

from __future__ import annotations

import json

import pytest

from memory_audit.errors import IncompleteError, StalePlanError, UsageError
from memory_audit.jobs.cli.main import INTERRUPTED
from memory_audit.jobs.cli.shared import FINDINGS
from memory_audit.jobs.run.purge.attestation import ATTESTATION_FILE
from tests.unit.jobs.test_cli import AUDIT, CONFIG, bytes_of, event, memories, never, one_line, write_lines

PURGE = ("purge", "run", "store", "--apply")
VERIFY = ("verify", "store", "--quiet", "--attestation", f"run/{ATTESTATION_FILE}")


def killed(*_args, **_named):
    raise KeyboardInterrupt


@pytest.fixture
def desk(folder, set_up):
    """A folder with configuration, keys, events, and a store in which two memories did harm."""
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    write_lines(folder / "memories.jsonl", memories())
    write_lines(folder / "more.jsonl", [{**memories()[0], "entry_id": "m99"}])
    write_lines(folder / "events.jsonl", [event()])
    set_up(("keys", "new"), ("import", "jsonl:memories.jsonl", "store"))
    return folder


@pytest.fixture
def stop(run, monkeypatch):
    """Run one command until it calls what is named, and no further."""

    def command(*words: str, at: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(at, killed)
            assert run(*words)[0] == INTERRUPTED

    return command


@pytest.mark.parametrize(
    ("at", "appended", "version"),
    [
        ("run.purge.purge_run.attest_run", False, 2),
        ("run.purge.purge_run.attest_run", True, 3),
        ("store.store_session.StoreSession.remember_published", False, 2),
    ],
)
def test_an_audit_that_applies_is_finished_by_the_same_command(desk, run, stop, *, at, appended, version):
    stop(*AUDIT, "--apply", at=f"memory_audit.jobs.{at}")
    assert (desk / "run" / ATTESTATION_FILE).exists() == at.endswith("remember_published")
    if appended:
        assert run("import", "jsonl:more.jsonl", "store")[0] == 0
    published, finding = bytes_of(desk / "store"), (desk / "run" / "result.json").read_bytes()
    code, out, err = run(*AUDIT, "--apply", "--fail-on", "removed", start=never)
    assert (code, err) == (FINDINGS, "")
    assert "caused the harm" in out
    assert "version 2 published with 10 memories" in out
    assert bytes_of(desk / "store") == published
    assert (desk / "run" / "result.json").read_bytes() == finding
    (pin,) = (desk / "state").rglob("*.json")
    assert json.loads(pin.read_bytes())["version"] == version
    code, out, _ = run(*VERIFY, "--deep")
    assert (code, "attestation: version 2 removed 2 memories" in out) == (0, True)


@pytest.mark.usefixtures("desk")
def test_an_audit_that_was_finished_after_a_kill_prints_one_document(run, stop):
    stop(*AUDIT, "--apply", at="memory_audit.jobs.run.purge.purge_run.attest_run")
    code, out, _ = run(*AUDIT, "--apply", "--json")
    document = json.loads(out)
    assert (code, document["purged"]["version"], document["purged"]["published"]) == (0, 2, True)
    assert {item["entry_id"] for item in document["purged"]["removed"]} == {"m3", "m7"}


@pytest.mark.usefixtures("desk")
def test_an_audit_that_was_applied_is_not_applied_again(run):
    assert run(*AUDIT, "--apply")[0] == 0
    for words in ((*AUDIT, "--apply"), AUDIT):
        code, _, err = run(*words)
        assert code == UsageError.exit_code
        assert "holds a run with other snapshot; choose another --out; if a purge" in one_line(err)
        assert err.endswith("finish it with: memaudit purge run STORE --apply\n")


@pytest.mark.parametrize("words", [(), ("--apply", "--alpha", "0.1"), ("--apply", "--events", "other.jsonl")])
def test_another_question_is_not_answered_with_what_an_interrupted_audit_found(desk, run, stop, words):
    stop(*AUDIT, "--apply", at="memory_audit.jobs.run.purge.purge_run.attest_run")
    write_lines(desk / "other.jsonl", [event("e2")])
    code, _, err = run(*AUDIT, *words)
    assert (code, "memaudit purge run STORE --apply" in one_line(err)) == (UsageError.exit_code, True)
    assert not (desk / "run" / ATTESTATION_FILE).exists()
    assert run(*PURGE)[0] == 0
    assert run(*VERIFY)[0] == 0


def test_a_purge_is_attested_by_the_same_command_also_where_others_published_since(desk, run, stop, set_up):
    set_up(AUDIT)
    stop(*PURGE, at="memory_audit.jobs.run.purge.purge_run.attest_run")
    assert run("import", "jsonl:more.jsonl", "store")[0] == 0
    published = bytes_of(desk / "store")
    code, out, _ = run(*PURGE)
    assert (code, "version 2 published with 10 memories" in out) == (0, True)
    assert bytes_of(desk / "store") == published
    code, out, _ = run(*VERIFY)
    assert (code, "attestation: version 2 removed 2 memories" in out) == (0, True)
    assert run(*PURGE)[0] == StalePlanError.exit_code


def test_what_a_vacuum_erased_is_not_attested(desk, run, stop, set_up):
    set_up(AUDIT)
    stop(*PURGE, at="memory_audit.jobs.run.purge.purge_run.attest_run")
    assert run("import", "jsonl:more.jsonl", "store")[0] == 0
    assert run("vacuum", "store", "--keep", "0d", "--apply")[0] == 0
    assert run(*PURGE)[0] == StalePlanError.exit_code
    assert not (desk / "run" / ATTESTATION_FILE).exists()


def test_a_purge_waits_for_the_end_of_its_audit(desk, run, stop):
    stop(*AUDIT, at="memory_audit.jobs.run.run_audit.write_block_records")
    assert (desk / "run" / "result.json").is_file()
    before = bytes_of(desk / "store")
    for words in (PURGE[:-1], PURGE):
        code, _, err = run(*words)
        assert code == IncompleteError.exit_code
        assert "run: not sealed (no seal.dsse.json), as its audit was interrupted" in one_line(err)
        assert err.endswith("start the same audit again, memaudit audit … --out run, and then purge\n")
    assert bytes_of(desk / "store") == before
    assert run(*AUDIT)[0] == 0
    assert run(*PURGE)[0] == 0


def test_where_the_store_changed_meanwhile_the_hazards_are_not_asked_for(desk, run, stop):
    stop(*AUDIT, at="memory_audit.jobs.run.run_audit.write_block_records")
    assert run("import", "jsonl:more.jsonl", "store")[0] == 0
    code, _, err = run(*PURGE)
    assert (code, "audit again" in one_line(err)) == (StalePlanError.exit_code, True)


def test_a_run_that_was_told_to_read_no_hazards_is_purged_and_says_so(desk, run):
    (desk / "memaudit.yaml").write_text(f"{CONFIG}hazards: 'off'\n", encoding="utf-8")
    assert run(*AUDIT)[0] == 0
    assert not (desk / "run" / "hazards.json").exists()
    for words in (PURGE[:-1], PURGE):
        code, out, _ = run(*words)
        assert (code, "the run read no hazards: these tombstones keep the ids out" in out) == (0, True)


def test_an_attestation_of_a_version_that_an_interrupted_vacuum_gave_up_is_no_attack(desk, run):
    assert run(*AUDIT, "--apply")[0] == 0
    assert run("import", "jsonl:more.jsonl", "store")[0] == 0
    listed = (desk / "store" / "manifests" / "2.json").read_bytes()
    assert run("vacuum", "store", "--keep", "0d", "--apply")[0] == 0
    (desk / "store" / "manifests" / "2.json").write_bytes(listed)  # the last that a vacuum erases
    code, _, err = run(*VERIFY)
    assert (code, "which a vacuum erased from store: it has 3 to 4" in one_line(err)) == (UsageError.exit_code, True)
