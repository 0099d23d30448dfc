"""One run on disk: what was asked for, every outcome as it arrives, and the result.

    RUN/run.json               what this run is of: digests of configuration, snapshot and events
    RUN/replays/*.parquet      outcomes, each shard written whole and renamed into place
    RUN/entailment/*.parquet   contradiction weights of pairs, by the digest of their texts
    RUN/models.json            which weights answered: a resumed run may find everything known and load none
    RUN/result.json            the finding, written last

A second start with the same digests continues; with others it is refused. Outcomes are keyed by pair id: what is there
twice, after a retry or a crash, is one.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from audit.attribution.ablation import Outcome
from audit.errors import IncompleteError, UsageError
from audit.provenance import durable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["RunFolder", "parse_marker", "parse_outcomes", "parse_weights"]

MODELS_FILE = "models.json"
SHARD_ROWS = 256
SHARD_SECONDS = 5.0
"""A shard is written at least this often: what a crash can cost."""

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
    ]
)
WEIGHTS_SCHEMA = pa.schema([("pair", pa.string()), ("contradiction", pa.float64())])


class RunFolder:
    """An open run."""

    def __init__(self, path: Path, identity: Mapping[str, str]) -> None:
        """Open or start a run.

        Args:
            path: The folder; made if absent.
            identity: Digests and settings that the results depend on.

        Raises:
            UsageError: the folder holds another run, or something that is no run.
            IncompleteError: the disk is full or refuses.
        """
        self.path = path
        self._pending: list[Outcome] = []
        self._written_at = time.monotonic()
        marker = path / "run.json"
        if marker.exists():
            known = self._read_marker(marker)
            different = sorted(name for name in identity.keys() | known.keys() if identity.get(name) != known.get(name))
            if different:
                raise UsageError(
                    f"{path}: holds a run with other {', '.join(different)}; choose another --out or delete it"
                )
        elif path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"{path}: exists and is not a MemAudit run; choose another --out")
        else:
            try:
                for folder in (path, path / "replays", path / "entailment"):
                    folder.mkdir(parents=True, exist_ok=True)
                durable.replace(marker, json.dumps(dict(sorted(identity.items())), indent=1).encode())
            except OSError as error:
                raise IncompleteError(f"{path}: the run cannot be started ({error.strerror})") from None
        self._models = self._read_marker(path / MODELS_FILE) if (path / MODELS_FILE).exists() else {}
        self._outcomes = self._load()
        self._weights = self._load_weights()

    @property
    def models(self) -> Mapping[str, str]:
        """Role (backbone, nli, embedder) to model id, of all models that ever answered in this run."""
        return self._models

    def record_models(self, used: Mapping[str, str]) -> None:
        """Write down which models answer, before their answers are kept.

        Raises:
            UsageError: answers of other weights are here already.
            IncompleteError: the disk is full or refuses.
        """
        for role, model_id in used.items():
            if self._models.get(role, model_id) != model_id:
                raise UsageError(
                    f"{self.path}: holds answers of the {role} {self._models[role]:.80}, not of {model_id:.80}; "
                    "choose another --out"
                )
        if used.keys() - self._models.keys():
            self._models = dict(sorted({**self._models, **used}.items()))
            self.write(MODELS_FILE, json.dumps(self._models, indent=1).encode())

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """All outcomes known, by pair id."""
        return self._outcomes

    def add(self, outcome: Outcome) -> None:
        """Keep one outcome; it is on disk SHARD_SECONDS later at most, or after `flush`."""
        self._outcomes[outcome.pair_id] = outcome
        self._pending.append(outcome)
        if len(self._pending) >= SHARD_ROWS or time.monotonic() - self._written_at > SHARD_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is pending.

        Raises:
            IncompleteError: the disk is full or refuses; what was written before is good.
        """
        self._written_at = time.monotonic()
        if self._pending:
            table = pa.Table.from_pylist([_to_row(outcome) for outcome in self._pending], schema=OUTCOMES_SCHEMA)
            self._write("replays", table)
            self._pending = []  # only now: where the write failed, the next flush tries them again

    def weights(self) -> Mapping[str, float]:
        """Contradiction weights known, by `pair_key`."""
        return self._weights

    def add_weights(self, weights: Mapping[str, float]) -> None:
        """Keep contradiction weights."""
        self._weights.update(weights)
        rows = [{"pair": pair, "contradiction": weight} for pair, weight in weights.items()]
        self._write("entailment", pa.Table.from_pylist(rows, schema=WEIGHTS_SCHEMA))

    @staticmethod
    def pair_key(a: str, b: str) -> str:
        """Name an unordered pair of texts by their digests."""
        digests = sorted(hashlib.sha256(text.encode()).hexdigest()[:32] for text in (a, b))
        return "".join(digests)

    def write(self, name: str, data: bytes) -> Path:
        """Put a finished file into the run, whole or not at all."""
        try:
            durable.replace(self.path / name, data)
        except IncompleteError as error:
            raise IncompleteError(f"{self.path}: {error}; free space and start the same command again") from None
        return self.path / name

    def _write(self, kind: str, table: pa.Table) -> None:
        final = self.path / kind / f"{uuid.uuid4().hex}.parquet"
        scratch = final.with_suffix(".partial")
        try:
            pq.write_table(table, scratch)
            scratch.rename(final)
        except OSError as error:
            scratch.unlink(missing_ok=True)
            raise IncompleteError(
                f"{final.parent}: cannot write results ({error.strerror}); free space and start the same command again"
            ) from None

    @staticmethod
    def _read_marker(marker: Path) -> dict[str, str]:
        try:
            data = marker.read_bytes()
        except OSError as error:
            raise UsageError(f"{marker}: cannot be read ({error.strerror}); choose another --out") from None
        return parse_marker(data, str(marker))

    def _load(self) -> dict[str, Outcome]:
        outcomes = (item for shard in self._shards("replays") for item in parse_outcomes(_bytes(shard), str(shard)))
        return {outcome.pair_id: outcome for outcome in outcomes}

    def _load_weights(self) -> dict[str, float]:
        known: dict[str, float] = {}
        for shard in self._shards("entailment"):
            known |= parse_weights(_bytes(shard), str(shard))
        return known

    def _shards(self, kind: str) -> Iterable[Path]:
        return sorted((self.path / kind).glob("*.parquet"))


