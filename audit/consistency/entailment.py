"""From NLI probabilities to the inconsistency weight w of a pair (paper section 4, eq. 8).

NLI is directed and contradiction is not, so each pair is asked both ways, and w is the larger contradiction
probability of the two. The caller asks the model between `plan_pairs` and `weights`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import AnswerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["distributions", "plan_pairs", "weights"]

CLASSES = 3
CONTRADICTION = 0
"""Column of the contradiction class (`memory_audit.models.protocols.EntailmentModel`)."""

SUM_TOLERANCE = 1e-2
"""Allowed distance of a row's sum from 1: int8 and bfloat16 heads round that much."""


def plan_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """List the (premise, hypothesis) questions of m pairs of passages (`Entry.text`).

    Returns:
        Shape (2m, 2): rows 2t and 2t + 1 are pair t forwards and backwards.
    """
    return [question for a, b in pairs for question in ((a, b), (b, a))]


def weights(probabilities: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return w of each pair, shape (m,), from the answers to `plan_pairs` in its order, shape (2m, 3).

    Raises:
        AnswerError: the shape is wrong, or a row is not a probability distribution.
    """
    if probabilities.ndim != 2 or probabilities.shape[1] != CLASSES or len(probabilities) % 2:  # noqa: PLR2004 - a table
        raise AnswerError(f"NLI answered with shape {probabilities.shape}, expected (2 x pairs, 3)")
    wide = distributions(probabilities, len(probabilities))
    both: NDArray[np.float64] = wide[:, CONTRADICTION].reshape(-1, 2).max(axis=1)
    return np.minimum(both, 1.0)


def distributions(probabilities: NDArray[np.float32], questions: int) -> NDArray[np.float64]:
    """Return the answers to so many questions as they are, shape (questions, 3).

    Raises:
        AnswerError: the shape is wrong, or a row is not a probability distribution.
    """
    wide = np.asarray(probabilities, dtype=np.float64)
    if wide.shape != (questions, CLASSES):
        raise AnswerError(f"NLI answered with shape {wide.shape}, expected ({questions}, {CLASSES})")
    sums = wide.sum(axis=1)
    sound = (wide >= 0).all(axis=1) & (np.abs(sums - 1) <= SUM_TOLERANCE)  # false for NaN and infinity too
    bad = np.flatnonzero(~sound)
    if len(bad):
        row = ", ".join(f"{value:.3g}" for value in wide[bad[0]])
        raise AnswerError(f"NLI row {bad[0]} is ({row}), expected three probabilities that sum to 1")
    return wide
