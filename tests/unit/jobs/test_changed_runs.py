"""A run folder that others can write: what they change there gets into no purge, no later start and no other run."""

# ruff: noqa: ANN002, F811 - functions that stand in for others, and fixtures of another file

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memory_audit.errors import IncompleteError, StalePlanError, UsageError, VerificationError
from memory_audit.jobs.run.block_records import write_block_records
from memory_audit.jobs.run.purge.attestation import ATTESTATION_FILE
from memory_audit.provenance import strict_json
from tests.audit_world import group_of
from tests.unit.jobs.test_cli import AUDIT, bytes_of, one_line
from tests.unit.jobs.test_cli_purge import PURGE, VERIFY, desk, killed, stop  # noqa: F401 - fixtures
from tests.whole import read_whole

SEAL_FILE = "seal.dsse.json"


def exchanged(value, one, other):
    """Return a JSON value in which one memory stands wherever the other stood."""
    text = json.dumps(value).replace(f'"{one}"', '"?"').replace(f'"{other}"', f'"{one}"').replace('"?"', f'"{other}"')
    return json.loads(text)


def frame(folder):
    """Let the innocent m5 be what m3 was found to be, in finding and hazards alike."""
    result, blocks = folder / "result.json", folder / "hazards.json"
    result.write_text(json.dumps(exchanged(json.loads(result.read_text()), "m3", "m5")), encoding="utf-8")
    blocks.write_bytes(strict_json.encode(exchanged(json.loads(blocks.read_text()), "m3", "m5")))


def rewrite(shard, column, change):
    """Change a column of a shard, which keeps its name."""
    table = pq.read_table(shard)
    values = pa.array(map(change, table.column(column).to_pylist()), table.schema.field(column).type)
    pq.write_table(table.set_column(table.schema.get_field_index(column), table.schema.field(column), values), shard)


def removed_in(run):
    (tenant,) = json.loads((run / "result.json").read_text())["tenants"]
    return set(tenant["removal"]["attributed"] | tenant["removal"]["derived"])


# What purge takes


@pytest.mark.parametrize("words", [PURGE, PURGE[:-1]])
def test_a_finding_that_frames_an_innocent_memory_is_not_purged(desk, run, words, set_up):
    set_up(AUDIT)
    frame(desk / "run")
    assert removed_in(desk / "run") == {"m5", "m7"}
    before = bytes_of(desk)
    code, _, err = run(*words)
    assert (code, "changed since the audit sealed it" in one_line(err)) == (VerificationError.exit_code, True)
    assert bytes_of(desk) == before


def test_the_same_audit_writes_anew_what_was_changed(desk, run, set_up):
    set_up(AUDIT)
    sealed = bytes_of(desk / "run")
    frame(desk / "run")
    assert run(*AUDIT)[0] == 0
    assert removed_in(desk / "run") == {"m3", "m7"}
    assert bytes_of(desk / "run")["hazards.json"] == sealed["hazards.json"]
    assert run(*PURGE)[0] == 0
    assert run(*VERIFY)[0] == 0


def test_an_audit_that_applies_publishes_no_finding_that_was_changed_since_an_earlier_start(desk, run, stop):
    stop(*AUDIT, "--apply", at="memory_audit.jobs.run.purge.purge_run.attest_run")
    frame(desk / "run")
    code, _, err = run(*AUDIT, "--apply")
    assert (code, "changed since the audit sealed it" in one_line(err)) == (VerificationError.exit_code, True)
    assert not (desk / "run" / ATTESTATION_FILE).exists()


def test_what_is_written_into_the_folder_before_the_seal_is_not_sealed(desk, run, monkeypatch):
    def meanwhile(*args):
        write_block_records(*args)
        frame(desk / "run")

    monkeypatch.setattr("memory_audit.jobs.run.run_audit.write_block_records", meanwhile)
    assert run(*AUDIT)[0] == 0
    assert run(*PURGE)[0] == VerificationError.exit_code
    shutil.rmtree(desk / "run")
    assert run(*AUDIT, "--apply")[0] == VerificationError.exit_code


def test_a_seal_by_another_auditor_is_refused(desk, run):
    assert run("keys", "new", "other")[0] == 0
    assert run(*AUDIT, "--trust", "memaudit-keys/policy.json", "--keys", "other")[0] == 0
    code, _, err = run(*PURGE)
    assert code == VerificationError.exit_code
    assert "run/seal.dsse.json: signed by key " in one_line(err)
    assert err.endswith(", which has no role auditor: audit again, with keys of this policy, and another --out\n")


