"""The attestation: verifiable alone, and against the snapshot it is about."""

import json
from base64 import b64decode
from dataclasses import replace

import pytest

from audit.errors import UsageError, VerificationError
from audit.provenance.keys import generate_keys
from audit.snapshot.attest import attest, verify_attestation
from audit.snapshot.purify import purify
from tests.unit.snapshot.stores import NOW, keyring, make_store, open_store, remove


def attested(path, **changes):  # noqa: ANN003
    make_store(path)
    purified = remove(path, {"acme": {"e1": "harm"}, "globex": {"e0": "harm"}})
    options = {
        "run_id": "run-1", "now_ms": NOW, "parameters": {"alpha": "0.6"}, "models": {"nli": "fake"},
        "score_tables": {"scores.parquet": "ab" * 32},
    }  # fmt: skip
    return purified, attest(purified, keyring(), **(options | changes))


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
    _, data = attested(tmp_path / "s", run_id="another run")
    with pytest.raises(VerificationError, match="removed in one of two"):
        verify_attestation(data, keyring().policy, "a", snapshot=open_store(tmp_path / "s"))


@pytest.mark.parametrize("left_out", ["acme", "globex"])
def test_a_tenant_whose_removals_it_leaves_out_is_noticed(tmp_path, left_out):
    purified, _ = attested(tmp_path / "s")
    part = replace(purified, removed=tuple(item for item in purified.removed if item.tenant != left_out))
    data = attest(part, keyring(), run_id="run-1", now_ms=NOW, parameters={}, models={}, score_tables={})
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