def parse_marker(data: bytes, where: str) -> dict[str, str]:
    """Read what a run depends on, by name.

    Raises:
        UsageError: not the marker of a run.
    """
    try:
        known = json.loads(data)
    except (ValueError, RecursionError):
        known = None
    if not isinstance(known, dict) or not all(isinstance(value, str) for value in known.values()):
        raise UsageError(f"{where}: not a run's marker; choose another --out")
    return known


def parse_outcomes(data: bytes, where: str) -> list[Outcome]:
    """Read a shard of replays.

    Raises:
        UsageError: names the shard; not one that a run wrote.
    """
    optional = {"harm", "log_odds_nats"}
    return [_from_row(row) for row in _rows(data, OUTCOMES_SCHEMA, optional, where)]


def parse_weights(data: bytes, where: str) -> dict[str, float]:
    """Read a shard of contradiction weights, by `RunFolder.pair_key`. Raises UsageError like `parse_outcomes`."""
    return {row["pair"]: row["contradiction"] for row in _rows(data, WEIGHTS_SCHEMA, set(), where)}


def _bytes(shard: Path) -> bytes:
    try:
        return shard.read_bytes()
    except OSError as error:
        raise UsageError(f"{shard}: not readable ({error.strerror}); delete it and resume") from None


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


def _to_row(outcome: Outcome) -> dict[str, object]:
    return asdict(outcome)


def _from_row(row: dict[str, Any]) -> Outcome:
    return Outcome(**{**row, "context": tuple(row["context"]), "answers": tuple(row["answers"])})
