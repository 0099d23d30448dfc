"""Embed texts with the executor, past what the run folder, or the run before it, already knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_audit.consistency.neighbours import check_vectors
from memory_audit.jobs.run.batches import pieces
from memory_audit.jobs.run.shards import text_key
from memory_audit.jobs.watching.progress import stage, tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.run.reuse import EarlierRun
    from memory_audit.jobs.run.run_folder import RunFolder

__all__ = ["embed_texts", "vectors_of"]


def embed_texts(texts: Iterable[str], executor: Executor, run: RunFolder) -> None:
    """Embed what is not known yet; each vector is kept in the run folder as soon as it is known.

    Args:
        texts: Of all tenants, so that they share batches and one progress bar; repetitions are asked once.
        executor: Whose embedder answers.
        run: What is known.

    Raises:
        ModelError: the embedder failed, or gave what is no unit vector; what was embedded is on disk.
    """
    wanted = {text_key(text): text for text in texts}
    missing = _missing(wanted, run)
    if missing and run.earlier is not None:
        embedder = executor.embedder
        run.record_models({"embedder": embedder.model_id})
        _, dimensions = embedder.embed([]).shape
        _take_over(missing, run.earlier, embedder.model_id, dimensions, run)
        missing = _missing(missing, run)
    tally().of("embed").known += len(wanted) - len(missing)
    if not missing:
        return
    with stage("embedding memories", len(missing), label="embed") as progress:
        for part in pieces(list(missing)):
            vectors = executor.embedder.embed([missing[key] for key in part])
            check_vectors(vectors)
            run.record_models({"embedder": executor.embedder.model_id})
            run.add_vectors(pa.array(part, pa.string()), vectors)
            progress.advance(len(part))


def _missing(texts: dict[str, str], run: RunFolder) -> dict[str, str]:
    keys = list(texts)
    return {keys[place]: texts[keys[place]] for place in run.vectors.missing(keys).tolist()}


def _take_over(missing: dict[str, str], earlier: EarlierRun, embedder: str, dimensions: int, run: RunFolder) -> None:
    """Keep what an earlier run knows: a shard as it is where all of it is wanted, else its part that is.

    What is not wanted may be of a text that was erased since.
    """
    shards = earlier.vectors(embedder, dimensions)
    known = pa.chunked_array([shard.keys for shard in shards], pa.string())
    wanted = pc.is_in(known, value_set=pa.array(list(missing), pa.string())).to_numpy()
    ends = np.cumsum([len(shard.keys) for shard in shards])
    for shard, new in zip(shards, np.split(wanted, ends[:-1]), strict=True) if shards else ():
        count = int(new.sum())
        if 0 < count == len(new):
            run.take_vectors(shard)
        elif count:
            run.add_vectors(shard.keys.filter(pa.array(new)), shard.vectors()[new])
        earlier.taken["embeddings"] += count
    run.sync_names()


def vectors_of(texts: Sequence[str], run: RunFolder) -> NDArray[np.float32]:
    """Return the unit vectors of texts that are embedded, shape (texts, dimensions); at least one text."""
    return run.vectors.of([text_key(text) for text in texts])
