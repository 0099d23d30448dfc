"""What a manifest may name, whoever signed it."""

from dataclasses import replace

import pytest

from memory_audit.errors import VerificationError
from memory_audit.provenance import dsse, strict_json
from memory_audit.provenance.keys import generate_keys
from memory_audit.snapshot.layout import bucket_of
from memory_audit.snapshot.manifest import PAYLOAD_TYPE, open_manifest, sign_manifest
from tests.unit.snapshot.stores import NOW, keyring, make_store, open_store


@pytest.fixture
def manifest(tmp_path):
    make_store(tmp_path / "s")
    return open_store(tmp_path / "s").manifest


def reopened(manifest):
    signed = sign_manifest(manifest, keyring())
    return open_manifest(signed, keyring().policy, version=1, now_ms=NOW, check_expiry=True, where="manifests/1.json")


def with_data(manifest, bucket, data):
    buckets = {**manifest.buckets, bucket: replace(manifest.buckets[bucket], data=data)}
    entries = sum(ref.rows for files in buckets.values() for ref in files.data)
    return replace(manifest, buckets=buckets, entries=entries)


def test_what_is_signed_is_what_is_read(manifest):
    assert reopened(manifest) == manifest


@pytest.mark.parametrize("rows", [4, 0])
def test_a_data_file_named_twice_is_refused(manifest, rows):
    bucket = bucket_of("acme")
    ref = manifest.buckets[bucket].data[0]
    forged = with_data(manifest, bucket, (ref, replace(ref, rows=rows)))
    problem = f"manifests/1.json: bucket {bucket}: data file {ref.sha256} appears twice"
    with pytest.raises(VerificationError, match=f"^{problem}$") as caught:
        reopened(forged)
    assert caught.value.exit_code == 4


def test_two_buckets_may_name_files_of_one_digest(manifest):
    ref = manifest.buckets[bucket_of("acme")].data[0]
    other = bucket_of("globex")
    shared = with_data(manifest, other, (ref, *manifest.buckets[other].data))
    assert reopened(shared) == shared


def test_what_a_stranger_signed_is_not_parsed():
    stranger = generate_keys("stranger")
    data = dsse.seal(PAYLOAD_TYPE, b"[" * 100_000, stranger.keys["log"])
    with pytest.raises(VerificationError, match="has no role log or auditor"):
        open_manifest(data, keyring().policy, version=1, now_ms=NOW, check_expiry=True, where="m")


def test_an_unsigned_manifest_is_not_parsed():
    data = strict_json.encode({"payload": "W10=", "payloadType": PAYLOAD_TYPE, "signatures": []})
    with pytest.raises(VerificationError, match="signed by 0 log or auditor keys, expected 1"):
        open_manifest(data, keyring().policy, version=1, now_ms=NOW, check_expiry=True, where="m")


def test_a_manifest_of_a_version_that_does_not_exist_yet_is_refused_whoever_signed_it(manifest):
    payload = manifest.payload().replace(b"memaudit manifest v3", b"memaudit manifest v9")
    data = dsse.seal(PAYLOAD_TYPE, payload, keyring().keys["log"])
    with pytest.raises(VerificationError, match="not a memaudit manifest v1, v2 or v3"):
        open_manifest(data, keyring().policy, version=1, now_ms=NOW, check_expiry=True, where="m")
