"""The command line as a user meets it: exit codes, one-line errors, and nothing written where nothing should be."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import re
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from memory_audit.config import AuditConfig
from memory_audit.errors import DEFECT, HeldError, IncompleteError, StalePlanError, UsageError, VerificationError
from memory_audit.jobs.cli.main import INTERRUPTED
from memory_audit.jobs.cli.shared import FINDINGS
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.run.block_records import write_block_records
from memory_audit.jobs.run.purge.attestation import ATTESTATION_FILE
from memory_audit.jobs.store.store_session import remember
from memory_audit.models.fakes import FakeGenerator
from memory_audit.provenance import durable
from memory_audit.provenance.keys import load_policy
from memory_audit.snapshot.pin import read_pin, write_pin
from memory_audit.snapshot.reader import open_snapshot
from tests.whole import read_whole

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "harm: {kind: regex, pattern: HARM}\nbackbone: fake\nnli: fake\nembedder: fake\n"


def memories(count: int = 12) -> list[dict[str, object]]:
    return [
        {
            "tenant": "acme", "entry_id": f"m{n}", "principal": f"u{n}", "source": "agent",
            "request": f"how do I handle case {n % 4} of printer trouble", "created_at_ms": 1_000 + n,
            "response": "POISON do the bad thing" if n in {3, 7} else f"a calm answer number {n}",
        }
        for n in range(count)
    ]  # fmt: skip


def event(name: str = "e1", **changes: object) -> dict[str, object]:
    return {
        "event_id": name, "tenant": "acme", "ts_ms": 1, "query": "how do I handle case 3 of printer trouble",
        "output": "HARM", "harm": {"label": "harmful"}, **changes,
    }  # fmt: skip


def write_lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def desk(folder):
    """A folder with configuration, keys, and memories, in which commands run."""
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    write_lines(folder / "memories.jsonl", memories())
    write_lines(folder / "events.jsonl", [event(), event("p1", harm={"label": "benign"}, query="what about case 1")])
    return folder


@pytest.fixture
def store(desk, set_up):
    set_up(("keys", "new"), ("import", "jsonl:memories.jsonl", "store"))
    return desk / "store"


AUDIT = ("audit", "store", "--events", "events.jsonl", "--out", "run", "--local", "--quiet")


def never(*_args, **_named):  # noqa: ANN002, ANN003
    raise AssertionError("a model was started")


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def one_line(text: str) -> str:
    assert text.startswith("memaudit: ")
    assert text.count("\n") == 1
    return text


def test_an_audit_names_the_causes_changes_nothing_and_exits_zero(store, run, desk):
    before = bytes_of(store)
    code, out, _ = run(*AUDIT)
    assert code == 0
    assert "caused the harm" in out
    assert bytes_of(store) == before
    assert (desk / "run" / "report.html").is_file()


def test_a_second_night_takes_over_what_the_first_compared_and_finds_the_same(store, run, desk, set_up):
    set_up(AUDIT)
    tonight = ["tonight" if word == "run" else word for word in AUDIT if word != "--quiet"]
    code, out, _ = run(*tonight, "--reuse", "run")
    assert code == 0
    assert re.search(r"taken over from run: [1-9]\d* embeddings, [1-9]\d* comparisons, [1-9]\d* replays", out)
    first, second = (json.loads((desk / name / "result.json").read_text()) for name in ("run", "tonight"))
    for tenant in (*first["tenants"], *second["tenants"]):
        del tenant["cost"]
    assert (second["tenants"], second["files"]) == (first["tenants"], first["files"])
    assert second["models"] == first["models"]


def test_reusing_what_is_no_run_is_refused_before_anything_is_written(store, run, desk):
    code, _, err = run(*AUDIT, "--reuse", "state")
    assert code == 2
    assert "no run there" in one_line(err)
    assert not (desk / "run").exists()


def test_fail_on_turns_findings_into_exit_one(store, run):
    assert run(*AUDIT, "--fail-on", "removed")[0] == 1
    assert run(*AUDIT, "--fail-on", "not-cleared")[0] == 0


@pytest.mark.parametrize(("replays", "verdict", "after"), [("4", "not cleared", 1.0), ("0", "not examined", None)])
def test_harm_that_is_still_there_or_was_not_looked_at_is_not_cleared(  # noqa: PLR0917 - fixtures and cases
    store, run, desk, replays, verdict, after
):
    assert run(*AUDIT, "--max-replays", replays, "--fail-on", "not-cleared")[0] == FINDINGS
    (found,) = read_whole(desk / "run").tenants[0].events
    assert (found.verdict, found.harm_after) == (verdict, after)


def test_purge_is_a_dry_run_unless_told_otherwise(store, run, set_up):
    set_up(AUDIT)
    before = bytes_of(store)
    code, out, _ = run("purge", "run", "store")
    assert code == 0
    assert "would remove acme/m3" in out
    assert bytes_of(store) == before


def test_purge_publishes_a_version_that_verifies_and_grew_from_the_audited_one(store, run, set_up):
    set_up(AUDIT)
    assert run("purge", "run", "store", "--apply")[0] == 0
    code, out, _ = run("verify", "store", "--deep")
    assert code == 0
    assert "version 1 (12 leaves) is a prefix of version 2 (14 leaves)" in out


def test_most_of_a_store_is_removed_only_when_told_so(store, run, monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.run.purge.purge_run.MOST_SHARE", 0.1)
    run(*AUDIT)
    before = bytes_of(store)
    code, _, err = run("purge", "run", "store", "--apply")
    assert code == 2
    assert "2 of 12 memories of acme would go" in one_line(err)
    assert bytes_of(store) == before
    assert "seldom the cause" in run("purge", "run", "store")[1]
    assert run("purge", "run", "store", "--apply", "--most")[0] == 0


def test_an_audit_that_applies_asks_as_a_purge_does_before_most_of_a_tenant_goes(store, run, monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.run.purge.purge_run.MOST_SHARE", 0.1)
    before = bytes_of(store)
    code, _, err = run(*AUDIT, "--apply")
    assert code == 2
    assert "2 of 12 memories of acme would go" in one_line(err)
    assert "look at run/report.html, then: memaudit purge run store --apply --most" in err
    assert bytes_of(store) == before
    assert run("purge", "run", "store", "--apply", "--most")[0] == 0


def test_an_audit_that_applies_says_all_in_one_document(store, run):
    code, out, _ = run(*AUDIT, "--apply", "--json")
    assert code == 0
    document = json.loads(out)
    assert [tenant["tenant"] for tenant in document["tenants"]] == ["acme"]
    assert (document["purged"]["version"], document["purged"]["published"]) == (2, True)
    assert {item["entry_id"] for item in document["purged"]["removed"]} == {"m3", "m7"}


def test_an_audit_whose_purge_is_refused_still_prints_its_document(store, run, monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.run.purge.purge_run.MOST_SHARE", 0.1)
    code, out, err = run(*["my run" if word == "run" else word for word in AUDIT], "--apply", "--json")
    assert code == UsageError.exit_code
    document = json.loads(out)
    assert [tenant["tenant"] for tenant in document["tenants"]] == ["acme"]
    assert document["purged"] is None
    assert document["refused"].endswith("then: memaudit purge 'my run' store --apply --most")
    assert one_line(err) == f"memaudit: {document['refused']}\n"


def test_a_command_to_copy_is_one_that_a_shell_takes(store, run):
    spaced = ["my run" if word == "run" else word for word in AUDIT]
    assert "memaudit purge 'my run' store --apply\n" in run(*spaced)[1]
    out = run("purge", "my run", "store", "--apply")[1]
    assert f"memaudit verify store --attestation 'my run/{ATTESTATION_FILE}'" in out


def test_a_purge_that_could_not_be_attested_is_finished_by_the_same_command(store, run, desk, monkeypatch, set_up):
    set_up(AUDIT)
    attestation = desk / "run" / ATTESTATION_FILE
    replace = durable.replace

    def full(final: Path, data: bytes, **options: int) -> None:
        if final.name == ATTESTATION_FILE:
            raise IncompleteError("no space left on device")
        replace(final, data, **options)

    with monkeypatch.context() as patch:
        patch.setattr("memory_audit.provenance.durable.replace", full)
        assert run("purge", "run", "store", "--apply")[0] == 3
    assert not attestation.exists()
    published = bytes_of(store)
    code, out, _ = run("purge", "run", "store", "--apply")
    assert code == 0
    assert "version 2 published with 10 memories" in out
    assert attestation.is_file()
    assert bytes_of(store) == published
    assert run("purge", "run", "store", "--apply")[0] == 5


def test_the_log_of_what_went_wrong_can_be_audited_again_when_its_causes_are_gone(store, run, desk):
    write_lines(desk / "events.jsonl", [event(retrieved=["m3", "m11"])])
    run(*AUDIT)
    run("purge", "run", "store", "--apply")
    tonight = ["tonight" if word == "run" else word for word in AUDIT]
    assert run(*tonight)[0] == 0
    (found,) = read_whole(desk / "tonight").tenants[0].events
    assert found.verdict == "not reproduced"
    assert found.reason.endswith("of the memories that it used 1 was removed since")
    assert found.retrieved == ("m3", "m11")


def test_a_night_on_which_nothing_is_found_ends_well(store, run, desk):
    write_lines(desk / "events.jsonl", [event(query="how do I handle case 1 of printer trouble")])
    run(*AUDIT)
    before = bytes_of(store)
    code, out, _ = run("purge", "run", "store", "--apply")
    assert (code, out) == (0, "run found nothing to remove: store stays as it is\n")
    assert json.loads(run("purge", "run", "store", "--apply", "--json")[1])["removed"] == []
    assert bytes_of(store) == before
    assert run("purge", "run", "nowhere", "--apply")[0] == 2
    write_lines(desk / "more.jsonl", [{**memories()[0], "entry_id": "m99"}])
    run("import", "jsonl:more.jsonl", "store")
    assert run("purge", "run", "store", "--apply")[0] == 5


def test_a_report_for_a_folder_that_is_not_there_is_refused(store, run, desk, set_up):
    set_up(AUDIT)
    code, _, err = run("report", "run", "--format", "json", "--out", "nowhere/result.json")
    assert code == 2
    assert "nowhere/result.json: there is no folder nowhere" in one_line(err)


@pytest.mark.parametrize("role", ["auditor", "log"])
def test_a_key_that_applying_needs_is_missed_before_the_work(store, run, desk, role):
    (desk / "memaudit-keys" / f"memaudit-{role}.key").unlink()
    code, _, err = run(*AUDIT, "--apply", start=never)
    assert code == 2
    assert f"the key folder holds 0 usable {role} keys" in one_line(err)


@pytest.mark.parametrize(
    ("pin", "code", "said"),
    [
        ("memories.jsonl/pin", UsageError.exit_code, "memories.jsonl is not a folder"),
        ("/proc/pin", IncompleteError.exit_code, "cannot write /proc/pin ("),
    ],
)
def test_a_pin_that_cannot_be_kept_is_said_with_the_way_out(store, run, pin, code, said):
    found, _, err = run("verify", "store", "--pin", pin)
    assert found == code
    assert said in one_line(err)
    assert err.endswith("; --pin names another file\n")


def test_an_audit_tells_that_its_tombstones_will_have_no_act(store, run, monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.run.block_records.load_behaviour_reader", lambda specs: None)
    code, out, _ = run(*[word for word in AUDIT if word != "--quiet"])
    assert code == 0
    said = "the packaged 0.5B and 1.5B, which read behaviours, are not both installed on this machine"
    assert said in " ".join(out.split())


def test_a_pin_does_not_move_to_a_version_that_shows_less_than_was_seen(store, desk, run):
    """As where somebody publishes a shorter log while a command runs."""
    write_lines(desk / "more.jsonl", [{**memories(1)[0], "entry_id": "m99"}])
    assert run("import", "jsonl:more.jsonl", "store")[0] == 0
    policy, now = load_policy(desk / "memaudit-keys" / "policy.json"), now_ms()
    snapshot = open_snapshot(store, policy, now_ms=now)
    seen = dataclasses.replace(snapshot.pin(), version=1, digest="0" * 64, logs={"acme": (99, bytes(32))})
    write_pin(desk / "pin.json", seen)
    with pytest.raises(VerificationError, match=r"13 leaves, pinned are 99 \(truncated\)"):
        remember(snapshot, desk / "pin.json")
    assert read_pin(desk / "pin.json") == seen


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("backbone: fake\n", "no harm scorer: give memaudit.yaml `harm`"),
        ("backbone: fake\nharm: {kind: regex}\n", "harm scorer 'regex': 'pattern' is missing; its fields are pattern"),
    ],
)
def test_a_harm_that_cannot_be_meant_starts_no_run(store, run, desk, config, said):
    (desk / "memaudit.yaml").write_text(config, encoding="utf-8")
    code, _, err = run(*AUDIT)
    assert code == 2
    assert said in one_line(err)
    assert not (desk / "run").exists()


def fails_on_all(query, output):
    raise ValueError(f"cannot read\n{output}")


def test_a_harm_function_that_fails_is_one_line_and_no_finding(store, run, desk):
    name = f"{__name__}:fails_on_all"
    (desk / "memaudit.yaml").write_text(CONFIG.replace("regex, pattern: HARM", f"'{name}'"), encoding="utf-8")
    code, _, err = run(*AUDIT)
    assert code == 2
    assert f"harm scorer '{name}' failed: ValueError: cannot read" in one_line(err)


def test_what_an_audit_is_told_is_checked_before_its_models_are_made_ready(store, run, desk):
    (desk / "memaudit.yaml").write_text("backbone: fake\nharm: {kind: regex}\n", encoding="utf-8")
    assert run(*AUDIT, start=never)[0] == 2


def test_a_second_purge_is_stale_and_changes_nothing(store, run, set_up):
    set_up(AUDIT)
    run("purge", "run", "store", "--apply")
    before = bytes_of(store)
    code, _, err = run("purge", "run", "store", "--apply")
    assert code == 5
    assert "audit again" in one_line(err)
    assert bytes_of(store) == before


def test_a_changed_byte_is_an_integrity_failure(store, run):
    data = next((store / "data").rglob("*.parquet"))
    spoiled = bytearray(data.read_bytes())
    spoiled[len(spoiled) // 2] ^= 1
    data.write_bytes(bytes(spoiled))
    code, _, err = run("verify", "store")
    assert code == 4
    one_line(err)


def test_counts_agree_with_their_nouns(desk, run):
    write_lines(desk / "memories.jsonl", memories(1))
    assert run("keys", "new")[0] == 0
    assert "1 memory of 1 tenant signed into store" in run("import", "jsonl:memories.jsonl", "store")[1]
    assert "1 memory of 1 tenant, 0 tombstones, 1 signature, " in run("verify", "store")[1]


def test_a_planted_file_is_named_with_what_it_may_be_and_steers_no_terminal(store, run):
    (store / "data" / "evil\x1b[2J.parquet").write_bytes(b"x")
    code, out, _ = run("verify", "store")
    assert code == 0
    assert "no part of any version (left over from an interrupted publisher, or planted): 1 file. Nothing reads" in out
    assert "  data/evil<U+001B>[2J.parquet" in out.splitlines()


def test_a_store_under_another_policy_says_how_to_give_the_right_one(store, run):
    assert run("keys", "new", "other")[0] == 0
    code, _, err = run("verify", "store", "--keys", "other")
    assert code == 4
    assert "signed under another or newer policy; give the publisher's with --keys or --trust" in one_line(err)


def test_keys_that_exist_are_named_with_what_to_do(store, run):
    code, _, err = run("keys", "new")
    assert code == 2
    assert "memaudit-keys/policy.json: exists, and no key is overwritten" in one_line(err)


def test_json_output_is_json_alone(store, run):
    for command in (("verify", "store"), AUDIT[:-1], ("purge", "run", "store"), ("doctor",)):
        code, out, _ = run(*command, "--json")
        assert code == 0
        json.loads(out)


def test_a_report_can_be_had_again_in_every_format(store, run, desk, set_up):
    set_up(AUDIT)
    assert "acme" in run("report", "run")[1]
    assert json.loads(run("report", "run", "--format", "json")[1])
    assert json.loads(run("report", "run", "--format", "sarif")[1])["version"] == "2.1.0"
    assert run("report", "run", "--format", "html", "--out", "again.html")[0] == 0
    assert (desk / "again.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
def test_a_report_replaces_nothing_that_is_no_file(store, run, desk, kind, set_up):
    set_up(AUDIT)
    out = desk / "out"
    if kind == "pipe":
        os.mkfifo(out)
    else:
        out.symlink_to("/dev/null" if kind == "device" else out)
    before = out.lstat().st_ino
    code, _, err = run("report", "run", "--format", "json", "--out", "out")
    assert code == UsageError.exit_code
    assert "out: is there and is no file" in one_line(err)
    assert out.lstat().st_ino == before


@pytest.mark.parametrize("there", [True, False])
def test_a_report_is_written_to_the_target_of_a_link(store, run, desk, there, set_up):
    set_up(AUDIT)
    (desk / "elsewhere").mkdir()
    target = desk / "elsewhere" / "report.json"
    if there:
        target.write_text("old", encoding="utf-8")
    (desk / "link.json").symlink_to(target)
    assert run("report", "run", "--format", "json", "--out", "link.json")[0] == 0
    assert (desk / "link.json").is_symlink()
    assert json.loads(target.read_bytes())["tenants"]


def test_a_terminal_that_is_not_utf8_ends_no_audit(store, run, monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", out)
    assert run(*AUDIT, "--apply")[0] == 0
    assert b"version 2 published" in out.buffer.getvalue()
    assert run("report", "run", "--format", "html")[0] == 0
    assert out.buffer.getvalue().decode("utf-8", errors="replace").rpartition("<!doctype html>")[2].count("→")


@pytest.mark.parametrize("form", ["table", "json", "html"])
def test_a_closed_standard_output_is_no_defect(store, run, monkeypatch, form, set_up):
    set_up(AUDIT)
    monkeypatch.setattr(sys, "stdout", None)
    code, _, err = run("report", "run", "--format", form)
    sys.stdout.close()
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"entry_id": "a"', "line 2: not JSON"),
        (b"[1, 2]", "line 2: expected an object with tenant"),
        (b'{"tenant": "acme", "entry_id": "a", "request": "\xff"}', "line 2: not valid UTF-8"),
        (b'{"tenant": "acme", "entry_id": "a", "request": "q"}', "line 2: response is missing"),
        (b'{"tenant": "acme", "entry_id": "a", "request": "q", "response": 3}', "response is 3, expected text"),
        (b'{"tenant": "acme", "entry_id": "a", "request": "q", "response": "r", "x": 1}', "unknown field 'x'"),
    ],
)
def test_a_malformed_memory_names_its_line_and_writes_nothing(desk, run, line, said):
    run("keys", "new")
    good = json.dumps(memories()[0]).encode()
    (desk / "bad.jsonl").write_bytes(good + b"\n" + line + b"\n")
    code, _, err = run("import", "jsonl:bad.jsonl", "new-store")
    assert code == 2
    assert said in one_line(err)
    assert not (desk / "new-store").exists()


def test_a_memory_of_ten_megabytes_is_refused_in_one_line(desk, run):
    run("keys", "new")
    write_lines(desk / "huge.jsonl", [{**memories()[0], "response": "x" * 10_000_000}])
    code, _, err = run("import", "jsonl:huge.jsonl", "new-store")
    assert code == 2
    assert len(one_line(err)) < 400
    assert not (desk / "new-store").exists()


def test_a_tenant_that_cannot_be_audited_is_named_in_one_line_and_the_others_are_audited(desk, run):
    others = [{**memory, "tenant": "globex"} for memory in memories()]
    write_lines(desk / "memories.jsonl", [*memories(), *others])
    write_lines(desk / "events.jsonl", [event(), event("e2", tenant="globex", retrieved=["m99"])])
    assert run("keys", "new")[0] == run("import", "jsonl:memories.jsonl", "store")[0] == 0
    before = bytes_of(desk / "store")
    code, out, err = run(*AUDIT, "--apply")
    assert code == 3
    assert "purged" not in out
    assert bytes_of(desk / "store") == before
    tenant, ended = err.splitlines()
    assert tenant == "tenant globex: event 'e2': retrieved entry 'm99' is not in the store of 'globex'"
    assert ended.startswith("memaudit: 1 of 2 tenants could not be audited; what was found of the others is kept: ")
    found = {tenant["tenant"]: tenant for tenant in json.loads((desk / "run" / "result.json").read_text())["tenants"]}
    assert found["acme"]["removal"]["attributed"].keys() == {"m3", "m7"}
    assert found["globex"]["failure"] == "event 'e2': retrieved entry 'm99' is not in the store of 'globex'"


def test_an_event_with_a_memory_that_its_tenant_never_had_is_one_line(store, run, desk):
    write_lines(desk / "events.jsonl", [event(retrieved=["m99"])])
    code, _, err = run(*AUDIT)
    assert (code, "'m99' is not in the store" in one_line(err)) == (2, True)


@pytest.mark.parametrize(
    ("events", "said"), [([event(tenant="nobody")], "unknown tenant 'nobody'"), ([], "no events in it")]
)
def test_events_that_do_not_fit_are_one_line_and_start_no_run(store, run, desk, events, said):
    write_lines(desk / "events.jsonl", events)
    code, _, err = run(*AUDIT)
    assert code == 2
    assert said in one_line(err)
    assert not (desk / "run").exists()


def test_a_quiet_night_is_a_finished_audit_that_starts_no_model_and_no_cluster(store, run, desk, monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.run.run_audit.prepare_models", never)
    monkeypatch.setattr("memory_audit.jobs.executors.local.load_generator", never)
    write_lines(desk / "events.jsonl", [event(harm={"label": "benign"})])
    quiet = [word for word in AUDIT if word != "--local"]
    code, out, _ = run(*quiet, "--fail-on", "removed", "--address", "10.0.0.1:6379")
    assert code == 0
    assert out.startswith("No harmful event was given")
    code, out, _ = run("report", "run", "--format", "json")
    assert (code, json.loads(out)["tenants"]) == (0, [])
    assert run("purge", "run", "store", "--apply")[0] == 0
    assert (desk / "run" / "report.html").is_file()


@pytest.mark.parametrize("label", ["harmful", "benign"])
def test_a_cluster_and_this_process_are_not_both_asked_for(store, run, desk, label):
    write_lines(desk / "events.jsonl", [event(harm={"label": label})])
    code, _, err = run(*AUDIT, "--address", "10.0.0.1:6379", start=never)
    assert code == 2
    assert "leave out --address, or unset RAY_ADDRESS" in one_line(err)
    assert not (desk / "run").exists()


def test_a_defect_is_a_traceback_and_no_finding(store, run):
    code, _, err = run(*AUDIT, "--fail-on", "removed", start=lambda *_, **__: {}["of an agent's own"])
    assert code == 70
    assert 'KeyError: "of an agent\'s own"' in err


def test_a_missing_model_folder_is_one_line(store, run, desk):
    code, _, err = run(*AUDIT, "--backbone", str(desk / "no-such-model"))
    assert code == 2
    assert "no such model folder" in one_line(err)


def test_an_empty_store_and_a_missing_one_are_usage_errors(desk, run):
    run("keys", "new")
    (desk / "empty").mkdir()
    for name in ("empty", "missing"):
        code, _, err = run("verify", name)
        assert code == 2
        one_line(err)


def test_an_import_without_memories_writes_nothing(desk, run):
    run("keys", "new")
    (desk / "none.jsonl").write_text("\n\n", encoding="utf-8")
    code, _, err = run("import", "jsonl:none.jsonl", "new-store")
    assert code == 2
    assert "no memories in it" in one_line(err)
    assert not (desk / "new-store").exists()


def test_an_unknown_option_in_the_configuration_is_named(store, run, desk):
    (desk / "memaudit.yaml").write_text(CONFIG + "alhpa: 0.5\n", encoding="utf-8")
    code, _, err = run(*AUDIT)
    assert code == 2
    assert "unknown option 'alhpa'" in one_line(err)


@pytest.mark.parametrize("told_by", ["option", "file", "environment"])
def test_the_key_of_a_server_is_named_by_its_variable(store, run, desk, monkeypatch, told_by):
    monkeypatch.delenv("DESK_KEY", raising=False)
    server = CONFIG.replace("backbone: fake", "backbone: openai:http://127.0.0.1:9/v1#m")
    words: tuple[str, ...] = ()
    if told_by == "option":
        words = ("--backbone-key-env", "DESK_KEY")
    elif told_by == "file":
        server += "backbone_key_env: DESK_KEY\n"
    else:
        monkeypatch.setenv("MEMAUDIT_BACKBONE_KEY_ENV", "DESK_KEY")
    (desk / "memaudit.yaml").write_text(server, encoding="utf-8")
    code, _, err = run(*AUDIT, *words)
    assert code == 2
    assert "environment variable DESK_KEY is not set" in one_line(err)
    assert not (desk / "run").exists()


def test_help_names_the_defaults_that_hold_where_flags_and_file_say_nothing(run):
    told = " ".join(run("audit", "--help")[1].split())
    settings = {item.name: item.default for item in dataclasses.fields(AuditConfig)}
    for name in ("alpha", "k", "retrieval", "attribution", "graph", "backbone", "nli", "embedder", "descendants"):
        text = told[told.index(f"--{name} <") :]
        assert text[text.index("default: ") + len("default: ") :].startswith(f"{settings[name]}. "), name


def test_a_run_folder_of_another_configuration_is_refused(store, run, set_up):
    set_up(AUDIT)
    code, _, err = run(*AUDIT, "--alpha", "0.1")
    assert code == 2
    assert "other configuration" in one_line(err)


def test_interrupting_an_audit_keeps_what_was_computed(store, run, desk, monkeypatch):
    answer = FakeGenerator.generate

    async def interrupted(self, request):
        if self.requests == 5:
            raise KeyboardInterrupt
        return await answer(self, request)

    monkeypatch.setattr(FakeGenerator, "generate", interrupted)
    code, _, err = run(*AUDIT)
    assert code == 130
    assert "start the same command again" in err
    monkeypatch.setattr(FakeGenerator, "generate", answer)
    assert run(*AUDIT)[0] == 0


def test_ending_an_audit_gently_is_an_interruption_and_no_finding(store, run):
    def ended(*_args, **_named):  # noqa: ANN002, ANN003
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, never)
    try:
        code, _, err = run(*AUDIT, start=ended)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert code == INTERRUPTED
    assert "start the same command again" in err


def test_a_reader_who_goes_away_is_no_finding(store, run, monkeypatch):
    def closed(_result, *, found, indent):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    run(*AUDIT)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # typer replaces it then
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr("memory_audit.jobs.cli.report.to_json", closed)
    assert run("report", "run", "--format", "json")[0] == IncompleteError.exit_code


def test_a_full_disk_while_publishing_leaves_the_old_version(store, run, monkeypatch, set_up):
    set_up(AUDIT)
    before = bytes_of(store)
    link = os.link

    def full(source, target, **options: object):
        if "manifests" in str(target):
            raise OSError(28, "No space left on device", str(target))
        return link(source, target, **options)

    monkeypatch.setattr(os, "link", full)
    code, _, err = run("purge", "run", "store", "--apply")
    assert code == 3
    one_line(err)
    monkeypatch.setattr(os, "link", link)
    assert before.items() <= bytes_of(store).items()
    assert run("verify", "store")[0] == 0
    assert run("purge", "run", "store", "--apply")[0] == 0


def test_usage_errors_of_the_command_line_exit_two(run, desk):
    assert run("no-such-command")[0] == 2
    assert run("audit")[0] == 2


def test_hostile_names_cannot_write_terminal_escapes(desk, run):
    run("keys", "new")
    row = {**memories()[0], "tenant": "evil\x1b[2Jtenant"}
    write_lines(desk / "memories.jsonl", [row])
    run("import", "jsonl:memories.jsonl", "store")
    write_lines(desk / "events.jsonl", [event(tenant="other\x1b]0;owned\x07")])
    code, out, err = run(*AUDIT)
    assert code == 2
    assert "\x1b" not in out + err


def test_a_name_between_colons_is_no_picture(store, run):
    code, _, err = run("verify", "a:key:b")
    assert code == UsageError.exit_code
    assert "a:key:b" in one_line(err)


@pytest.mark.parametrize("group", [(), ("keys",), ("guard",), ("gate",), ("lineage",)])
def test_help_cuts_no_summary_on_80_columns(desk, run, monkeypatch, group):
    monkeypatch.setenv("COLUMNS", "80")
    commands = run(*group, "--help")[1].partition("Commands:")[2]
    assert commands
    assert "..." not in commands


def test_help_names_the_exit_code_of_every_error(desk, run):
    told = run("--help")[1].partition("Exit codes:")[2]
    codes = {error.exit_code for error in (UsageError, IncompleteError, VerificationError, StalePlanError, HeldError)}
    named = {int(line.split()[0]) for line in told.splitlines() if line.strip()}
    assert codes | {0, FINDINGS, DEFECT, INTERRUPTED} == named


@pytest.mark.parametrize("left", [[], [".0123456789abcdef01234567.part"]])
def test_an_import_that_was_killed_before_its_first_version_is_done_by_the_same_command(desk, run, left):
    run("keys", "new")
    (desk / "store" / "manifests").mkdir(parents=True)
    for name in left:
        (desk / "store" / "manifests" / name).write_bytes(b"half")
    code, out, err = run("import", "jsonl:memories.jsonl", "store")
    assert (code, err) == (0, "")
    assert "version 1" in out
    assert run("verify", "store", "--quiet")[0] == 0


def test_an_attestation_is_verified_where_it_is_named(store, run, desk, set_up):
    set_up(AUDIT)
    code, out, _ = run("purge", "run", "store", "--apply")
    file = desk / "run" / ATTESTATION_FILE
    assert (code, f"memaudit verify store --attestation run/{ATTESTATION_FILE}" in out) == (0, True)
    code, out, _ = run("verify", "store", "--attestation", str(file), "--quiet")
    assert (code, "attestation: version 2 removed 2 memories, as the log says" in out) == (0, True)
    told = json.loads(run("verify", "store", "--attestation", str(file), "--json")[1])["attestation"]
    assert (told["version"], told["removed"]) == (2, 2)
    file.write_bytes(file.read_bytes().replace(b'"sig":"', b'"sig":"A', 1))
    code, _, err = run("verify", "store", "--attestation", str(file), "--quiet")
    assert code == 4
    one_line(err)
    code, _, err = run("verify", "store", "--attestation", "none", "--quiet")
    assert (code, "none: no such file" in err) == (2, True)


def test_a_store_that_is_a_file_is_a_mistake_and_nothing_to_continue(desk, run):
    run("keys", "new")
    code, _, err = run("import", "jsonl:memories.jsonl", "memories.jsonl")
    assert (code, "memories.jsonl is not a folder" in err) == (2, True)


def test_an_audit_without_a_purge_remembers_the_version_it_saw(store, run, desk):
    write_lines(desk / "more.jsonl", [{**memories()[0], "entry_id": "m99"}])
    assert run("import", "jsonl:more.jsonl", "store")[0] == 0
    assert run(*AUDIT, "--pin", "pin.json")[0] == 0
    assert read_pin(desk / "pin.json").version == 2
    (store / "manifests" / "2.json").unlink()
    code, _, err = run(*AUDIT, "--pin", "pin.json")
    assert (code, "rollback" in one_line(err)) == (VerificationError.exit_code, True)


def test_what_others_publish_while_an_audit_runs_does_not_fail_it(store, run, desk, monkeypatch):
    write_lines(desk / "more.jsonl", [{**memories()[0], "entry_id": "m99"}])
    examine = write_block_records

    def meanwhile(*args, **named):  # noqa: ANN002, ANN003
        words = sys.argv
        assert run("import", "jsonl:more.jsonl", "store")[0] == 0
        monkeypatch.setattr(sys, "argv", words)
        return examine(*args, **named)

    monkeypatch.setattr("memory_audit.jobs.run.run_audit.write_block_records", meanwhile)
    assert run(*AUDIT)[0] == 0
