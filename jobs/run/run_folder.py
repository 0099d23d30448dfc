"""What models said, on disk: of one group of an audit's tenants (`memory_audit.jobs.run.groups`), or of a calibration.

    FOLDER/run.json               what it is of: `AuditRequest.identity` (`memory_audit.request`), and which group
    FOLDER/replays/*.parquet      outcomes, each shard on disk before it has its name
    FOLDER/entailment/*.parquet   contradiction weights of pairs, by the digest of their texts
    FOLDER/embedding/*.parquet    embeddings of texts, by their digest
    FOLDER/models.json            which weights answered: a resumed run may find everything known and load none

A second start with the same digests continues; with others it is refused. Outcomes are keyed by pair id: what is there
twice, after a retry or a crash, is one. A shard is named by its code, and one that is named otherwise is refused, as
this run did not write it. Only at a measurement point may one id have outcomes of several prompts: its text
comes from earlier replays, and where these were lost and came back in other words it is another point. What NLI and
embedder said depends on texts and weights alone: another run may take it over (`memory_audit.jobs.run.reuse`).
"""

from __future__ import annotations

import json
import shlex
import time
from collections import defaultdict
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from memory_audit import parquet
from memory_audit.errors import IncompleteError, ModelError, UsageError, VerificationError
from memory_audit.jobs.run.run_files import (
    EMBEDDING,
    ENTAILMENT,
    MARKER_FILE,
    MODELS_FILE,
    REPLAYS,
    RESULT_FILE,
    ROLES,
    read_marker,
    shard_code,
    shards,
)
from memory_audit.jobs.run.run_seal import Sealer
from memory_audit.jobs.run.shards import (
    outcomes_table,
    parse_outcomes,
    parse_vectors,
    parse_weights,
    read_shard,
    vectors_table,
    weights_table,
)
from memory_audit.jobs.run.vectors import Vectors
from memory_audit.provenance import durable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.jobs.run.reuse import EarlierRun, EarlierShard
    from memory_audit.jobs.run.run_seal import Part

__all__ = ["RunFolder", "open_marker", "resumable"]

T = TypeVar("T")

CODE = "code"
"""In MODELS_FILE, beside the roles: the code of these."""

STRANGE = "was changed, or not written by this run with these keys"

SHARD_ROWS = 256
SHARD_SECONDS = 5.0
"""A shard is written at least this often: what a crash can cost."""


@contextmanager
def resumable() -> Iterator[None]:
    """Say of a model's failure how to go on; what asks models for a run is decorated with it.

    Raises:
        ModelError: the failure, with that.
    """
    try:
        yield
    except ModelError as error:
        raise type(error)(f"{error}; finished replays are kept: start the same command again to continue") from error


