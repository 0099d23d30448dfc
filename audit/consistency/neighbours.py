"""Nearest neighbours of one tenant's entries by cosine similarity: the skeleton of the memory consistency graph.

Rules:
1. One call sees one tenant's vectors; nothing here can pair entries of two tenants.
2. Each unordered pair comes out once, as (i, j) with i < j, sorted.
3. Ties are decided by similarity, then by index. Similarities are computed in float64 and rounded to SIMILARITY_STEP
   before they are compared, so that the order of a matrix product's sums cannot decide a tie.
4. Up to EXACT_LIMIT entries the search is exact (blocked matrix products). Above it, candidates are proposed and ranked
   exactly: for all entries by an inverted file of faiss, for some of them, or without faiss, by products in float32.
   A caller with a GPU proposes candidates by products there (`memory_audit.models.gpu_neighbours`).

Embedding is done by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from memory_audit.errors import AnswerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Propose = Callable[[NDArray[np.float32], int], NDArray[np.int64] | None]
    """From vectors (n, d) and a count, candidate neighbours (n, count) of each, itself too; None where it cannot."""

__all__ = ["EXACT_LIMIT", "Neighbours", "check_vectors", "nearest"]

SIMILARITY_STEP = 1e-7
"""Similarities closer than this are ties: float32 embeddings carry no more digits."""

EXACT_LIMIT = 10_000
"""Entries up to which the exact search is used: 10,000 vectors of 384 take about 10 s on two cores."""

UNIT_TOLERANCE = 1e-3
"""Allowed distance of a vector's norm from 1: bfloat16 embedders are that coarse."""

_BLOCK_FLOATS = 1 << 20
"""Similarities held at once (8 MiB of float64): larger blocks are no quicker, and five copies are made of each."""

_SCANNED_FLOATS = 1 << 24
"""As many of float32 (64 MiB) where some entries are compared with all of a large store."""

_STEPS = round(1 / SIMILARITY_STEP)
SPARE_CANDIDATES = 16
"""Candidates asked of float32 beyond k, so that float32 rounding near the k-th cannot lose a neighbour."""

_PROBED_CELLS = 16
"""With four times sqrt(n) cells, recall at 10 was 0.999 on 30,000 loose clusters of 30 (384 dimensions)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Which entries of one tenant are near each other."""

    rows: NDArray[np.int64]
    """Shape (r,): the entries whose neighbours these are."""

    pairs: NDArray[np.int64]
    """Shape (m, 2): unordered pairs i < j, sorted; a pair is here when one of `rows` has the other as a neighbour."""

    similarity: NDArray[np.float64]
    """Shape (m,): cosine of each pair, in steps of SIMILARITY_STEP."""

    lists: NDArray[np.int64]
    """Shape (r, min(k, n - 1)): the neighbours of each of `rows`, most similar first."""

    list_pairs: NDArray[np.int64]
    """Same shape: the row of `pairs` that joins the entry with that neighbour."""

    @property
    def size(self) -> int:
        """Number of entries whose neighbours these are."""
        return len(self.rows)

    @classmethod
    def of_lists(cls, lists: NDArray[np.int64], similarity: NDArray[np.float64]) -> Neighbours:
        """Return the neighbours of all entries of a tenant from their lists and the cosines there, both (n, k)."""
        return _assemble(np.arange(len(lists)), lists, _steps(similarity))

    def beside(self, more: Neighbours) -> Neighbours:
        """Return these and the neighbours of other entries of the same tenant."""
        steps = [_steps(found.similarity)[found.list_pairs] for found in (self, more)]
        return _assemble(
            np.concatenate([self.rows, more.rows]), np.concatenate([self.lists, more.lists]), np.concatenate(steps)
        )


def nearest(  # noqa: PLR0913 - vectors, how many of whom, and how they are found
    vectors: NDArray[np.float32],
    k: int,
    *,
    rows: NDArray[np.int64] | None = None,
    method: Literal["auto", "exact", "faiss"] = "auto",
    seed: int = 0,
    propose: Propose | None = None,
) -> Neighbours:
    """Find the k nearest others of each entry.

    Args:
        vectors: Shape (n, d), rows of unit norm, all of one tenant.
        k: Neighbours per entry, at least 1; fewer where the store is smaller.
        rows: Shape (r,): the entries whose neighbours are wanted; None is all.
        method: `auto` is exact up to EXACT_LIMIT entries and faiss above.
        seed: Of faiss's clustering.
        propose: What proposes candidates for all entries in place of faiss, also for few of them.

    Raises:
        AnswerError: the vectors are not finite or not of unit norm.
        UsageError: k is less than 1.
    """
    check_vectors(vectors)
    if k < 1:
        raise UsageError(f"k is {k}, expected at least 1 neighbour")
    n = len(vectors)
    width = min(k, max(n - 1, 0))
    wanted = np.arange(n) if rows is None else rows
    if width == 0 or len(wanted) == 0:
        return _assemble(wanted, *np.zeros((2, len(wanted), width), dtype=np.int64))
    candidates = None if propose is None or rows is not None else propose(vectors, min(n, width + 1 + SPARE_CANDIDATES))
    if candidates is None:
        if method == "exact" or (method == "auto" and n <= EXACT_LIMIT):
            return _assemble(wanted, *_exact(vectors.astype(np.float64), wanted, width))
        candidates = _faiss_candidates(vectors, width, seed) if rows is None else None
    if candidates is None:
        candidates = _scanned_candidates(vectors, wanted, width)
    return _assemble(wanted, *_rank(vectors, wanted, candidates, width))


