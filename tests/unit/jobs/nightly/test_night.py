"""A night as its operator meets it: what it does by itself, and what it leaves to a person."""

from __future__ import annotations

import re
import shlex

import pytest

from memory_audit.errors import EventError, HeldError, IncompleteError, StalePlanError, UsageError, VerificationError
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.nightly.notify import lines_of
from memory_audit.jobs.nightly.run_night import NEEDS_A_PERSON
from memory_audit.jobs.run.purge.sealed_run import open_sealed
from memory_audit.jobs.store.lease import leased
from memory_audit.provenance.keys import load_policy
from memory_audit.snapshot.reader import open_snapshot
from tests.unit.jobs.nightly.conftest import WITHIN, record, write_job
from tests.unit.jobs.test_cli import CONFIG, bytes_of, event, memories, never, one_line, write_lines


def shown(desk):
    snapshot = open_snapshot(desk / "store", load_policy(desk / "memaudit-keys/policy.json"), now_ms=now_ms())
    gone = {stone.entry_id for stone in snapshot.tombstones("acme")}
    return snapshot.version, {entry.entry_id for entry in snapshot.entries("acme")}, gone


def test_by_default_a_night_purges_nothing_and_prints_the_command_that_does(desk, run, night):
    code, told, _ = night()
    assert (code, told["import"], told["verdicts"]) == (
        NEEDS_A_PERSON, {"new": 12, "known": 0, "removed": 0}, {"cleared": 1},
    )  # fmt: skip
    assert told["waits"] == ["2 memories would go, and the policy purges nothing"]
    assert shown(desk)[0] == 1
    assert run(*shlex.split(told["next"])[1:])[0] == 0
    assert shown(desk)[2] == {"m3", "m7"}
    assert run("verify", "store", "--attestation", f"{told['run']}/attestation.dsse.json", "--quiet")[0] == 0
    code, told, _ = night()  # the event is in the file still, and its harm does not come again
    assert (code, told["night"], told["verdicts"], told["removed"]) == (0, 2, {"not reproduced": 1}, [])
    assert told["import"] == {"new": 0, "known": 10, "removed": 2}


def test_within_its_policy_a_night_purges_and_attests(desk, run, night):
    write_job(desk, WITHIN)
    code, told, _ = night()
    assert (code, told["removed"], told["waits"]) == (0, [["acme", "m3"], ["acme", "m7"]], [])
    version, live, gone = shown(desk)
    assert (version, len(live), gone) == (2, 10, {"m3", "m7"})
    assert run("verify", "store", "--attestation", f"{told['run']}/attestation.dsse.json", "--quiet")[0] == 0


def test_a_quiet_night_starts_no_model(desk, night):
    (desk / "events.jsonl").write_bytes(b"")
    code, told, _ = night(start=never)
    assert (code, told["events"], told["run"], told["tenants"]) == (0, 0, None, 0)


def test_a_second_night_takes_over_what_the_first_compared(desk, run, night):
    night()
    write_lines(desk / "dump.jsonl", [*memories(), {**memories()[0], "entry_id": "m99"}])
    code, out, _ = run("nightly", "nightly.yaml")
    assert (code, "imported 1 memory, 12 known" in out) == (NEEDS_A_PERSON, True)
    taken = r"taken over from nights/night-000001/audit-\w+: [1-9]\d* embeddings, [1-9]\d* comparisons, [1-9]"
    assert re.search(taken, out)


def test_a_tenant_that_cannot_be_audited_holds_the_purge_back_and_is_named(desk, night):
    write_job(desk, WITHIN)
    write_lines(desk / "dump.jsonl", [*memories(), *({**memory, "tenant": "globex"} for memory in memories())])
    write_lines(desk / "events.jsonl", [event(), event("e2", tenant="globex", retrieved=["m99"])])
    code, told, _ = night()
    assert (code, told["removed"]) == (NEEDS_A_PERSON, [])
    assert told["waits"] == ["1 tenant could not be audited, see the report: globex"]
    assert shown(desk)[0] == 1


def test_the_folder_of_all_nights_can_be_reported(desk, run, night):
    night()
    assert run("report", "nights")[0] == 0