class RunFolder:
    """An open run."""

    def __init__(
        self,
        path: Path,
        identity: Mapping[str, str],
        *,
        earlier: EarlierRun | None = None,
        sealer: Sealer | Part | None = None,
        models: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Open or start a run.

        Args:
            path: The folder; made if absent.
            identity: Digests and settings that the results depend on.
            earlier: A run whose comparisons and embeddings are taken over where the same model would give them again.
            sealer: Learns what is written, and what of it is there; None is one without keys.
            models: Role to model id, of those that answer other questions of the same run.

        Raises:
            UsageError: the folder holds another run, or something that is no run.
            VerificationError: it holds answers that no start of this run with these keys wrote.
            IncompleteError: the disk is full or refuses.
        """
        self.path = path
        self.earlier = earlier
        self.sealer = Sealer() if sealer is None else sealer
        self._codes = self.sealer.codes(identity)
        self._pending: list[Outcome] = []
        self._written_at = time.monotonic()
        self.sealer.note(MARKER_FILE, open_marker(path, identity))
        for kind in ROLES:
            durable.ensure_folder(path / kind)
        self._models, self._elsewhere = self._known_models(), models
        self._outcomes: dict[str, Outcome] = {}
        self._others: defaultdict[str, list[Outcome]] = defaultdict(list)
        for _, found in self._read(REPLAYS, parse_outcomes):
            for outcome in found:
                self._keep(outcome)
        self._weights: dict[str, float] = {}
        for _, weights in self._read(ENTAILMENT, parse_weights):
            self._weights |= weights
        self.vectors = Vectors()
        """Embeddings known, by `memory_audit.jobs.run.shards.text_key`."""

        for shard, (keys, vectors) in self._read(EMBEDDING, parse_vectors):
            self._hold(shard, keys, vectors)

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
            before = self._models.get(role) or self._elsewhere.get(role, model_id)
            if before != model_id:
                raise UsageError(
                    f"{self.path}: holds answers of the {role} {before:.80}, not of {model_id:.80}; "
                    "choose another --out"
                )
        if used.keys() - self._models.keys():
            self._models = dict(sorted({**self._models, **used}.items()))
            self.write(MODELS_FILE, json.dumps({**self._models, CODE: self._code_of_models()}, indent=1).encode())

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """The last outcome known of each pair id."""
        return self._outcomes

    def outcomes_of(self, pair_id: str) -> tuple[Outcome, ...]:
        """Return all that is known of one pair id: more than one, of other prompts, where its point moved."""
        last = self._outcomes.get(pair_id)
        return () if last is None else (last, *self._others.get(pair_id, ()))

    def _keep(self, outcome: Outcome) -> None:
        before = self._outcomes.get(outcome.pair_id)
        if before is not None and before.prompt_hash != outcome.prompt_hash:
            self._others[outcome.pair_id].append(before)
        self._outcomes[outcome.pair_id] = outcome

    def add(self, outcome: Outcome) -> None:
        """Keep one outcome; it is on disk SHARD_SECONDS later at most, or after `flush`."""
        self._keep(outcome)
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
            self._write(REPLAYS, outcomes_table(self._pending))
            self._pending = []  # only now: where the write failed, the next flush tries them again

    @property
    def weights(self) -> Mapping[str, float]:
        """Contradiction weights known, by `memory_audit.jobs.run.shards.pair_key`."""
        return self._weights

    def add_weights(self, weights: Mapping[str, float]) -> None:
        """Keep contradiction weights. Raises like `flush`."""
        self._weights.update(weights)
        self._write(ENTAILMENT, weights_table(weights))

    def add_vectors(self, keys: pa.Array, vectors: NDArray[np.float32]) -> None:
        """Keep the embeddings, shape (n, dimensions), of the texts of these keys, shape (n,). Raises like `flush`."""
        self._hold(self._write(EMBEDDING, vectors_table(keys, vectors)), keys, vectors)

    def take_vectors(self, shard: EarlierShard) -> None:
        """Keep a whole shard of an earlier run, where it can be without writing it again. Raises like `flush`."""
        code = self._codes.of_digest(EMBEDDING, self._models[ROLES[EMBEDDING]], shard.digest)
        final = self.path / EMBEDDING / f"{code}.parquet"
        if durable.link(final, shard.path):
            self.sealer.note_digest(f"{EMBEDDING}/{final.name}", shard.digest)
            self._hold(final, shard.keys, shard.vectors())
        else:
            self.add_vectors(shard.keys, shard.vectors())

    def sync_names(self) -> None:
        """Make durable what `take_vectors` kept. Raises like `flush`."""
        with self._explained():
            durable.sync_folder(self.path / EMBEDDING)

    def _hold(self, shard: Path, keys: pa.Array, vectors: NDArray[np.float32]) -> None:
        def again() -> NDArray[np.float32]:
            return parse_vectors(self._checked(EMBEDDING, shard), str(shard))[1]

        self.vectors.add(keys, vectors, again)

    def write(self, name: str, data: bytes) -> Path:
        """Put a finished file into the run, whole or not at all."""
        with self._explained():
            self.sealer.write(self.path, name, data)
        return self.path / name

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except IncompleteError as error:
            raise IncompleteError(f"{self.path}: {error}; free space and start the same command again") from None

    def _write(self, kind: str, table: pa.Table) -> Path:
        data = parquet.write(table)
        code = shard_code(self._codes, kind, self._models, data)
        return self.write(f"{kind}/{code}.parquet", data)

    def _read(self, kind: str, parse: Callable[[bytes, str], T]) -> Iterator[tuple[Path, T]]:
        for shard in shards(self.path, kind):
            data = self._checked(kind, shard)
            self.sealer.note(f"{kind}/{shard.name}", data)
            yield shard, parse(data, str(shard))

    def _checked(self, kind: str, shard: Path) -> bytes:
        """Read a shard that this run wrote."""
        data = read_shard(shard)
        if shard.stem != shard_code(self._codes, kind, self._models, data):
            raise VerificationError(f"{shard}: {STRANGE}; delete it and resume, or choose another --out")
        return data

    def _known_models(self) -> dict[str, str]:
        if not (self.path / MODELS_FILE).exists():
            return {}
        self._models, raw = read_marker(self.path / MODELS_FILE)
        if self._models.pop(CODE, None) != self._code_of_models():
            raise VerificationError(f"{self.path / MODELS_FILE}: {STRANGE}; choose another --out")
        self.sealer.note(MODELS_FILE, raw)
        return self._models

    def _code_of_models(self) -> str:
        return self._codes.of(MODELS_FILE, "", json.dumps(self._models, sort_keys=True).encode())


def open_marker(path: Path, identity: Mapping[str, str]) -> bytes:
    """Make a folder the run of `identity`, or look whether it is, and return its marker's bytes.

    Raises:
        UsageError: it holds another run, or something that is no run.
        IncompleteError: the disk is full or refuses.
    """
    marker = path / MARKER_FILE
    # Another start may make the folder a run at any moment: it is foreign only where it is none after the look.
    if not marker.exists() and _is_foreign(path) and not marker.exists():
        raise UsageError(f"{path}: exists and is not a MemAudit run; choose another --out")
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not marker.exists():  # of two that start at once one writes it, and the other reads what it must be
            _mark(marker, json.dumps(dict(sorted(identity.items())), indent=1).encode())
    except OSError as error:
        raise IncompleteError(f"{path}: the run cannot be started ({error.strerror})") from None
    known, raw = read_marker(marker)
    different = sorted(name for name in identity.keys() | known.keys() if identity.get(name) != known.get(name))
    if different:
        raise UsageError(_refusal(path, different))
    return raw


def _is_foreign(path: Path) -> bool:
    """Tell whether a path that is no run holds something that no run left there."""
    return path.exists() and (not path.is_dir() or not all(map(durable.is_leftover, path.iterdir())))


def _refusal(path: Path, different: list[str]) -> str:
    """Say what differs, and the way on; what is finished is kept, since its purge may still have to be attested."""
    refused = f"{path}: holds a run with other {', '.join(different)}; choose another --out"
    if not (path / RESULT_FILE).exists():
        return f"{refused} or delete it"
    if "snapshot" not in different:
        return refused
    command = f"memaudit purge {shlex.quote(str(path))} STORE --apply"
    return f"{refused}; if a purge of that run was interrupted, finish it with: {command}"


def _mark(marker: Path, data: bytes) -> None:
    """Make a folder a run, unless another start just did; without hard links, as on some mounts, the last one does."""
    try:
        durable.create(marker, data, scratch=marker.parent)
    except IncompleteError:
        durable.replace(marker, data)
