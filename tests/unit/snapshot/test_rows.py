"""Rows read for verification: the same leaves as entries, the same limits."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.errors import EntryError, VerificationError
from memory_audit.provenance.leaf import LEAF_START, SIGNATURE_DOMAIN, encode_entry
from memory_audit.provenance.tlog.merkle import MAX_TREE_SIZE
from memory_audit.snapshot.columns import rows
from memory_audit.snapshot.columns.rows import LEAF_HASH_START, check_rows_format, signed_leaves, tenants_of
from memory_audit.snapshot.columns.tables import (
    ENTRY_SCHEMA,
    SignedEntry,
    read_entries,
    read_table,
    write_entries,
    write_table,
)
from tests.strategies import ENTRIES

GOOD = {
    "tenant": "t", "leaf_index": 0, "entry_id": "e", "principal": "p", "source": "user", "request": "q",
    "response": "a", "created_at_ms": 1, "parents": [{"entry_id": "x", "weight_ppm": 1}], "metadata": [("k", "v")],
    "key_id": "key", "signature": b"s" * 64,
}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(ENTRIES, min_size=1, max_size=6), st.integers(0, 3), st.integers(0, MAX_TREE_SIZE - 5))
def test_rows_are_put_together_to_the_leaves_of_their_entries(items, skip, first):
    signed = [
        SignedEntry(entry=item, index=first + number, key_id="k", signature=bytes([number]) * 64)
        for number, item in enumerate(items)
    ]
    table = read_table(write_table(write_entries(signed)), "f").slice(skip)
    check_rows_format(table, "f")
    origins = {item.tenant: f"memaudit/{item.tenant}" for item in items}
    got = [leaf for leaves in signed_leaves(table, origins) for leaf in leaves]
    assert got == [
        item.signature + SIGNATURE_DOMAIN
        + encode_entry(item.entry, origin=origins[item.entry.tenant], index=item.index)
        for item in signed[skip:]
    ]  # fmt: skip
    assert read_entries(table) == signed[skip:]


def test_a_leaf_hash_starts_with_the_zero_that_ends_the_domain():
    assert SIGNATURE_DOMAIN.endswith(b"\x00")
    assert LEAF_HASH_START == LEAF_START - 1


def test_rows_come_in_batches(monkeypatch):
    monkeypatch.setattr(rows, "BATCH_ROWS", 2)
    table = table_of(*(GOOD | {"leaf_index": index} for index in range(5)))
    assert [len(leaves) for leaves in signed_leaves(table, {"t": "o"})] == [2, 2, 1]


def test_tenants_are_named_once():
    names, places = tenants_of(pa.chunked_array([["a", "a"], ["b", "a"]]))
    assert (names, places.tolist()) == (["a", "b"], [0, 0, 1, 0])


def test_an_empty_table_has_no_rows():
    check_rows_format(ENTRY_SCHEMA.empty_table(), "f")
    assert list(signed_leaves(ENTRY_SCHEMA.empty_table(), {})) == []


def table_of(*rows):  # noqa: ANN002
    return pa.Table.from_pylist(list(rows), schema=ENTRY_SCHEMA)


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": ""},
        {"entry_id": ""},
        {"entry_id": "x" * 257},
        {"principal": ""},
        {"principal": "e\u0301"},
        {"source": "oracle"},
        {"request": "x" * 65_537},
        {"response": "e\u0301"},
        {"created_at_ms": 2**60},
        {"leaf_index": 2**50},
        {"parents": [{"entry_id": "", "weight_ppm": 1}]},
        {"parents": [{"entry_id": "x", "weight_ppm": 1_000_001}]},
        {"parents": [{"entry_id": "x", "weight_ppm": 1}] * 2},
        {"parents": [{"entry_id": f"x{n}", "weight_ppm": 1} for n in range(257)]},
        {"metadata": [("k", "v"), ("k", "w")]},
        {"metadata": [("", "v")]},
        {"metadata": [("k", "x" * 4_097)]},
        {"metadata": [("k", "e\u0301")]},
        {"metadata": [(f"k{n}", "v") for n in range(65)]},
    ],
)
def test_what_no_entry_may_have_is_refused_both_ways(change):
    table = table_of(GOOD, GOOD | {"leaf_index": 1} | change)
    with pytest.raises(VerificationError, match="file: "):
        check_rows_format(table, "file")
    metadata = change.get("metadata", ())
    if "leaf_index" not in change and len(dict(metadata)) == len(metadata):  # an entry has no place, no key twice
        with pytest.raises(EntryError):
            [replace(item.entry) for item in read_entries(table)]  # judged one by one


def test_invalid_utf8_is_refused():
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(b"\x00\x00\x00\x00\x01\x00\x00\x00"), pa.py_buffer(b"\xff"))
    table = table_of(GOOD).set_column(5, ENTRY_SCHEMA.field("request"), bad)
    with pytest.raises(VerificationError, match="file: "):
        check_rows_format(table, "file")
