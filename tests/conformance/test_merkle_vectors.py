"""transparency-dev/merkle: 98 inclusion and 98 consistency proofs, most of them forged."""

import json
from base64 import b64decode

import pytest

from memory_audit.errors import VerificationError
from memory_audit.provenance.tlog.merkle import verify_consistency, verify_inclusion
from tests.conformance.vectors import vectors

pytestmark = pytest.mark.tool("vectors")

TESTDATA = vectors("merkle-rfc6962") / "testdata"


def load(kind):
    return sorted((TESTDATA / kind).rglob("*.json"))


def proof_of(case):
    return [b64decode(item) for item in case["proof"] or []]


def check_inclusion(case):
    verify_inclusion(
        case["leafIdx"], case["treeSize"], b64decode(case["leafHash"] or ""), proof_of(case),
        b64decode(case["root"] or ""),
    )  # fmt: skip


def check_consistency(case):
    roots = b64decode(case["root1"] or ""), b64decode(case["root2"] or "")
    verify_consistency(case["size1"], case["size2"], proof_of(case), *roots)


def test_all_vectors_are_there():
    assert (len(load("inclusion")), len(load("consistency"))) == (98, 98)


@pytest.mark.parametrize("path", load("inclusion"), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_inclusion(path):
    case = json.loads(path.read_text())
    if case["wantErr"]:
        with pytest.raises(VerificationError):
            check_inclusion(case)
    else:
        check_inclusion(case)


@pytest.mark.parametrize("path", load("consistency"), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_consistency(path):
    case = json.loads(path.read_text())
    if case["wantErr"]:
        with pytest.raises(VerificationError):
            check_consistency(case)
    else:
        check_consistency(case)
