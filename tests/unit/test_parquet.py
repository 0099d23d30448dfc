"""Parquet files: tables come back, and a file that would decode to far more than its size is not decoded."""

from __future__ import annotations

import random
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit import parquet
from memory_audit.entry import MAX_NAME_BYTES
from memory_audit.errors import UsageError
from memory_audit.parquet import MAX_EXPANSION, ParquetError, read, write
from memory_audit.parquet_layout import groups_of

SCHEMA = pa.schema(
    [
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("fits", pa.bool_()),
        pa.field("parents", pa.list_(pa.field("element", pa.string()))),
    ]
)
NAMES = ("tenant",)
SHORT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "tenant": st.sampled_from(["acme", "é", ""]),
            "number": st.integers(0, 2**64 - 1),
            "text": st.none() | SHORT | st.sampled_from(["x" * 3_000, "y" * 9_000]),
            "fits": st.none() | st.booleans(),
            "parents": st.none() | st.lists(st.none() | SHORT, max_size=4),
        }
    ),
    max_size=40,
)
TEXT = pa.schema([pa.field("text", pa.string(), nullable=False)])
MIB = 1 << 20


def table_of(rows):
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def file_of(table, **options):  # noqa: ANN003
    """Write as a stranger may."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **({"write_statistics": False, "store_schema": False, "compression": "zstd"} | options))
    return bytes(sink.getvalue())


def texts(*values: str) -> pa.Table:
    return pa.table({"text": list(values)}, schema=TEXT)


def sizes(data):
    """Return what decoding takes, as `read` reckons it."""
    return parquet._decoded_bytes(data, groups_of(data), SCHEMA, NAMES)


@given(ROWS, st.integers(1, 50))
def test_a_table_comes_back_as_it_was_written_also_in_parts_and_columns(rows, rows_per_group):
    table = table_of(rows)
    data = write(table, repeating=NAMES, rows_per_group=rows_per_group)
    assert read(data, SCHEMA, repeating=NAMES, rows=len(rows)).equals(table)
    parts = [read(data, SCHEMA, repeating=NAMES, part=(number, 3)) for number in range(3)]
    assert pa.concat_tables(parts).equals(table)
    assert read(data, SCHEMA, repeating=NAMES, columns=["tenant", "text"]).equals(table.select(["tenant", "text"]))


@given(
    ROWS, st.sampled_from(["zstd", "none"]), st.sampled_from([[], ["tenant"]]), st.integers(1, 50),
    st.sampled_from([100, 1 << 20]),
)  # fmt: skip
def test_what_a_file_decodes_to_is_reckoned_and_never_too_low(rows, compression, by_dictionary, group, page_bytes):
    table = table_of(rows)
    data = file_of(
        table, compression=compression, use_dictionary=by_dictionary, row_group_size=group, data_page_size=page_bytes
    )
    assert sizes(data) >= table.nbytes
    if sizes(data) <= MAX_EXPANSION * len(data):
        assert read(data, SCHEMA, repeating=NAMES).equals(table)


def test_names_that_do_not_fit_one_dictionary_come_back():
    names = [f"{random.Random(number).random()}" * 10 for number in range(20_000)]
    table = table_of([{"tenant": name, "number": 1} for name in names])
    assert read(write(table, repeating=NAMES), SCHEMA, repeating=NAMES).equals(table)


def test_one_text_over_and_over_is_written_so_that_readers_take_it():
    table = texts(*["x" * 60_000] * 200)
    assert len(file_of(table, use_dictionary=False)) * MAX_EXPANSION < table.nbytes
    assert read(write(table), TEXT).equals(table)


def test_a_dictionary_leaves_nothing_behind_for_the_next_file():
    rows = [{"tenant": "stays", "number": 1}, {"tenant": "removed", "number": 2}]
    table = read(write(table_of(rows), repeating=NAMES), SCHEMA, repeating=NAMES)
    assert b"removed" not in write(table.slice(0, 1), repeating=NAMES)


def footers_lie(table):
    """Say in the footer that the columns are a tenth of what their pages say."""
    data = file_of(table, use_dictionary=False)
    column = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    true, false = _varint(column.total_uncompressed_size), _varint(column.total_uncompressed_size // 10)
    assert len(true) == len(false)
    lying = data.replace(true, false)
    stated = pq.ParquetFile(pa.BufferReader(lying)).metadata.row_group(0).column(0).total_uncompressed_size
    assert stated == column.total_uncompressed_size // 10
    return lying


def _varint(number):
    """Write a number as Thrift's compact protocol does."""
    number, found = number << 1, bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


