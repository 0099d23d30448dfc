"""Rows read for verification: the same leaves as entries, the same limits."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import VerificationError
from audit.provenance.leaf import encode_entry, row_encoder
from audit.snapshot.columns import (
    ENTRY_SCHEMA,
    SignedEntry,
    read_entries,
    read_entry_table,
    write_entries,
    write_entry_table,
)
from audit.snapshot.rows import read_rows, rows_by_tenant
from tests.unit.provenance.test_leaf import entries

GOOD = {
    "tenant": "t", "leaf_index": 0, "entry_id": "e", "principal": "p", "source": "user", "request": "q",
    "response": "a", "created_at_ms": 1, "parents": [{"entry_id": "x", "weight_ppm": 1}], "metadata": [("k", "v")],
    "key_id": "key", "signature": b"s" * 64,
}  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(entries, min_size=1, max_size=6), st.integers(0, 3))
def test_rows_encode_to_the_leaves_of_their_entries(items, skip):
    signed = [SignedEntry(entry=item, index=index, key_id="k", signature=b"s" * 64) for index, item in enumerate(items)]
    table = read_entry_table(write_entry_table(write_entries(signed)), "f").slice(skip)
    leaves = [row_encoder("o", row.tenant)(*row[1:10]) for row in read_rows(table, "f")]
    assert leaves == [encode_entry(item, origin="o", index=index) for index, item in enumerate(items)][skip:]
    assert read_entries(table, "f") == signed[skip:]


def test_rows_come_in_runs_of_a_tenant():
    rows = [GOOD | {"tenant": tenant} for tenant in ("a", "a", "b")]
    found = [(tenant, len(run)) for tenant, run in rows_by_tenant(read_rows(table_of(*rows), "f"))]
    assert found == [("a", 2), ("b", 1)]


def test_an_empty_table_has_no_rows():
    assert read_rows(ENTRY_SCHEMA.empty_table(), "f") == []


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
        read_rows(table, "file")
    if "leaf_index" not in change:  # an entry does not know its place
        with pytest.raises(VerificationError, match="file: "):
            read_entries(table, "file")


def test_invalid_utf8_is_refused():
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(b"\x00\x00\x00\x00\x01\x00\x00\x00"), pa.py_buffer(b"\xff"))
    table = table_of(GOOD).set_column(5, ENTRY_SCHEMA.field("request"), bad)
    with pytest.raises(VerificationError, match="file: "):
        read_rows(table, "file")
