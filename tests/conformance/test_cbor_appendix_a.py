"""RFC 8949 Appendix A under our restrictions: what the subset holds round-trips, and the rest is refused.

The published JSON (made for RFC 7049) says for each example whether it round-trips. Ours must decode exactly those
examples that are deterministic and made of whole numbers of 64 bits, strings, arrays, text-keyed maps, true, false
and null.
"""

import json

import pytest

from memory_audit.errors import VerificationError
from memory_audit.provenance import cbor
from tests.conformance import cbor_reader
from tests.conformance.vectors import vectors

pytestmark = pytest.mark.tool("vectors")

EXAMPLES = json.loads((vectors("cbor-appendix-a") / "appendix_a.json").read_text())


TAG, SIMPLE = 6, 7
ALLOWED_SIMPLE = (0xF4, 0xF5, 0xF6)
NUMBERED_KEYS = "a201020304"
"""The one deterministic example made of nothing forbidden but map keys that are not text."""


def in_subset(example):
    """Judge by the first byte (no example hides a tag or a float deeper) and the example's own round-trip mark."""
    head = int(example["hex"][:2], 16)
    forbidden = head >> 5 == TAG or (head >> 5 == SIMPLE and head not in ALLOWED_SIMPLE)
    return example["roundtrip"] and not forbidden and example["hex"] != NUMBERED_KEYS


def test_all_vectors_are_there():
    assert len(EXAMPLES) == 82


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["hex"][:40])
def test_example(example):
    data = bytes.fromhex(example["hex"])
    if in_subset(example):
        value = cbor_reader.decode(data, max_bytes=1_000, where="example")
        assert cbor.encode(value) == data
        if "decoded" in example:
            assert value == example["decoded"]
    else:
        with pytest.raises(VerificationError):
            cbor_reader.decode(data, max_bytes=1_000, where="example")


def test_how_many_examples_the_subset_holds():
    assert sum(in_subset(example) for example in EXAMPLES) == 36