def test_a_dump_that_lacks_half_of_a_tenant_is_an_alarm_and_no_deletion(desk, night):
    others = [{**memory, "tenant": "globex"} for memory in memories(4)]
    write_lines(desk / "dump.jsonl", [*memories(), *others])
    (desk / "events.jsonl").write_bytes(b"")
    assert night()[0] == 0
    write_lines(desk / "dump.jsonl", memories(7))
    for number in (2, 3):  # until the dump is whole again
        code, told, _ = night()
        assert (code, told["night"]) == (NEEDS_A_PERSON, number)
        assert told["alarms"] == [{"tenant": "globex", "missing": 4, "of": 4}]
    write_lines(desk / "dump.jsonl", [*memories(6), *others])
    assert night()[1]["alarms"] == [{"tenant": "acme", "missing": 6, "of": 12}]
    write_lines(desk / "dump.jsonl", [*memories(6), *memories(11)[7:], *others])
    assert night()[0] == 0
    assert shown(desk) == (1, {f"m{n}" for n in range(12)}, set())


def test_where_a_dump_lacks_much_nothing_is_purged(desk, night):
    write_job(desk, WITHIN)
    (desk / "events.jsonl").write_bytes(b"")
    night()
    write_lines(desk / "dump.jsonl", memories(3))
    write_lines(desk / "events.jsonl", [event()])
    code, told, _ = night()
    assert (code, told["waits"]) == (NEEDS_A_PERSON, ["1 tenant lacks memories in tonight's dumps"])
    assert shown(desk)[0] == 1


def test_a_file_of_new_memories_alone_lacks_nothing(desk, night):
    night()
    write_job(desk, "policy: {}\n")
    text = (desk / "nightly.yaml").read_text().replace("{file: dump.jsonl}", "{file: dump.jsonl, whole: false}")
    (desk / "nightly.yaml").write_text(text.replace("nights}", "others}"))
    write_lines(desk / "dump.jsonl", [{**memories()[0], "entry_id": "m99"}])
    assert night()[1]["alarms"] == []


def test_a_store_that_is_gone_is_not_made_anew(desk, night):
    night()
    (desk / "store").rename(desk / "elsewhere")
    code, _, err = night()
    assert (code, "store is gone: night 1 had a store there" in one_line(err)) == (VerificationError.exit_code, True)


def test_a_store_that_changed_during_the_night_is_not_purged(desk, run, night, monkeypatch):
    write_job(desk, WITHIN)
    write_lines(desk / "more.jsonl", [{**memories()[0], "entry_id": "m99"}])
    from memory_audit.jobs.nightly import night as module  # noqa: PLC0415

    real = open_sealed

    def meanwhile(*arguments):  # noqa: ANN002
        monkeypatch.setattr(module, "open_sealed", real)
        run("import", "jsonl:more.jsonl", "store")
        return real(*arguments)

    monkeypatch.setattr(module, "open_sealed", meanwhile)
    code, told, _ = night()
    assert (code, told["removed"]) == (StalePlanError.exit_code, [])
    assert "audit again" in told["waits"][0]
    assert night()[1]["removed_count"] == 2  # of the next night


def test_another_command_that_holds_the_store_is_waited_for_or_left_alone(desk, run, night):
    night()
    held = bytes_of(desk / "store")
    with leased(desk / "store", "purge"):
        code, _, err = night()
        assert (code, "store is held by another command (memaudit purge" in one_line(err)) == (
            HeldError.exit_code,
            True,
        )
        assert run(*shlex.split(record(desk)["steps"]["purge"]["next"])[1:])[0] == HeldError.exit_code
    assert bytes_of(desk / "store") == held


def test_events_that_do_not_fit_are_read_again_once_they_are_corrected(desk, night):
    write_lines(desk / "events.jsonl", [event(retrieved=["m99"])])
    code, _, err = night()
    assert (code, "retrieved entry 'm99' is not in the store" in one_line(err)) == (EventError.exit_code, True)
    write_lines(desk / "events.jsonl", [event()])
    code, told, _ = night()
    assert (code, told["night"], told["tenants"], told["import"]["new"]) == (NEEDS_A_PERSON, 1, 1, 12)


