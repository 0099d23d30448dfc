"""Figures of merit for edge weights: AUC, calibration, and the best threshold, all out of fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "Fitted", "auc", "best_threshold", "brier", "calibration_error", "cross_validated", "fit", "precision_recall",
    "reliability",
]  # fmt: skip

RIDGE = 1e-2
"""Keeps slopes finite where a score separates the classes."""

BINS = 10
Scores = "NDArray[np.float64]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A logistic curve over scores."""

    bias: float
    slopes: tuple[float, ...]

    def weights(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map scores of shape (pairs, methods) to probabilities of shape (pairs,)."""
        return np.asarray(1.0 / (1.0 + np.exp(-(self.bias + scores @ np.asarray(self.slopes)))))


def fit(scores: NDArray[np.float64], edges: NDArray[np.bool_], *, steps: int = 100) -> Fitted:
    """Fit by Newton's method with a ridge on standardised scores."""
    mean, spread = scores.mean(axis=0), np.maximum(scores.std(axis=0), 1e-9)
    design = np.column_stack([np.ones(len(scores)), (scores - mean) / spread])
    penalty = np.diag([0.0, *[RIDGE * len(scores)] * scores.shape[1]])
    theta = np.zeros(design.shape[1])
    for _ in range(steps):
        probability = 1.0 / (1.0 + np.exp(-np.clip(design @ theta, -60, 60)))
        gradient = design.T @ (probability - edges) + penalty @ theta
        hessian = (design * (probability * (1 - probability) + 1e-9)[:, None]).T @ design + penalty
        step = np.linalg.solve(hessian, gradient)
        theta -= step
        if np.abs(step).max() < 1e-10:
            break
    slopes = theta[1:] / spread
    return Fitted(bias=float(theta[0] - slopes @ mean), slopes=tuple(float(slope) for slope in slopes))


def cross_validated(
    scores: NDArray[np.float64], edges: NDArray[np.bool_], groups: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Judge each group by a curve and a threshold that never saw it.

    Returns:
        Weights and decisions, each of shape (pairs,).
    """
    weights, decisions = np.zeros(len(edges)), np.zeros(len(edges), np.bool_)
    names = np.asarray(groups)
    for group in sorted(set(groups)):
        held = names == group
        fitted = fit(scores[~held], edges[~held])
        weights[held] = fitted.weights(scores[held])
        decisions[held] = weights[held] >= best_threshold(fitted.weights(scores[~held]), edges[~held])
    return weights, decisions


def auc(values: NDArray[np.float64], edges: NDArray[np.bool_]) -> float:
    """Probability that an edge scores above a pair without one; ties count half."""
    positive, negative = values[edges], values[~edges]
    above = (positive[:, None] > negative[None, :]).sum() + 0.5 * (positive[:, None] == negative[None, :]).sum()
    return float(above / (len(positive) * len(negative)))


def brier(weights: NDArray[np.float64], edges: NDArray[np.bool_]) -> float:
    """Mean squared distance of a weight from the truth."""
    return float(np.mean((weights - edges) ** 2))


def reliability(weights: NDArray[np.float64], edges: NDArray[np.bool_]) -> list[dict[str, float | int]]:
    """Per tenth of the weight: how many pairs, their mean weight, and how many of them are edges in truth."""
    places = np.minimum((weights * BINS).astype(int), BINS - 1)
    return [
        {
            "from": place / BINS,
            "pairs": int((places == place).sum()),
            "mean_weight": round(float(weights[places == place].mean()), 4),
            "edges": round(float(edges[places == place].mean()), 4),
        }
        for place in range(BINS)
        if (places == place).any()
    ]


def calibration_error(weights: NDArray[np.float64], edges: NDArray[np.bool_]) -> float:
    """Expected calibration error: mean gap between weight and truth over the bins, by their pairs."""
    places = np.minimum((weights * BINS).astype(int), BINS - 1)
    gaps = [
        (places == place).sum() * abs(float(weights[places == place].mean()) - float(edges[places == place].mean()))
        for place in range(BINS)
        if (places == place).any()
    ]
    return float(sum(gaps) / len(weights))


def best_threshold(weights: NDArray[np.float64], edges: NDArray[np.bool_]) -> float:
    """Return the weight from which on calling a pair an edge has the best F1; the lowest of equals."""
    order = np.argsort(-weights, kind="stable")
    ranked, hits = weights[order], np.cumsum(edges[order])
    ends = np.append(ranked[1:] != ranked[:-1], True)
    f1 = np.where(ends, 2 * hits / (np.arange(1, len(hits) + 1) + edges.sum()), -1.0)
    place = len(f1) - 1 - int(np.argmax(f1[::-1]))
    following = ranked[place + 1] if place + 1 < len(ranked) else 0.0
    return float((ranked[place] + following) / 2)


def precision_recall(decisions: NDArray[np.bool_], edges: NDArray[np.bool_]) -> tuple[float, float]:
    """Precision (0 where nothing is called an edge) and recall."""
    hits = int((decisions & edges).sum())
    return hits / max(int(decisions.sum()), 1), hits / int(edges.sum())
