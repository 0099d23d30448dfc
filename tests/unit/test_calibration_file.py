"""The signed calibration: read back as it was, by the word of nobody but the auditor."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.calibration_file import CalibrationFile, Incident, Setting, parse_calibration, sign_calibration
from memory_audit.errors import VerificationError
from memory_audit.provenance import base64_strict, dsse, strict_json
from memory_audit.provenance.keys import generate_keys
from memory_audit.provenance.trust_policy import Revocation, sign_policy

KEYS = generate_keys("test")
AUDITOR = KEYS.signers("auditor")
FILE = CalibrationFile(
    backbone="model@1", setting=Setting(agent="ab" * 32, harm="regex", retrieval="dense", k=3, search="v1"),
    judged_by="probe_pattern", events=9, incidents=(Incident(tenant="acme", event_id="e1", nats=1.25),), made_ms=1,
)  # fmt: skip


def payload_of(data: bytes) -> dict:
    return json.loads(base64_strict.decode(json.loads(data)["payload"], "f"))


@given(st.lists(st.floats(0, 1e4), max_size=8), st.integers(0, 40))
def test_a_calibration_is_read_back_and_evidence_is_rounded_up_once(nats, k):
    incidents = tuple(Incident(tenant="acme", event_id=f"e{n}", nats=value) for n, value in enumerate(nats))
    written = replace(FILE, incidents=incidents, setting=replace(FILE.setting, k=k))
    read = parse_calibration(sign_calibration(written, AUDITOR), KEYS.policy, "f")
    assert replace(read, digest="", incidents=incidents) == written
    for was, now in zip(incidents, read.incidents, strict=True):
        assert was.nats - 1e-8 <= now.nats <= was.nats + 1.01e-6
    assert sign_calibration(read, AUDITOR) == sign_calibration(written, AUDITOR)


def test_one_changed_byte_is_refused():
    data = sign_calibration(FILE, AUDITOR)
    changed = strict_json.encode({**json.loads(data), "payload": base64_strict.encode(
        strict_json.encode({**payload_of(data), "events": 10})
    )})  # fmt: skip
    with pytest.raises(VerificationError, match="does not verify"):
        parse_calibration(changed, KEYS.policy, "f")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"format": "memaudit calibration v2"}, "not a memaudit calibration v1"),
        ({"judged_by": "a friend"}, "expected probe_pattern or harm scorer"),
        ({"more": 1}, "unknown member 'more'"),
        ({"incidents": [{"tenant": "acme", "event_id": "e1", "micronats": -1}]}, "micronats"),
        ({"incidents": [{"tenant": "acme", "event_id": "e1", "micronats": 1}] * 2}, "an event is named twice"),
    ],
)
def test_what_the_auditor_would_not_write_is_refused(changes, told):
    kind = json.loads(sign_calibration(FILE, AUDITOR))["payloadType"]
    payload = strict_json.encode({**payload_of(sign_calibration(FILE, AUDITOR)), **changes})
    with pytest.raises(VerificationError, match=told):
        parse_calibration(dsse.seal(kind, payload, AUDITOR), KEYS.policy, "f")


def test_a_revoked_auditor_counts_no_more():
    (key,) = AUDITOR
    revoked = {key.public().key_id: Revocation(logs={}, manifests={"ab" * 16: 5})}
    policy = sign_policy(version=1, roles=KEYS.policy.roles, revoked=revoked, root_keys=list(KEYS.keys["root"]))
    with pytest.raises(VerificationError, match="has no role auditor"):
        parse_calibration(sign_calibration(FILE, AUDITOR), policy, "f")
