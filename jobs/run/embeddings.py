"""Embed texts with the executor, past what the run folder, or the run before it, already knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memory_audit.consistency.neighbours import check_vectors
from memory_audit.jobs.progress import stage, tally
from memory_audit.jobs.run.batches import pieces
from memory_audit.jobs.run.shards import text_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from memory_audit.jobs.executors.executor import Executor
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
    missing = {key: text for key, text in wanted.items() if key not in run.vectors}
    if missing and run.earlier is not None:
        embedder = executor.embedder
        run.record_models({"embedder": embedder.model_id})
        _, dimensions = embedder.embed([]).shape
        for known in run.earlier.vectors(missing, embedder.model_id, dimensions):
            run.add_vectors(known)
        missing = {key: text for key, text in missing.items() if key not in run.vectors}
    tally().of("embed").known += len(wanted) - len(missing)
    if not missing:
        return
    with stage("embedding memories", len(missing), label="embed") as progress:
        for part in pieces(list(missing)):
            vectors = executor.embedder.embed([missing[key] for key in part])
            check_vectors(vectors)
            run.record_models({"embedder": executor.embedder.model_id})
            run.add_vectors(dict(zip(part, vectors, strict=True)))
            progress.advance(len(part))


def vectors_of(texts: Sequence[str], run: RunFolder) -> NDArray[np.float32]:
    """Return the unit vectors of texts that are embedded, shape (texts, dimensions); at least one text."""
    return np.stack([run.vectors[text_key(text)] for text in texts])
