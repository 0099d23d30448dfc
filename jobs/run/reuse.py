"""What an earlier run's models said, for a run that would ask them the same: a night pays for what is new.

Only comparisons and embeddings are taken over: they depend on texts and weights alone. An earlier run is a convenience
and no source of truth: a shard of it that cannot be read, or that no audit with these keys wrote
(`memory_audit.jobs.run.run_seal`), is passed over and said, and what it held is asked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.jobs.progress import say
from memory_audit.jobs.run.batches import pieces
from memory_audit.jobs.run.run_files import EMBEDDING, ENTAILMENT, ROLES, read_identity, read_models, shard_code, shards
from memory_audit.jobs.run.run_seal import Sealer
from memory_audit.jobs.run.shards import parse_vectors, parse_weights, read_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray


__all__ = ["EarlierRun"]

T = TypeVar("T")


class EarlierRun:
    """Another run's folder, read once it is asked for. Nothing is written there.

    Args:
        path: The folder; the run need not be finished.
        sealer: Knows the keys; None is one without.

    Raises:
        UsageError: no run there, or one of another format.
    """

    def __init__(self, path: Path, sealer: Sealer | None = None) -> None:
        self._codes = (Sealer() if sealer is None else sealer).codes(read_identity(path))
        self.path = path
        self.models = read_models(path)

    def weights(self, wanted: Collection[str], nli: str) -> Iterator[dict[str, float]]:
        """Yield what is known of `wanted` contradiction weights, by `shards.pair_key`, in pieces."""
        return self._known(ENTAILMENT, "comparisons", parse_weights, frozenset(wanted), nli)

    def vectors(
        self, wanted: Collection[str], embedder: str, dimensions: int
    ) -> Iterator[dict[str, NDArray[np.float32]]]:
        """Yield what is known of `wanted` embeddings, by `memory_audit.jobs.run.shards.text_key`, in pieces."""

        def fitting(data: bytes, where: str) -> dict[str, NDArray[np.float32]]:
            return {key: vector for key, vector in parse_vectors(data, where).items() if vector.shape == (dimensions,)}

        return self._known(EMBEDDING, "embeddings", fitting, frozenset(wanted), embedder)

    def _known(
        self, kind: str, what: str, parse: Callable[[bytes, str], dict[str, T]], wanted: frozenset[str], model_id: str
    ) -> Iterator[dict[str, T]]:
        theirs = self.models.get(ROLES[kind], "none")
        if theirs != model_id:
            say(f"nothing is taken over of the {ROLES[kind]} of {self.path}: it is {theirs:.80}, not {model_id:.80}")
        known: dict[str, T] = {}
        passed_over = 0
        for shard in shards(self.path, kind) if theirs == model_id else ():
            try:
                data = read_shard(shard)
                ours = shard.stem == shard_code(self._codes, kind, self.models, data)
                found = parse(data, str(shard)) if ours else None
            except UsageError:
                found = None
            if found is None:
                passed_over += 1
            else:
                known |= {key: value for key, value in found.items() if key in wanted}
        if passed_over:
            say(f"{self.path / kind}: {counted(passed_over, 'file')} not read: damaged, or not written with these keys")
        say(f"{len(known)} of {len(wanted)} {what} are those of {self.path}")
        for part in pieces(list(known)):
            yield {key: known[key] for key in part}
