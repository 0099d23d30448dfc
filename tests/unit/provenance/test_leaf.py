"""Leaves: what is signed for an entry or a tombstone, and nothing else decodes."""

import pickle

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.entry import Entry, Parent
from memory_audit.errors import EntryError, VerificationError
from memory_audit.provenance.leaf import MAX_LEAF_BYTES, Tombstone, encode_entry, encode_tombstone
from tests.conformance.leaf_reader import decode_leaf
from tests.strategies import ENTRIES, NAMES, TEXTS

tombstones = st.builds(
    Tombstone,
    tenant=NAMES,
    entry_id=NAMES,
    removed_index=st.integers(0, 2**40),
    removed_leaf_hash=st.binary(min_size=32, max_size=32),
    reason=NAMES,
    run_id=NAMES,
    created_at_ms=st.integers(0, 10**13),
    extra=st.dictionaries(NAMES, TEXTS, max_size=2),
)


def entry(**changes):  # noqa: ANN003
    fields = {
        "tenant": "acme", "entry_id": "e1", "principal": "alice", "source": "user", "request": "q", "response": "a",
        "created_at_ms": 5, "parents": (Parent(entry_id="e0", weight_ppm=7),), "metadata": {"b": "2", "a": "1"},
    }  # fmt: skip
    return Entry(**(fields | changes))


@settings(max_examples=60, deadline=None)
@given(ENTRIES, st.integers(0, 2**40 - 1))
def test_an_entry_leaf_round_trips(item, index):
    leaf = encode_entry(item, origin="memaudit/s/t", index=index)
    decoded = decode_leaf(leaf, "leaf")
    assert (decoded.body, decoded.origin, decoded.index) == (item, "memaudit/s/t", index)


@settings(max_examples=60, deadline=None)
@given(tombstones, st.integers(0, 2**40 - 1))
def test_a_tombstone_leaf_round_trips_and_pickles(item, index):
    decoded = decode_leaf(encode_tombstone(item, origin="o", index=index), "leaf")
    assert (decoded.body, decoded.origin, decoded.index) == (item, "o", index)
    assert pickle.loads(pickle.dumps(item)) == item  # noqa: S301


def test_an_entry_leaf_is_plain_cbor_that_others_read():
    leaf = encode_entry(entry(), origin="memaudit/s/acme", index=3)
    expected = [
        "memaudit entry v1", "memaudit/s/acme", 3, "acme", "e1", "alice", "user", "q", "a", 5, [["e0", 7]],
        {"a": "1", "b": "2"},
    ]  # fmt: skip
    assert cbor2.loads(leaf) == expected
    assert leaf == cbor2.dumps(expected, canonical=True)


@pytest.mark.parametrize(
    "changed",
    [
        {"tenant": "other"}, {"entry_id": "e2"}, {"principal": "bob"}, {"source": "tool"}, {"request": "r"},
        {"response": "b"}, {"created_at_ms": 6}, {"parents": ()}, {"metadata": {"a": "1"}},
        {"parents": (Parent(entry_id="e0", weight_ppm=8),)},
    ],
)  # fmt: skip
def test_every_field_is_in_the_leaf(changed):
    assert encode_entry(entry(**changed), origin="o", index=0) != encode_entry(entry(), origin="o", index=0)


def test_origin_and_index_are_in_the_leaf():
    leaves = {encode_entry(entry(), origin=origin, index=index) for origin in ("a", "b") for index in (0, 1)}
    assert len(leaves) == 4


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        (["memaudit entry v2", "o", 0], "unknown kind"),
        (["memaudit entry v1", "o", 0], "unknown kind"),
        ([], "a leaf is an array"),
        ({"kind": "entry"}, "a leaf is an array"),
        (["memaudit entry v1", "o", -1, *["x"] * 6, 5, [], {}], "leaf index"),
        (["memaudit entry v1", "o", 0, *["x"] * 6, 5, [], {}], "source"),
        (["memaudit entry v1", "o", 0, "t", "e", "p", "user", "q", "a", 5, [["x"]], {}], "pairs"),
        (["memaudit entry v1", "o", 0, "t", "e", "p", "user", "q", "a", 5, [], {"k": 1}], "metadata value"),
        (["memaudit entry v1", "o", 0, "t", "e", "p", "user", "q", "a", True, [], {}], "created_at_ms"),
        (["memaudit tombstone v1", "o", 0, "t", "e", 0, b"short", "r", "run", 1, {}], "removed_leaf_hash"),
    ],
)
def test_decode_refuses(items, problem):
    with pytest.raises(VerificationError, match=problem):
        decode_leaf(cbor2.dumps(items, canonical=True), "leaf")


def test_decode_refuses_an_oversized_leaf_before_parsing():
    with pytest.raises(VerificationError, match="at most"):
        decode_leaf(b"\x00" * (MAX_LEAF_BYTES + 1), "leaf")


def test_the_largest_entry_fits_in_a_leaf():
    largest = entry(
        request="é" * 32_768, response="é" * 32_768, metadata={f"{n:0256}": "x" * 4_096 for n in range(64)},
        parents=tuple(Parent(entry_id=f"{n:0256}", weight_ppm=10**6) for n in range(256)),
    )  # fmt: skip
    leaf = encode_entry(largest, origin="o" * 900, index=2**40 - 1)
    assert decode_leaf(leaf, "leaf").body == largest


def test_a_tombstone_needs_a_reason():
    with pytest.raises(EntryError, match="reason is empty"):
        Tombstone(
            tenant="t", entry_id="e", removed_index=0, removed_leaf_hash=b"0" * 32, reason="", run_id="r",
            created_at_ms=0,
        )  # fmt: skip
