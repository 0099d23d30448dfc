"""The attestation: verifiable alone, and against the snapshot it is about."""

import hashlib
import json
from base64 import b64decode
from dataclasses import replace

import pytest

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance.keys import generate_keys
from memory_audit.snapshot.attest import attest, verify_attestation
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.publishing.purify import purify
from memory_audit.snapshot.publishing.vacuum import vacuum
from tests.unit.snapshot.stores import NOW, entry, keyring, make_store, open_store, remove


def signed(purified, **changes):  # noqa: ANN003
    options = {
        "run_id": "run-1", "now_ms": NOW, "parameters": {"alpha": "0.6"}, "models": {"nli": "fake"},
        "score_tables": {"scores.parquet": "ab" * 32},
    }  # fmt: skip
    return attest(purified, keyring(), **(options | changes))


def attested(path, **changes):  # noqa: ANN003
    make_store(path)
    purified = remove(path, {"acme": {"e1": "harm"}, "globex": {"e0": "harm"}})
    return purified, signed(purified, **changes)


def test_an_attestation_verifies_and_says_what_was_done(tmp_path):
    purified, data = attested(tmp_path / "s")
    result = verify_attestation(data, keyring().policy, "a", snapshot=open_store(tmp_path / "s"))
    assert result.removed == purified.removed
    assert (result.digest, result.audited_digest) == (purified.digest, purified.audited_digest)
    assert dict(result.parameters) == {"alpha": "0.6"}
    assert dict(result.score_tables) == {"scores.parquet": "ab" * 32}


def test_it_is_an_in_toto_statement_that_others_read(tmp_path):
    purified, data = attested(tmp_path / "s")
    envelope = json.loads(data)
    statement = json.loads(b64decode(envelope["payload"]))
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"][0]["digest"] == {"sha256": purified.digest}
    assert statement["predicate"]["resolvedDependencies"][0]["digest"] == {"sha256": purified.audited_digest}


def test_any_changed_byte_is_refused(tmp_path):
    _, data = attested(tmp_path / "s")
    for position in range(0, len(data), 7):
        bad = data[:position] + bytes([data[position] ^ 2]) + data[position + 1 :]
        with pytest.raises(VerificationError):
            verify_attestation(bad, keyring().policy, "a")


def test_another_auditor_is_refused(tmp_path):
    _, data = attested(tmp_path / "s")
    with pytest.raises(VerificationError, match="has no role auditor"):
        verify_attestation(data, generate_keys().policy, "a")


def test_it_must_be_about_the_snapshot(tmp_path):
    _, data = attested(tmp_path / "s")
    with pytest.raises(VerificationError, match="about snapshot"):
        verify_attestation(data, keyring().policy, "a", snapshot=open_store(tmp_path / "s", version=1))


def test_it_must_name_exactly_the_removed_entries(tmp_path):
    purified, _ = attested(tmp_path / "s")
    data = signed(replace(purified, removed=()))
    with pytest.raises(VerificationError, match="entry 'e1' of tenant 'acme' is removed in one of two"):
        verify_attestation(data, keyring().policy, "a", snapshot=open_store(tmp_path / "s"))


def test_removals_cannot_be_hidden_behind_another_run(tmp_path):
    purified, _ = attested(tmp_path / "s")
    data = signed(replace(purified, removed=()), run_id="run-2")
    with pytest.raises(VerificationError, match="about run 'run-2', expected 'run-1'"):
        verify_attestation(data, keyring().policy, "a", snapshot=open_store(tmp_path / "s"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"models": {"nli": "better"}}, "model 'nli' is 'better', expected 'fake'"),
        ({"models": {}}, "model 'nli' is None, expected 'fake'"),
        ({"models": {"nli": "fake", "embedder": "e"}}, "model 'embedder' is 'e', expected None"),
        ({"parameters": {"alpha": "0.5"}}, "parameter 'alpha' is '0.5', expected '0.6'"),
        ({"parameters": {"alpha": "0.6", "k": "9"}}, "parameter 'k' is '9', expected None"),
    ],
)
def test_it_must_state_the_models_and_parameters_of_the_manifest(tmp_path, changes, problem):
    _, data = attested(tmp_path / "s", **changes)
    with pytest.raises(VerificationError, match=problem):
        verify_attestation(data, keyring().policy, "a", snapshot=open_store(tmp_path / "s"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"version": 7}, "about version 7, expected 2"),
        ({"store_id": "cd" * 16}, f"about store '{'cd' * 16}', expected '{'ab' * 16}'"),
    ],
)
def test_it_must_name_the_snapshot_as_its_manifest_does(tmp_path, changes, problem):
    purified, _ = attested(tmp_path / "s")
    data = signed(replace(purified, **changes))
    with pytest.raises(VerificationError, match=problem):
        verify_attestation(data, keyring().policy, "a", snapshot=open_store(tmp_path / "s"))