def test_events_of_tenants_without_memories_are_counted_and_left_out(desk, run, night):
    others = [{**memory, "tenant": "globex"} for memory in memories(4)]
    write_lines(desk / "dump.jsonl", [*memories(), *others])
    write_lines(desk / "events.jsonl", [event(), event("e2", tenant="initech"), event("e3", tenant="globex")])
    code, told, _ = night()
    assert (code, told["events"], told["without_memories"]) == (NEEDS_A_PERSON, 2, 1)
    assert run("offboard", "store", "globex", "--receipt", "receipt.json", "--apply")[0] == 0
    code, told, _ = night()
    assert (told["events"], told["without_memories"], told["alarms"]) == (1, 2, [])
    assert told["import"] == {"new": 0, "known": 12, "removed": 4}


def test_an_event_in_two_files_is_told(desk, night):
    write_job(desk)
    text = (desk / "nightly.yaml").read_text().replace("[events.jsonl]", "[events.jsonl, events.jsonl]")
    (desk / "nightly.yaml").write_text(text)
    code, _, err = night()
    assert (code, "appears twice" in one_line(err)) == (UsageError.exit_code, True)


def test_old_nights_keep_their_records_and_what_is_signed(desk, night):
    write_job(desk, WITHIN)
    text = (desk / "nightly.yaml").read_text().replace("folder: nights", "folder: nights, keep: 1")
    (desk / "nightly.yaml").write_text(text)
    night()
    assert night()[0] == 0
    kept = sorted(path.name for path in (desk / "nights/night-000001").rglob("*") if path.is_file())
    assert kept == ["attestation.dsse.json", "night.json", "seal.dsse.json"]
    assert b"POISON" not in b"".join(bytes_of(desk / "nights/night-000001").values())
    assert (desk / "nights/night-000002/events.jsonl").exists()


def test_the_nights_of_two_stores_are_not_mixed(desk, night):
    night()
    text = (desk / "nightly.yaml").read_text().replace("store: store", "store: other")
    (desk / "nightly.yaml").write_text(text)
    code, _, err = night()
    assert (code, "holds the nights of" in one_line(err)) == (UsageError.exit_code, True)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "memaudit night v1", "store": 1}'])
def test_a_damaged_record_is_one_line(desk, night, text):
    night()
    (desk / "nights/night-000001/night.json").write_text(text)
    code, out, err = night()
    assert (code, out, "night.json" in one_line(err)) == (UsageError.exit_code, None, True)


def test_a_night_is_continued_after_a_step_that_failed(desk, night, monkeypatch):
    from memory_audit.jobs.nightly import night as module  # noqa: PLC0415

    def full(*_arguments, **_options):  # noqa: ANN002, ANN003
        raise IncompleteError("the disk is full")

    write_job(desk, WITHIN + "notify: {mail: {folder: outbox, to: a@b.example, sender: c@d.example}}\n")
    with monkeypatch.context() as patch:
        patch.setattr(module, "purge_run", full)
        assert night()[0] == IncompleteError.exit_code
    mail = (desk / "outbox/night-000001.eml").read_text()
    assert "FAILED at purge: IncompleteError" in mail
    code, told, _ = night(start=never)
    assert (code, told["night"], told["removed_count"]) == (0, 1, 2)
    assert "removed 2 memories" in (desk / "outbox/night-000001.eml").read_text()


def test_what_a_budget_of_replays_left_out_is_named_and_holds_no_other_purge_back(desk, run, night):
    (desk / "memaudit.yaml").write_text(CONFIG + "max_run_replays: 25\n", encoding="utf-8")
    write_job(desk, WITHIN)
    write_lines(desk / "dump.jsonl", [*memories(), *({**memory, "tenant": "globex"} for memory in memories())])
    write_lines(desk / "events.jsonl", [event(), event("e2", tenant="globex")])
    code, told, _ = night()
    assert (code, told["beyond_budget"]) == (NEEDS_A_PERSON, ["globex"])
    assert told["removed"] == [["acme", "m3"], ["acme", "m7"]]
    assert "beyond the budget of replays: globex" in "\n".join(lines_of(told))
