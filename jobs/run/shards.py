"""Shards of a run folder: Parquet files of replays, contradiction weights and embeddings, read back strictly.

A shard may be damaged, no shard, or made to fill the memory (`memory_audit.parquet`,
`memory_audit.formats.outside_file`): whatever is wrong with it, the reader names it and says that it can be deleted,
since a run asks again for what it does not find.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_audit import parquet
from memory_audit.attribution.replays.ablation import Outcome
from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_regular
from memory_audit.generation import TokenUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "OUTCOMES_SCHEMA", "VECTORS_SCHEMA", "WEIGHTS_SCHEMA", "outcomes_table", "pair_key", "parse_outcomes",
    "parse_vectors", "parse_weights", "read_shard", "text_key", "vectors_table", "weights_table",
]  # fmt: skip

MAX_SHARD_BYTES = 256 << 20
"""Hundreds of replays with all their answers, or a hundredth of the embeddings of millions of texts."""

_TEXTS = pa.list_(pa.field("element", pa.string()))

OUTCOMES_SCHEMA = pa.schema(
    [
        ("pair_id", pa.string()),
        ("event_id", pa.string()),
        ("context", _TEXTS),
        ("harm", pa.float64()),
        ("log_odds_nats", pa.float64()),
        ("output", pa.string()),
        ("answers", _TEXTS),
        ("prompt_hash", pa.string()),
        ("memoised", pa.bool_()),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("left_out", _TEXTS),
        ("fits", pa.bool_()),
    ]
)
WEIGHTS_SCHEMA = pa.schema([("pair", pa.string()), ("contradiction", pa.float64())])
VECTORS_SCHEMA = pa.schema([("text", pa.string()), ("vector", pa.binary())])
"""The vector as little-endian float32."""

_FLOAT = np.dtype("<f4")


def text_key(text: str) -> str:
    """Name a text by its digest (128 bits of SHA-256, hex)."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def pair_key(a: str, b: str) -> str:
    """Name an unordered pair of texts by their digests."""
    return "".join(sorted((text_key(a), text_key(b))))


def outcomes_table(outcomes: Iterable[Outcome]) -> pa.Table:
    """Return replays as a shard."""
    rows = [{**asdict(outcome), **asdict(outcome.usage)} for outcome in outcomes]
    return pa.Table.from_pylist(rows, schema=OUTCOMES_SCHEMA)


def weights_table(weights: Mapping[str, float]) -> pa.Table:
    """Return contradiction weights, by `pair_key`, as a shard."""
    rows = [{"pair": pair, "contradiction": weight} for pair, weight in weights.items()]
    return pa.Table.from_pylist(rows, schema=WEIGHTS_SCHEMA)


def vectors_table(keys: pa.Array, vectors: NDArray[np.float32]) -> pa.Table:
    """Return embeddings, shape (n, dimensions), of the texts of these keys (`text_key`), shape (n,), as a shard."""
    data = np.ascontiguousarray(vectors, _FLOAT)
    ends = np.arange(len(data) + 1, dtype=np.int32) * (data.shape[1] * _FLOAT.itemsize)
    column = pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(ends), pa.py_buffer(data)])
    return pa.table([keys, column], schema=VECTORS_SCHEMA)


def read_shard(path: Path) -> bytes:
    """Return a shard's bytes.

    Raises:
        UsageError: names the shard; no regular file, too large, or not readable.
    """
    try:
        return read_regular(path, MAX_SHARD_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: not readable ({error.strerror}); delete it and resume") from None


def parse_outcomes(data: bytes, where: str) -> list[Outcome]:
    """Read a shard of replays.

    Raises:
        UsageError: names the shard; not one that a run wrote.
    """
    rows = _rows(data, OUTCOMES_SCHEMA, {"harm", "log_odds_nats"}, where)
    for row in rows:
        row |= {name: tuple(row[name]) for name in ("context", "answers", "left_out")}
        row["usage"] = TokenUsage(**{field.name: row.pop(field.name) for field in fields(TokenUsage)})
    return [Outcome(**row) for row in rows]


def parse_weights(data: bytes, where: str) -> dict[str, float]:
    """Read a shard of contradiction weights, by `pair_key`. Raises UsageError like `parse_outcomes`."""
    found = {row["pair"]: row["contradiction"] for row in _rows(data, WEIGHTS_SCHEMA, set(), where)}
    if not all(0.0 <= weight <= 1.0 for weight in found.values()):  # false for NaN too
        raise UsageError(f"{where}: a weight outside 0 to 1; delete it and resume")
    return found


def parse_vectors(data: bytes, where: str) -> tuple[pa.Array, NDArray[np.float32]]:
    """Read a shard of embeddings: `text_key` of each text, shape (n,), and its vector, shape (n, dimensions).

    Raises:
        UsageError: like `parse_outcomes`.
    """
    table = _table(data, VECTORS_SCHEMA, where).combine_chunks()
    keys, column = (table.column(name).combine_chunks() for name in VECTORS_SCHEMA.names)
    if keys.null_count or column.null_count:
        raise UsageError(f"{where}: a value is missing; delete it and resume")
    sizes = np.unique(pc.binary_length(column).to_numpy())
    if len(sizes) > 1 or (sizes % _FLOAT.itemsize).any():
        raise UsageError(f"{where}: an embedding of another size; delete it and resume")
    width = int(sizes.max(initial=0))
    start = int(np.frombuffer(column.buffers()[1], np.int32)[column.offset]) if width else 0
    held = column.buffers()[2][start : start + len(column) * width] if width else b""
    vectors = np.frombuffer(held, _FLOAT).astype(np.float32, copy=False).reshape(len(column), width // _FLOAT.itemsize)
    if not np.isfinite(vectors).all():
        raise UsageError(f"{where}: an embedding that is no number; delete it and resume")
    return keys, vectors


def _table(data: bytes, schema: pa.Schema, where: str) -> pa.Table:
    try:
        table = parquet.read(data, schema)
        table.validate(full=True)  # UTF-8, offsets
    except (parquet.ParquetError, pa.ArrowException, ValueError) as error:
        text = " ".join(str(error).split())[:100]
        raise UsageError(f"{where}: not readable ({text}); delete it and resume") from None
    return table


def _rows(data: bytes, schema: pa.Schema, optional: set[str], where: str) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = _table(data, schema, where).to_pylist()
    except ValueError as error:
        raise UsageError(f"{where}: not readable ({str(error)[:100]}); delete it and resume") from None
    for row in rows:
        if any(value is None and name not in optional for name, value in row.items()) or any(
            None in value for value in row.values() if isinstance(value, list)
        ):
            raise UsageError(f"{where}: a value is missing; delete it and resume")
    return rows