def test_it_must_name_the_version_before_as_the_audited_one(tmp_path):
    make_store(tmp_path / "s")
    append_entries(tmp_path / "s", [entry("acme", "e4")], keyring(), now_ms=NOW)
    purified = remove(tmp_path / "s", {"acme": {"e1": "harm"}})
    data = signed(replace(purified, audited_version=1))
    with pytest.raises(VerificationError, match="about audited version 1, expected 2"):
        verify_attestation(data, keyring().policy, "a", snapshot=open_store(tmp_path / "s"))


@pytest.mark.parametrize("operation", ["append", "vacuum"])
def test_only_a_purification_can_be_attested_to_have_removed_nothing(tmp_path, operation):
    purified, _ = attested(tmp_path / "s")
    if operation == "append":
        append_entries(tmp_path / "s", [entry("acme", "e4")], keyring(), now_ms=NOW + 3)
    else:
        vacuum(tmp_path / "s", keyring(), now_ms=NOW + 3, retention_ms=0, dry_run=False)
    after = open_store(tmp_path / "s")
    claimed = replace(
        purified, version=3, digest=after.digest, audited_version=2, audited_digest=purified.digest, removed=()
    )
    with pytest.raises(VerificationError, match=f"about a version made by '{operation}', expected 'purify'"):
        verify_attestation(signed(claimed), keyring().policy, "a", snapshot=after)


@pytest.mark.parametrize("left_out", ["acme", "globex"])
def test_a_tenant_whose_removals_it_leaves_out_is_noticed(tmp_path, left_out):
    purified, _ = attested(tmp_path / "s")
    part = replace(purified, removed=tuple(item for item in purified.removed if item.tenant != left_out))
    data = signed(part)
    with pytest.raises(VerificationError, match=f"of tenant '{left_out}' is removed in one of two"):
        verify_attestation(data, keyring().policy, "a", snapshot=open_store(tmp_path / "s"))


def test_a_dry_run_is_not_attested(tmp_path):
    make_store(tmp_path / "s")
    plan = purify(
        tmp_path / "s", open_store(tmp_path / "s"), {"acme": {"e1": "harm"}}, keyring(), run_id="r", now_ms=NOW,
        config={}, models={}, dry_run=True,
    )  # fmt: skip
    with pytest.raises(UsageError, match="dry run"):
        attest(plan, keyring(), run_id="r", now_ms=NOW, parameters={}, models={}, score_tables={})


def test_a_long_text_is_stated_as_its_digest_in_manifest_and_attestation(tmp_path):
    make_store(tmp_path / "s")
    agent = "ü" * 40_000
    run = {"run_id": "run-1", "now_ms": NOW, "models": {"nli": "m" * 65_536}}
    purified = purify(
        tmp_path / "s", open_store(tmp_path / "s"), {"acme": {"e1": "harm"}}, keyring(), config={"agent": agent}, **run
    )
    snapshot = open_store(tmp_path / "s")
    found = verify_attestation(
        signed(purified, parameters={"agent": agent}, models=run["models"]), keyring().policy, "a", snapshot=snapshot
    )
    stated = {"agent": f"sha256:{hashlib.sha256(agent.encode()).hexdigest()}"}
    assert dict(found.parameters) == dict(snapshot.manifest.config) == stated
    assert dict(found.models) == dict(snapshot.manifest.models) == run["models"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"parameters": {str(number): "" for number in range(257)}}, "'parameters' must be at most 256 texts"),
        ({"score_tables": {"t" * 257: "ab" * 32}}, "'name' is 't+, expected text of 1 to 256 bytes"),
    ],
)
def test_what_no_verifier_would_accept_is_not_signed(tmp_path, changes, problem):
    with pytest.raises(UsageError, match=f"accept the attestation of version 2: .*{problem}.*; shorten or leave out"):
        attested(tmp_path / "s", **changes)
