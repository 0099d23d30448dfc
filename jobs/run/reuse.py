"""What an earlier run's models said, for a run that would ask them the same: a night pays for what is new.

Only comparisons and embeddings are taken over: they depend on texts and weights alone. An earlier run is a convenience
and no source of truth: a shard of it that cannot be read, or that no audit with these keys wrote
(`memory_audit.jobs.run.run_seal`), is passed over and said, and what it held is asked again.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.jobs.progress import say
from memory_audit.jobs.run.batches import pieces
from memory_audit.jobs.run.groups.plan import group_folders, may_share_tenants
from memory_audit.jobs.run.run_files import EMBEDDING, ENTAILMENT, ROLES, read_identity, read_models, shard_code, shards
from memory_audit.jobs.run.run_seal import Sealer
from memory_audit.jobs.run.shards import parse_vectors, parse_weights, read_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from memory_audit.jobs.run.run_seal import Codes

__all__ = ["EarlierRun"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    """One folder of shards, a group's or that of the run itself."""

    path: Path
    codes: Codes
    models: Mapping[str, str]


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
        self.read: dict[tuple[str, str], dict[str, Any]] = {}
        """By folder of ROLES and model id what its shards hold: a search asks for some of it in each round."""

        self.folders = [
            _Folder(path=folder, codes=sealer.codes(read_identity(folder)), models=read_models(folder))
            for folder in (path, *group_folders(path))
        ]

    def of(self, group: str) -> EarlierRun:
        """Return what that run knew of the tenants of one group of this one."""
        part = copy(self)
        part.read = {}
        part.folders = [folder for folder in self.folders if may_share_tenants(folder.path, group)]
        return part

    def weights(self, wanted: Collection[str], nli: str) -> Iterator[dict[str, float]]:
        """Yield what is known of `wanted` contradiction weights, by `shards.pair_key`, in pieces."""
        return self._known(ENTAILMENT, "comparisons", parse_weights, wanted, nli)

    def vectors(
        self, wanted: Collection[str], embedder: str, dimensions: int
    ) -> Iterator[dict[str, NDArray[np.float32]]]:
        """Yield what is known of `wanted` embeddings, by `memory_audit.jobs.run.shards.text_key`, in pieces."""

        def fitting(data: bytes, where: str) -> dict[str, NDArray[np.float32]]:
            return {key: vector for key, vector in parse_vectors(data, where).items() if vector.shape == (dimensions,)}

        return self._known(EMBEDDING, "embeddings", fitting, wanted, embedder)

    def _known(
        self, kind: str, what: str, parse: Callable[[bytes, str], dict[str, T]], wanted: Collection[str], model_id: str
    ) -> Iterator[dict[str, T]]:
        if (kind, model_id) not in self.read:
            self.read[kind, model_id] = self._all(kind, parse, model_id)
        held = self.read[kind, model_id]
        known: dict[str, T] = {key: held[key] for key in wanted if key in held}
        say(f"{len(known)} of {len(wanted)} {what} are those of {self.path}")
        for part in pieces(list(known)):
            yield {key: known[key] for key in part}

    def _all(self, kind: str, parse: Callable[[bytes, str], dict[str, T]], model_id: str) -> dict[str, T]:
        """Read all shards of one kind that this model answered."""
        known: dict[str, T] = {}
        for folder in self.folders:
            if (theirs := folder.models.get(ROLES[kind], model_id)) != model_id:
                other = f"it is {theirs:.80}, not {model_id:.80}"
                say(f"nothing is taken over of the {ROLES[kind]} of {folder.path}: {other}")
                continue
            passed_over = 0
            for shard in shards(folder.path, kind):
                try:
                    data = read_shard(shard)
                    ours = shard.stem == shard_code(folder.codes, kind, folder.models, data)
                    found = parse(data, str(shard)) if ours else None
                except UsageError:
                    found = None
                if found is None:
                    passed_over += 1
                else:
                    known |= found
            if passed_over:
                held = counted(passed_over, "file")
                say(f"{folder.path / kind}: {held} not read: damaged, or not written with these keys")
        return known
