"""What an earlier run's models said, for a run that would ask them the same: a night pays for what is new.

Embeddings and comparisons depend on texts and weights alone. A replay depends on its prompt, on the backbone, and on
`AuditRequest.program`: agent, harm scorer, seed and samples. Who takes a replay over looks at its prompt
(`memory_audit.jobs.run.replays`).

An earlier run is a convenience and no source of truth: a shard of it that cannot be read, or that no audit with these
keys wrote (`memory_audit.jobs.run.run_seal`), is passed over and said, and what it held is asked again.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from memory_audit.counted import counted
from memory_audit.errors import AuditError, UsageError
from memory_audit.jobs.run.groups.plan import group_folders, may_share_tenants
from memory_audit.jobs.run.run_files import (
    EMBEDDING,
    ENTAILMENT,
    PROGRAM,
    REPLAYS,
    ROLES,
    read_identity,
    read_models,
    shards,
)
from memory_audit.jobs.run.run_seal import MAX_SEAL_BYTES, SEAL_FILE, Sealer, read_seal
from memory_audit.jobs.run.shards import parse_outcomes, parse_vectors, parse_weights, read_shard
from memory_audit.jobs.run.vectors import HELD_BYTES
from memory_audit.jobs.watching.progress import say
from memory_audit.provenance import durable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.jobs.run.run_seal import Codes
    from memory_audit.provenance.trust_policy import TrustPolicy

__all__ = ["EarlierRun", "EarlierShard", "last_run"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    """One folder of shards, a group's or that of the run itself."""

    path: Path
    codes: Codes
    models: Mapping[str, str]
    program: str | None
    """Digest, of a group's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierShard:
    """A shard of embeddings."""

    path: Path
    digest: str
    """SHA-256 (hex) of the file."""

    keys: pa.Array
    """`memory_audit.jobs.run.shards.text_key` of each text, shape (n,)."""

    held: NDArray[np.float32] | None
    """None where too much is held already."""

    def vectors(self) -> NDArray[np.float32]:
        """Return them, shape (n, dimensions).

        Raises:
            UsageError: the file was changed since.
        """
        if self.held is not None:
            return self.held
        data = read_shard(self.path)
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise UsageError(f"{self.path}: changed while it was taken over; start the same command again")
        return parse_vectors(data, str(self.path))[1]


class EarlierRun:
    """Another run's folder, read once it is asked for. Nothing is written there.

    Args:
        path: The folder; the run need not be finished.
        sealer: Knows the keys; None is one without.

    Raises:
        UsageError: no run there, or one of another format.
    """

    def __init__(self, path: Path, sealer: Sealer | None = None) -> None:
        sealer = Sealer() if sealer is None else sealer
        self.path = path
        self.taken = Counter[str]()
        """What was taken over: embeddings, comparisons, replays."""

        self._weights: dict[str, dict[str, float]] = {}
        self._vectors: dict[tuple[str, int], list[EarlierShard]] = {}
        self._replays: dict[tuple[str, str], defaultdict[tuple[str, ...], list[Outcome]]] = {}
        self.folders = []
        for folder in (path, *group_folders(path)):
            identity = read_identity(folder)
            self.folders.append(
                _Folder(
                    path=folder, codes=sealer.codes(identity), models=read_models(folder), program=identity.get(PROGRAM)
                )
            )

    def of(self, group: str) -> EarlierRun:
        """Return what that run knew of the tenants of one group of this one."""
        part = copy(self)
        part.taken, part._weights, part._vectors, part._replays = Counter(), {}, {}, {}  # noqa: SLF001 - a copy
        part.folders = [folder for folder in self.folders if may_share_tenants(folder.path, group)]
        return part

    def weights(self, wanted: Collection[str], nli: str) -> dict[str, float]:
        """Return what is known of `wanted` contradiction weights, by `memory_audit.jobs.run.shards.pair_key`."""
        if nli not in self._weights:
            found = self._shards(ENTAILMENT, nli, parse_weights)
            self._weights[nli] = {key: weight for _, _, weights in found for key, weight in weights.items()}
        held = self._weights[nli]
        known = {key: held[key] for key in wanted if key in held}
        self.taken["comparisons"] += len(known)
        return known

    def vectors(self, embedder: str, dimensions: int) -> Sequence[EarlierShard]:
        """Return all shards of embeddings of so many dimensions."""
        if (embedder, dimensions) not in self._vectors:
            known: list[EarlierShard] = []
            held = 0
            for path, digest, (keys, vectors) in self._shards(EMBEDDING, embedder, parse_vectors):
                if vectors.shape[1] == dimensions:
                    held += vectors.nbytes
                    known.append(EarlierShard(path=path, digest=digest, keys=keys, held=vectors))
                    if held > HELD_BYTES:
                        known = [replace(shard, held=None) for shard in known]
            self._vectors[embedder, dimensions] = known
        return self._vectors[embedder, dimensions]

    def replays(self, backbone: str, program: str) -> Mapping[tuple[str, ...], Sequence[Outcome]]:
        """Return replays by pair id, and those as text also by event and what was shown: more than one of each."""
        if (backbone, program) not in self._replays:
            known = self._replays[backbone, program] = defaultdict(list)
            for _, _, outcomes in self._shards(REPLAYS, backbone, parse_outcomes, program):
                for outcome in outcomes:
                    known[outcome.pair_id,].append(outcome)
                    if outcome.answers:
                        known[outcome.event_id, *outcome.context].append(outcome)
        return self._replays[backbone, program]

    def _shards(
        self, kind: str, model_id: str, parse: Callable[[bytes, str], T], program: str | None = None
    ) -> Iterator[tuple[Path, str, T]]:
        """Yield each shard of one kind that this model answered, with the SHA-256 (hex) of its file."""
        for folder in self.folders:
            if (theirs := folder.models.get(ROLES[kind], model_id)) != model_id:
                other = f"it is {theirs:.80}, not {model_id:.80}"
                say(f"nothing is taken over of the {ROLES[kind]} of {folder.path}: {other}")
                continue
            if program is not None and folder.program != program:
                continue
            passed_over = 0
            for shard in shards(folder.path, kind):
                try:
                    data = read_shard(shard)
                    digest = hashlib.sha256(data).hexdigest()
                    ours = shard.stem == folder.codes.of_digest(kind, folder.models.get(ROLES[kind], ""), digest)
                    found = parse(data, str(shard)) if ours else None
                except UsageError:
                    found = None
                if found is None:
                    passed_over += 1
                else:
                    yield shard, digest, found
            if passed_over:
                held = counted(passed_over, "file")
                say(f"{folder.path / kind}: {held} not read: damaged, or not written with these keys")


def last_run(out: Path, store_id: str, trust: TrustPolicy, sealer: Sealer) -> EarlierRun | None:
    """Return the run beside `out` that was sealed last, of those of one store; None where there is none.

    What is not finished, has no seal that verifies, or cannot be read is passed over.
    """
    folder = out.absolute().parent
    sealed = [run for run in folder.iterdir() if (run / SEAL_FILE).is_file()] if folder.is_dir() else []
    for run in sorted(sealed, key=lambda run: (run / SEAL_FILE).stat().st_mtime_ns, reverse=True):
        if run != out.absolute():
            with suppress(AuditError):
                data = durable.read_bounded(run / SEAL_FILE, MAX_SEAL_BYTES, SEAL_FILE)
                if read_seal(data, trust, SEAL_FILE).store_id == store_id:
                    return EarlierRun(run, sealer)
    return None