def check_vectors(vectors: NDArray[np.float32]) -> None:
    """Check what an embedder gave, shape (texts, dimensions).

    Raises:
        AnswerError: another shape, or a row that is not of unit norm.
    """
    if vectors.ndim != 2:  # noqa: PLR2004 - rows and columns
        raise AnswerError(f"embeddings have shape {vectors.shape}, expected (entries, dimensions)")
    norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
    bad = np.flatnonzero(~(np.abs(norms - 1) <= UNIT_TOLERANCE))  # also true for NaN and infinity
    if len(bad):
        raise AnswerError(f"embedding {bad[0]} has norm {norms[bad[0]]:.4g}, expected 1; is the embedder normalising?")


def _steps(similarity: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(similarity * _STEPS).astype(np.int64)


def _exact(
    wide: NDArray[np.float64], rows: NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return neighbour indices and similarities in steps, both (len(rows), width)."""
    n = len(wide)
    lists = np.empty((len(rows), width), dtype=np.int64)
    steps = np.empty_like(lists)
    block = max(1, _BLOCK_FLOATS // n)
    tie_break = np.arange(n - 1, -1, -1)
    for start in range(0, len(rows), block):
        chosen = rows[start : start + block]
        # One integer per candidate orders by similarity, then by index: larger is better.
        keys = _steps(wide[chosen] @ wide.T) * n + tie_break
        keys[np.arange(len(chosen)), chosen] = np.iinfo(np.int64).min
        top = np.sort(np.partition(keys, n - width, axis=1)[:, n - width :], axis=1)[:, ::-1]
        lists[start : start + block] = n - 1 - top % n
        steps[start : start + block] = top // n
    return lists, steps


def _faiss_candidates(vectors: NDArray[np.float32], width: int, seed: int) -> NDArray[np.int64] | None:
    """Return candidate neighbours (n, width + spare), -1 where there is none; None where faiss is not installed."""
    try:
        import faiss  # noqa: PLC0415 - compiled and optional: only large stores need it
    except ImportError:
        return None
    n, dimensions = vectors.shape
    contiguous = np.ascontiguousarray(vectors, dtype=np.float32)
    cells = max(1, min(round(4 * n**0.5), n // 2))
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimensions), dimensions, cells, faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = seed
    index.cp.min_points_per_centroid = 1  # below this faiss only prints a warning
    index.train(contiguous)
    index.add(contiguous)
    index.nprobe = max(_PROBED_CELLS, cells // 32)
    found: NDArray[np.int64] = index.search(contiguous, min(n, width + 1 + SPARE_CANDIDATES))[1]
    return found


def _scanned_candidates(vectors: NDArray[np.float32], rows: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """Return candidate neighbours of some entries (len(rows), width + spare), by comparing each with all."""
    n = len(vectors)
    count = min(n, width + 1 + SPARE_CANDIDATES)
    found = np.empty((len(rows), count), dtype=np.int64)
    block = max(1, _SCANNED_FLOATS // n)
    for start in range(0, len(rows), block):
        similarity = vectors[rows[start : start + block]] @ vectors.T
        found[start : start + block] = np.argpartition(similarity, n - count, axis=1)[:, n - count :]
    return found


def _rank(
    vectors: NDArray[np.float32], rows: NDArray[np.int64], candidates: NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rank candidates exactly; a row with too few of them is searched in full."""
    n = len(vectors)
    lists = np.empty((len(rows), width), dtype=np.int64)
    steps = np.empty_like(lists)
    usable = (candidates >= 0) & (candidates != rows[:, None])
    block = max(1, _BLOCK_FLOATS // (candidates.shape[1] * vectors.shape[1]))
    for start in range(0, len(rows), block):
        part = candidates[start : start + block]
        own, others = (vectors[chosen].astype(np.float64) for chosen in (rows[start : start + block], part))
        keys = _steps(np.einsum("nd,ncd->nc", own, others)) * n + (n - 1 - part)
        keys[~usable[start : start + block]] = np.iinfo(np.int64).min
        top = np.sort(keys, axis=1)[:, ::-1][:, :width]
        lists[start : start + block] = n - 1 - top % n
        steps[start : start + block] = top // n
    short = np.flatnonzero(usable.sum(axis=1) < width)
    if len(short):
        lists[short], steps[short] = _exact(vectors.astype(np.float64), rows[short], width)
    return lists, steps


def _assemble(rows: NDArray[np.int64], lists: NDArray[np.int64], steps: NDArray[np.int64]) -> Neighbours:
    owners = np.repeat(rows, lists.shape[1])
    others = lists.ravel()
    low, high = np.minimum(owners, others), np.maximum(owners, others)
    span = int(high.max(initial=0)) + 1
    codes, first, inverse = np.unique(low * span + high, return_index=True, return_inverse=True)
    return Neighbours(
        rows=rows,
        pairs=np.stack([codes // span, codes % span], axis=1),
        similarity=np.clip(steps.ravel()[first] / _STEPS, -1.0, 1.0),
        lists=lists,
        list_pairs=inverse.reshape(lists.shape).astype(np.int64),
    )
