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
from memory_audit.jobs.run.run_folder import EMBEDDING, ENTAILMENT, read_identity, read_models, shard_code, shards
from memory_audit.jobs.run.run_seal import Sealer
from memory_audit.jobs.run.shards import parse_vectors, parse_weights, read_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
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
        same = self._same("nli", nli)
        known = self._known(ENTAILMENT, parse_weights, frozenset(wanted)) if same else {}
        return self._found("comparisons", wanted, known)

    def vectors(
        self, wanted: Collection[str], embedder: str, dimensions: int
    ) -> Iterator[dict[str, NDArray[np.float32]]]:
        """Yield what is known of `wanted` embeddings, by `memory_audit.jobs.run.shards.text_key`, in pieces."""
        same = self._same("embedder", embedder)
        known = self._known(EMBEDDING, parse_vectors, frozenset(wanted)) if same else {}
        fitting = {key: vector for key, vector in known.items() if vector.shape == (dimensions,)}
        return self._found("embeddings", wanted, fitting)

    def _same(self, role: str, model_id: str) -> bool:
        theirs = self.models.get(role, "none")
        if theirs != model_id:
            say(f"nothing is taken over of the {role} of {self.path}: it is {theirs:.80}, not {model_id:.80}")
        return theirs == model_id

    def _known(self, kind: str, parse: Callable[[bytes, str], dict[str, T]], wanted: frozenset[str]) -> dict[str, T]:
        known: dict[str, T] = {}
        passed_over = 0
        for shard in shards(self.path, kind):
            try:
                data = read_shard(shard)
                found = (
                    parse(data, str(shard)) if shard.stem == shard_code(self._codes, kind, self.models, data) else None
                )
            except UsageError:
                found = None
            if found is None:
                passed_over += 1
            else:
                known |= {key: value for key, value in found.items() if key in wanted}
        if passed_over:
            say(f"{self.path / kind}: {counted(passed_over, 'file')} not read: damaged, or not written with these keys")
        return known

    def _found(self, what: str, wanted: Collection[str], known: Mapping[str, T]) -> Iterator[dict[str, T]]:
        say(f"{len(known)} of {len(wanted)} {what} are those of {self.path}")
        for part in pieces(list(known)):
            yield {key: known[key] for key in part}