LARGE = texts(*["x" * 60_000] * 400)
"""24 MB; compressed, or by dictionary, it is a few kB."""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (file_of(LARGE, use_dictionary=False), r"^\d{3,5} bytes that decode to 24\d{6}, at most \d{4,7} are allowed$"),
        (footers_lie(LARGE), "bytes that decode to 24"),
        (file_of(LARGE), "text is written by dictionary"),
        (file_of(LARGE, compression="none"), "text is written by dictionary"),
        (file_of(texts(*[""] * 4_000_000), use_dictionary=False), "bytes that decode to"),
        (file_of(texts("a"), compression="snappy", use_dictionary=False), "text is compressed by codec 1"),
        (file_of(texts("a"), compression="gzip", use_dictionary=False), "text is compressed by codec 2"),
        (
            file_of(texts("a"), use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"}),
            "text has encoding 7, expected plain",
        ),
        (file_of(texts("a"), use_dictionary=False, data_page_version="2.0"), "a field 8 that is unknown"),
        (file_of(pa.table({"text": [1]})), "columns are not those of the format: ['text']"),
        (file_of(texts("a", "b"), use_dictionary=False), "2 rows, expected 400"),
        (b"", "not Parquet"),
        (b"PAR1" + b"\xff" * 8 + b"PAR1", "not Parquet"),
    ],
)  # fmt: skip
def test_what_is_not_written_as_it_must_be_is_not_decoded(data, message, monkeypatch):
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", None)
    with pytest.raises(ParquetError) as refused:
        read(data, TEXT, rows=None if "rows" not in message else 400)
    if message.startswith("^"):
        assert refused.match(message)
    assert message.startswith("^") or message in str(refused.value)


def test_a_name_is_no_longer_than_names_are():
    for length, fits in ((MAX_NAME_BYTES, True), (MAX_NAME_BYTES + 1, False), (5 * MIB, False)):
        data = file_of(table_of([{"tenant": "x" * length, "number": 1}] * 9), use_dictionary=["tenant"])
        if not fits:
            with pytest.raises(ParquetError, match=f"tenant of {length} bytes|that decode to"):
                read(data, SCHEMA, repeating=NAMES)
        else:
            assert read(data, SCHEMA, repeating=NAMES).num_rows == 9


def test_an_index_that_is_none_of_its_dictionary_is_not_looked_up():
    for index in (1, -1, 2**31 - 1):
        indices = pa.array([0, index], pa.int32())
        column = pa.DictionaryArray.from_arrays(indices, pa.array(["acme"]), safe=False)
        with pytest.raises(pa.ArrowInvalid, match="indices invalid"):
            parquet._without_dictionaries(pa.table({"tenant": column}), SCHEMA, NAMES)


def test_names_at_their_limit_count_at_their_limit():
    data = file_of(table_of([{"tenant": "x" * MAX_NAME_BYTES, "number": 1}] * 60_000), use_dictionary=["tenant"])
    with pytest.raises(ParquetError, match="bytes that decode to"):
        read(data, SCHEMA, repeating=NAMES)


def test_a_table_that_no_reader_would_take_is_not_written(monkeypatch):
    monkeypatch.setattr(parquet, "MAX_DECODED_BYTES", 1_000)
    with pytest.raises(UsageError, match=r"2 rows decode to 20\d\d bytes, and a reader takes at most 1000"):
        write(texts("x" * 1_000, "y" * 1_000))


GOOD = write(
    table_of([{"tenant": "acme", "number": n, "text": f"t{n}", "fits": True, "parents": ["a"]} for n in range(50)]),
    repeating=NAMES, rows_per_group=20,
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_are_refused_or_decode_within_the_bound(changes):
    data = bytearray(GOOD)
    for place, byte in changes:
        data[place] = byte
    with suppress(ParquetError):
        assert read(bytes(data), SCHEMA, repeating=NAMES).nbytes <= MAX_EXPANSION * len(data)


@given(st.integers(0, len(GOOD)))
def test_a_file_that_is_cut_off_is_refused(length):
    if length < len(GOOD):
        with pytest.raises(ParquetError):
            read(GOOD[:length], SCHEMA, repeating=NAMES)
