"""Shards of a run folder: Parquet files of replays, contradiction weights and embeddings, read back strictly.

A shard may be damaged, or no shard: whatever is wrong with it, the reader names it and says that it can be deleted,
since a run asks again for what it does not find.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from audit.attribution.ablation import Outcome
from audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

__all__ = [
    "OUTCOMES_SCHEMA", "VECTORS_SCHEMA", "WEIGHTS_SCHEMA", "outcomes_table", "pair_key", "parse_outcomes",
    "parse_vectors", "parse_weights", "text_key", "vectors_table", "weights_table",
]  # fmt: skip

OUTCOMES_SCHEMA = pa.schema(
    [
        ("pair_id", pa.string()),
        ("event_id", pa.string()),
        ("context", pa.list_(pa.string())),
        ("harm", pa.float64()),
        ("log_odds_nats", pa.float64()),
        ("output", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("prompt_hash", pa.string()),
        ("memoised", pa.bool_()),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("left_out", pa.list_(pa.string())),
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
    return pa.Table.from_pylist([asdict(outcome) for outcome in outcomes], schema=OUTCOMES_SCHEMA)


def weights_table(weights: Mapping[str, float]) -> pa.Table:
    """Return contradiction weights, by `pair_key`, as a shard."""
    rows = [{"pair": pair, "contradiction": weight} for pair, weight in weights.items()]
    return pa.Table.from_pylist(rows, schema=WEIGHTS_SCHEMA)


def vectors_table(vectors: Mapping[str, NDArray[np.float32]]) -> pa.Table:
    """Return embeddings, by `text_key`, as a shard."""
    rows = [{"text": key, "vector": vector.astype(_FLOAT).tobytes()} for key, vector in vectors.items()]
    return pa.Table.from_pylist(rows, schema=VECTORS_SCHEMA)


def parse_outcomes(data: bytes, where: str) -> list[Outcome]:
    """Read a shard of replays.

    Raises:
        UsageError: names the shard; not one that a run wrote.
    """
    rows = _rows(data, OUTCOMES_SCHEMA, {"harm", "log_odds_nats"}, where)
    lists = ("context", "answers", "left_out")
    return [Outcome(**{**row, **{name: tuple(row[name]) for name in lists}}) for row in rows]


def parse_weights(data: bytes, where: str) -> dict[str, float]:
    """Read a shard of contradiction weights, by `pair_key`. Raises UsageError like `parse_outcomes`."""
    found = {row["pair"]: row["contradiction"] for row in _rows(data, WEIGHTS_SCHEMA, set(), where)}
    if not all(0.0 <= weight <= 1.0 for weight in found.values()):  # false for NaN too
        raise UsageError(f"{where}: a weight outside 0 to 1; delete it and resume")
    return found


def parse_vectors(data: bytes, where: str) -> dict[str, NDArray[np.float32]]:
    """Read a shard of embeddings, shape (dimensions,), by `text_key`. Raises UsageError like `parse_outcomes`."""
    found: dict[str, NDArray[np.float32]] = {}
    sizes = set()
    for row in _rows(data, VECTORS_SCHEMA, set(), where):
        sizes.add(len(row["vector"]))
        if len(row["vector"]) % _FLOAT.itemsize or len(sizes) > 1:
            raise UsageError(f"{where}: an embedding of another size; delete it and resume")
        found[row["text"]] = vector = np.frombuffer(row["vector"], _FLOAT).astype(np.float32)
        if not np.isfinite(vector).all():
            raise UsageError(f"{where}: an embedding that is no number; delete it and resume")
    return found


def _rows(data: bytes, schema: pa.Schema, optional: set[str], where: str) -> list[dict[str, Any]]:
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        if not table.schema.equals(schema):
            raise ValueError(f"columns {table.schema.names!r:.60}")  # noqa: TRY301 - as unreadable as no Parquet
        table.validate(full=True)  # UTF-8, offsets
        rows: list[dict[str, Any]] = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        text = " ".join(str(error).split())[:100]
        raise UsageError(f"{where}: not readable ({text}); delete it and resume") from None
    for row in rows:
        if any(value is None and name not in optional for name, value in row.items()) or any(
            None in value for value in row.values() if isinstance(value, list)
        ):
            raise UsageError(f"{where}: a value is missing; delete it and resume")
    return rows