def test_a_seal_by_a_key_that_was_revoked_since_is_refused(desk, run, set_up):
    set_up(AUDIT)
    assert run("keys", "rotate", "auditor", "store", "--apply")[0] == 0
    code, _, err = run(*PURGE)
    assert (code, "audit again, with keys of this policy" in one_line(err)) == (VerificationError.exit_code, True)


def test_a_run_of_another_store_is_refused(desk, run, set_up):
    set_up(AUDIT)
    assert run("import", "jsonl:memories.jsonl", "store-2")[0] == 0
    code, _, err = run("purge", "run", "store-2", "--apply")
    assert (code, "run audited another store than store-2" in one_line(err)) == (UsageError.exit_code, True)


def test_another_statement_of_the_auditor_is_no_seal(desk, run, set_up):
    set_up(AUDIT)
    assert run(*PURGE)[0] == 0
    shutil.copy(desk / "run" / ATTESTATION_FILE, desk / "run" / SEAL_FILE)
    code, _, err = run(*PURGE)
    assert (code, "payload type 'application/vnd.in-toto+json'" in one_line(err)) == (VerificationError.exit_code, True)


def test_a_file_in_the_place_of_its_attestation_keeps_no_purge_from_being_finished(desk, run, stop, set_up):
    set_up(AUDIT)
    stop(*PURGE, at="memory_audit.jobs.store.store_session.StoreSession.remember_published")
    (desk / "run" / ATTESTATION_FILE).write_text("{}")
    assert run("verify", "store")[0] == 0  # seen, so that nothing but the attestation is missing
    assert run(*PURGE)[0] == 0
    assert run(*VERIFY)[0] == 0
    assert run(*PURGE)[0] == StalePlanError.exit_code


# Runs that were not sealed


