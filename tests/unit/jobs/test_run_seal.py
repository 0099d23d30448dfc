"""Seals and codes: what of a run folder they bind, and to whom."""

# ruff: noqa: ANN002, ANN003, F811 - a function that stands in for another, and a fixture of another file

from __future__ import annotations

import json
import shutil
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError, VerificationError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.run.block_records import write_block_records
from memory_audit.jobs.run.purge.attestation import ATTESTATION_FILE
from memory_audit.jobs.run.purge.sealed_run import open_sealed
from memory_audit.jobs.run.reuse import EarlierRun
from memory_audit.jobs.run.run_audit import audit_all
from memory_audit.jobs.run.run_files import ROLES
from memory_audit.jobs.run.run_folder import RunFolder
from memory_audit.jobs.run.run_seal import SEAL_FILE, Codes, Sealer, read_seal
from memory_audit.models.fakes import FakeGenerator
from memory_audit.provenance import dsse
from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.keys import Keyring, generate_keys, load_policy
from memory_audit.provenance.trust_policy import Role, sign_policy
from memory_audit.request import RUN_FORMAT
from memory_audit.snapshot.attest import verify_attestation
from tests.audit_world import CONFIG, FAKES, NOW_MS, harmful_events, keyring, make_snapshot, request_of
from tests.unit.jobs.test_changed_runs import frame
from tests.unit.jobs.test_cli import AUDIT
from tests.unit.jobs.test_cli_purge import PURGE, desk  # noqa: F401 - a fixture

EVERY = {"run.json", "result.json", "report.html", "hazards.json"}


def test_what_is_written_into_the_folder_after_the_look_is_not_purged(desk, run, monkeypatch):
    def opened(*args, **named):
        sealed = open_sealed(*args, **named)
        frame(desk / "run")
        return sealed

    assert run(*AUDIT)[0] == 0
    found = (desk / "run" / "result.json").read_bytes()
    monkeypatch.setattr("memory_audit.jobs.cli.purge.open_sealed", opened)
    code, out, _ = run(*PURGE)
    assert (code, "removed acme/m3" in out, "m5" in out) == (0, True, False)
    data, policy = (desk / "run" / ATTESTATION_FILE).read_bytes(), load_policy(desk / "memaudit-keys" / "policy.json")
    (desk / "run" / "result.json").write_bytes(found)
    stated = verify_attestation(data, policy, ATTESTATION_FILE).score_tables
    seal = read_seal((desk / "run" / SEAL_FILE).read_bytes(), policy, SEAL_FILE)
    assert stated == {"result.json": seal.files["result.json"], SEAL_FILE: seal.digest}


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    """A sealed run, and beside it one of other events of the same store."""
    folder = tmp_path_factory.mktemp("sealed")
    snapshot = make_snapshot(folder / "store")
    for name, events in (("run", harmful_events()), ("other", harmful_events()[:1])):
        sealer = Sealer(keyring())
        with closing(LocalExecutor(FAKES, FakeGenerator())) as executor:
            run = folder / name
            result, _ = audit_all(
                request_of(snapshot, events, digest=name), executor, run, now_ms=NOW_MS, sealer=sealer
            )
            write_block_records(snapshot, result, CONFIG, executor, run, sealer)
        sealer.seal(run, result.store, result.snapshot_version)
        assert open_sealed(run, keyring().policy).result.run_id == result.run_id
    return folder / "run"


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def refused(folder, name, data):
    """Tell whether a run is refused while a file of it holds something else."""
    before = (folder / name).read_bytes()
    (folder / name).write_bytes(data)
    try:
        with pytest.raises(VerificationError) as failure:
            open_sealed(folder, keyring().policy)
    finally:
        (folder / name).write_bytes(before)
    return "\n" not in str(failure.value)


