"""Embed texts with the executor, past what the run folder, or the run before it, already knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobs.shards import text_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from jobs.executor import Executor
    from jobs.progress import Reporter
    from jobs.run_folder import RunFolder

__all__ = ["embed_texts", "pieces_of", "vectors_of"]

WRITES = 128
"""Pieces that long work is cut into: the bar moves, an interruption costs one, and the disk holds few files."""

TEXTS_PER_WRITE = 256
"""At least so many go together: a batch of the embedder."""


def pieces_of(count: int, least: int) -> int:
    """Return how many of `count` go together, so that there are at most WRITES pieces of at least `least`."""
    return max(least, -(-count // WRITES))


def embed_texts(texts: Iterable[str], executor: Executor, run: RunFolder, reporter: Reporter) -> None:
    """Embed what is not known yet; each vector is kept in the run folder as soon as it is known.

    Args:
        texts: Of all tenants, so that they share batches and one progress bar; repetitions are asked once.
        executor: Whose embedder answers.
        run: What is known.
        reporter: Progress.

    Raises:
        ModelError: the embedder failed; what was embedded is on disk.
    """
    missing = {key: text for text in texts if (key := text_key(text)) not in run.vectors}
    if missing and run.earlier is not None:
        executor.embed([])  # loaded now, so that its id is known
        run.record_models(executor.model_ids())
        if found := run.earlier.vectors(missing, run.models["embedder"]):
            run.add_vectors(found)
            reporter.say(f"{len(found)} of {len(missing)} embeddings are those of {run.earlier.path}")
            missing = {key: text for key, text in missing.items() if key not in found}
    keys = list(missing)
    step = pieces_of(len(keys), TEXTS_PER_WRITE)
    with reporter.stage("embedding memories", len(keys)) as progress:
        for start in range(0, len(keys), step):
            part = keys[start : start + step]
            vectors = executor.embed([missing[key] for key in part])
            run.record_models(executor.model_ids())
            run.add_vectors(dict(zip(part, vectors, strict=True)))
            progress.advance(len(part))


def vectors_of(texts: Sequence[str], run: RunFolder) -> NDArray[np.float32]:
    """Return the unit vectors of texts that are embedded, shape (texts, dimensions); at least one text."""
    return np.stack([run.vectors[text_key(text)] for text in texts])