def test_an_interrupted_run_says_how_it_is_finished_and_then_is_purged(desk, run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("memory_audit.jobs.cli.audit.Sealer.seal", killed)
        run(*AUDIT)
    before = bytes_of(desk / "store")
    code, _, err = run(*PURGE)
    assert (code, "run: not sealed (no seal.dsse.json)" in one_line(err)) == (IncompleteError.exit_code, True)
    assert err.endswith("start the same audit again, memaudit audit … --out run, and then purge\n")
    assert bytes_of(desk / "store") == before
    assert run(*AUDIT)[0] == 0
    assert run(*PURGE)[0] == 0


def test_a_seal_that_was_taken_away_is_made_again(desk, run, set_up):
    set_up(AUDIT)
    seal = (desk / "run" / SEAL_FILE).read_bytes()
    (desk / "run" / SEAL_FILE).unlink()
    assert run(*PURGE)[0] == IncompleteError.exit_code
    assert run(*AUDIT)[0] == 0
    assert len((desk / "run" / SEAL_FILE).read_bytes()) == len(seal)
    assert run(*PURGE)[0] == 0


def test_a_run_that_is_written_anew_is_open_until_it_ends(desk, run, stop, set_up):
    set_up(AUDIT)
    shutil.rmtree(group_of(desk / "run") / "replays")
    (group_of(desk / "run") / "finished.json").unlink()
    stop(*AUDIT, at="memory_audit.jobs.run.run_audit.write_block_records")
    code, _, err = run(*PURGE)
    assert (code, "not sealed" in one_line(err)) == (IncompleteError.exit_code, True)


def test_an_audit_without_the_auditors_key_says_that_no_purge_will_take_it(desk, run):
    shutil.move(desk / "memaudit-keys", desk / "away")
    audit = [word for word in AUDIT if word != "--quiet"]
    code, out, _ = run(*audit, "--trust", "away/policy.json")
    assert code == 0
    assert "memaudit-keys has no auditor's key: this run will not be sealed" in " ".join(out.split())
    assert "nothing was removed; not sealed, as memaudit-keys has no auditor's key" in " ".join(out.split())
    assert "memaudit purge run store --apply" not in out
    assert not (desk / "run" / SEAL_FILE).exists()
    assert run(*audit, "--trust", "away/policy.json")[0] == 0
    shutil.move(desk / "away", desk / "memaudit-keys")
    assert run(*PURGE)[0] == IncompleteError.exit_code
    code, _, err = run(*AUDIT)  # what anybody may have answered is not sealed afterwards
    assert (code, "not written by this run with these keys; choose another --out" in one_line(err)) == (4, True)


def test_an_unsealed_run_of_a_store_that_has_changed_is_stale(desk, run, set_up):
    set_up(AUDIT)
    (desk / "run" / SEAL_FILE).unlink()
    assert run("import", "jsonl:more.jsonl", "store")[0] == 0
    code, _, err = run(*PURGE)
    assert (code, "run is not sealed, and store is at version 2 since: audit again" in one_line(err)) == (
        StalePlanError.exit_code, True,
    )  # fmt: skip


# What a run that is continued, or reuses another one, takes


def test_answers_that_were_changed_while_an_audit_was_interrupted_end_it(desk, run, stop):
    stop(*AUDIT, at="memory_audit.jobs.run.run_audit.write_block_records")
    for shard in (group_of(desk / "run") / "replays").iterdir():
        rewrite(shard, "harm", lambda harm: None if harm is None else 1.0 - harm)
    code, _, err = run(*AUDIT)
    assert code == VerificationError.exit_code
    assert "was changed, or not written by this run with these keys; delete it and resume, or" in one_line(err)
    shutil.rmtree(group_of(desk / "run") / "replays")
    assert run(*AUDIT)[0] == 0
    assert removed_in(desk / "run") == {"m3", "m7"}


@pytest.mark.parametrize("kind", ["replays", "entailment", "embedding"])
def test_answers_of_another_run_are_not_taken_for_those_of_this_one(desk, run, stop, kind):
    stop(*AUDIT, at="memory_audit.jobs.run.run_audit.write_block_records")
    other = ["other" if word == "run" else word for word in AUDIT]
    assert run(*other, "--k", "4")[0] == 0
    shard = next((group_of(desk / "other") / kind).iterdir())
    (group_of(desk / "run") / "finished.json").unlink()
    shutil.copy(shard, group_of(desk / "run") / kind)
    code, _, err = run(*AUDIT)
    assert (code, shard.name in one_line(err)) == (VerificationError.exit_code, True)


def test_a_model_that_did_not_answer_is_not_named_in_its_place(desk, run, stop):
    stop(*AUDIT, at="memory_audit.jobs.run.run_audit.write_block_records")
    models = group_of(desk / "run") / "models.json"
    written = json.loads(models.read_bytes())
    for changed in ({**written, "backbone": "a-better-one"}, {**written, "judge": "nobody"}, {}):
        models.write_text(json.dumps(changed), encoding="utf-8")
        code, _, err = run(*AUDIT)
        assert (code, "/models.json: was changed, or not written" in one_line(err)) == (4, True)


def test_hazards_that_were_changed_while_an_audit_was_interrupted_are_read_again(desk, run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("memory_audit.jobs.cli.audit.Sealer.seal", killed)
        run(*AUDIT)
    blocks = desk / "run" / "hazards.json"
    written = blocks.read_bytes()
    blocks.write_bytes(strict_json.encode(exchanged(json.loads(written), "m3", "m7")))
    assert run(*AUDIT)[0] == 0
    assert blocks.read_bytes() == written


@pytest.mark.parametrize("finished", [True, False])
def test_a_night_takes_over_nothing_that_was_changed_in_the_night_before(desk, run, stop, finished):
    if finished:
        assert run(*AUDIT)[0] == 0
    else:
        stop(*AUDIT, at="memory_audit.jobs.run.run_audit.write_block_records")
    shards = list((group_of(desk / "run") / "entailment").iterdir())
    for shard in shards:
        rewrite(shard, "contradiction", lambda weight: 1.0 - weight)
    tonight = ["tonight" if word == "run" else word for word in AUDIT if word != "--quiet"]
    code, out, _ = run(*tonight, "--reuse", "run")
    told = " ".join(out.split())
    assert code == 0
    assert ", 0 comparisons, " in told
    assert f"/entailment: {len(shards)} files not read: damaged, or not written with these keys" in told
    fresh = ["fresh" if word == "run" else word for word in AUDIT]
    assert run(*fresh)[0] == 0
    assert read_whole(desk / "tonight").tenants == read_whole(desk / "fresh").tenants
    assert run("purge", "tonight", "store", "--apply")[0] == 0