@given(st.data())
def test_a_run_with_any_byte_of_any_file_changed_is_refused(sealed, data):
    name = data.draw(st.sampled_from(files_of(sealed)))
    whole = bytearray((sealed / name).read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    assert refused(sealed, name, bytes(whole))


@given(st.data())
def test_a_run_with_any_file_cut_or_lengthened_is_refused(sealed, data):
    name = data.draw(st.sampled_from(files_of(sealed)))
    whole = (sealed / name).read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    for changed in (whole[:cut], whole + data.draw(st.binary(min_size=1, max_size=4))):
        assert refused(sealed, name, changed)


@pytest.mark.parametrize("name", sorted({*EVERY, SEAL_FILE}))
def test_a_file_of_another_run_in_its_place_is_refused(sealed, name):
    assert {*EVERY, SEAL_FILE} < set(files_of(sealed))
    assert refused(sealed, name, (sealed.parent / "other" / name).read_bytes())


@pytest.mark.parametrize("name", ["run.json", "result.json", "hazards.json"])
def test_a_file_that_purge_reads_must_be_there(sealed, name, tmp_path):
    run = shutil.copytree(sealed, tmp_path / "run")
    (run / name).unlink()
    with pytest.raises(VerificationError, match=rf"{name}: missing"):
        open_sealed(run, keyring().policy)


def test_shards_and_report_may_be_deleted_and_strange_files_are_not_read(sealed, tmp_path):
    run = shutil.copytree(sealed, tmp_path / "run")
    shutil.rmtree(run / "groups")
    (run / "report.html").unlink()
    (run / "notes.txt").write_text("mine")
    assert open_sealed(run, keyring().policy).result == open_sealed(sealed, keyring().policy).result


def test_a_seal_needs_as_many_auditors_as_the_policy_asks_for(tmp_path):
    first, second = generate_keys("test"), PrivateKey.generate("test/auditor-b")
    auditor = first.policy.roles["auditor"]
    public = second.public()
    two = Role(threshold=2, keys={**auditor.keys, public.key_id: public})
    policy = sign_policy(
        version=1, roles={**first.policy.roles, "auditor": two}, revoked={}, root_keys=list(first.keys["root"])
    )
    keys = Keyring(policy=policy, keys={**first.keys, "auditor": (*first.keys["auditor"], second)})
    data = Sealer(keys).seal(tmp_path, "ab" * 16, 1)
    assert read_seal(data, policy, SEAL_FILE).version == 1
    with pytest.raises(UsageError, match="holds 1 usable auditor keys, the policy asks for 2"):
        Sealer(Keyring(policy=policy, keys=first.keys))
    payload = dsse.parse_envelope(data, "application/vnd.memaudit.run+json", max_bytes=10_000, where="f").payload
    alone = dsse.seal("application/vnd.memaudit.run+json", payload, first.keys["auditor"])
    with pytest.raises(VerificationError, match="signed by 1 auditor keys, expected 2"):
        read_seal(alone, policy, SEAL_FILE)


@pytest.mark.parametrize("name", ["../result.json", "/etc/passwd", "a/b/c.json", "replays/../x.json", ".json"])
def test_a_seal_names_files_of_the_run_alone(tmp_path, name):
    sealer = Sealer(keyring())
    sealer.note(name, b"")
    with pytest.raises(VerificationError, match="names what is no file of a run"):
        read_seal(sealer.seal(tmp_path, "ab" * 16, 1), keyring().policy, SEAL_FILE)


def test_answers_are_not_taken_over_under_the_name_of_another_model(tmp_path):
    sealer, identity = Sealer(keyring()), {"format": RUN_FORMAT}
    run = RunFolder(tmp_path / "run", identity, sealer=sealer)
    run.record_models({"nli": "small"})
    run.add_weights({"p": 0.5})
    earlier = EarlierRun(run.path, Sealer(keyring()))
    assert earlier.weights({"p"}, "small") == {"p": 0.5}
    (run.path / "models.json").write_text(json.dumps({"nli": "large"}), encoding="utf-8")
    earlier = EarlierRun(run.path, Sealer(keyring()))
    assert not earlier.weights({"p"}, "large")


@given(st.binary(max_size=8), st.text(max_size=8), st.sampled_from(tuple(ROLES)), st.dictionaries(st.text(), st.text()))
def test_a_code_is_of_key_run_kind_model_and_bytes(data, model, kind, identity):
    codes = {
        Sealer(keys).codes(of).of(what, who, held)
        for keys in (keyring(), generate_keys("other"), None)
        for of in (identity, {**identity, "": "other"})
        for what in (kind, kind + "x")
        for who in (model, model + "x")
        for held in (data, data + b"x")
    }
    assert len(codes) == 3 * 2**4


def test_a_marker_that_no_encoding_can_hold_has_codes_too(tmp_path):
    assert Codes(b"s", {"events": "\ud800"}).of("replays", "\ud800", b"") != Codes(b"s", {}).of("replays", "", b"")


def test_a_run_without_keys_is_one_of_codes_that_anybody_can_make(tmp_path):
    RunFolder(tmp_path / "run", {"a": "b"}).add_weights({"p": 0.5})
    (shard,) = (tmp_path / "run" / "entailment").iterdir()
    assert shard.stem == Codes(b"", {"a": "b"}).of("entailment", "", shard.read_bytes())
    with pytest.raises(VerificationError):
        RunFolder(tmp_path / "run", {"a": "b"}, sealer=Sealer(keyring()))
