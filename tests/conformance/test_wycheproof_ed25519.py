"""Project Wycheproof: 151 Ed25519 signatures, 63 of them forged, malleable or malformed."""

import json

import pytest

from memory_audit.provenance.ed25519 import PublicKey
from tests.conformance.vectors import vectors

pytestmark = pytest.mark.tool("vectors")

FILE = vectors("wycheproof-ed25519") / "testvectors_v1" / "ed25519_test.json"
CASES = [
    (group["publicKey"]["pk"], case) for group in json.loads(FILE.read_text())["testGroups"] for case in group["tests"]
]


def test_all_vectors_are_there():
    assert len(CASES) == 151


@pytest.mark.parametrize(("raw", "case"), CASES, ids=lambda value: value["tcId"] if isinstance(value, dict) else "")
def test_signature(raw, case):
    key = PublicKey("wycheproof", bytes.fromhex(raw))
    verifies = key.verifies(bytes.fromhex(case["sig"]), bytes.fromhex(case["msg"]))
    assert verifies is (case["result"] == "valid")
