"""Reads acts (`audit.forget.act`) from the packaged 0.5B's activations: a projection, and small networks for harm.

Both were fitted on scenarios written for this project (`python -m benchmarks.act_reading`): an act, the same act in
other words, and safe answers to the same request. The projection brings restatements together and puts safe answers
away; the networks tell harmful practice from sound. A text is read once. Its directions are of the states averaged as a
whole and over windows; a network looks at short passages, and its attention says which of them count, so that harmless
sentences around an act do not drown it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from audit.errors import UsageError
from audit.forget.act import ActCurve, ActReading
from models.hazard_probe import BACKBONE, READING, packaged_states, windows
from models.packaged import ensure
from models.weights_cache import folder_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "ACTS_FILE", "ActWeights", "HarmNetworks", "PackagedActReader", "passage_means", "read_act_weights", "window_means",
]  # fmt: skip

ACTS_FILE = "act_reader.npz"

_PARTS = ("projection", "offset", "units", "units_bias", "queries", "values", "scalars")
_SCALARS = 6

WINDOW_TOKENS = 60
"""Two or three sentences."""

PASSAGE_TOKENS = 16
"""A clause or two."""

WHOLE_UP_TO = 1.3
"""Windows longer than a text's own share of this are left out: such a text is one window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmNetworks:
    """Networks of one layer of rectified units over passages, pooled by attention; their mean counts."""

    units: NDArray[np.float32]
    """Shape (networks, units, hidden)."""

    units_bias: NDArray[np.float32]
    """Shape (networks, units)."""

    queries: NDArray[np.float32]
    """Shape (networks, heads, units): what a head looks for in a passage."""

    values: NDArray[np.float32]
    """Shape (networks, heads, units): what a passage says where a head looks."""

    bias: float

    def log_odds(self, passages: NDArray[np.float32]) -> float:
        """Return the log-odds in nats that a text of these passages, shape (passages, hidden), teaches harm."""
        told = []
        for units, bias, queries, values in zip(self.units, self.units_bias, self.queries, self.values, strict=True):
            active = np.maximum(passages @ units.T + bias, 0)
            sought = active @ queries.T
            attention = np.exp(sought - sought.max(axis=0))
            told.append(float((attention / attention.sum(axis=0) * (active @ values.T)).sum()))
        return sum(told) / len(told) + self.bias


@dataclass(frozen=True, slots=True, kw_only=True)
class ActWeights:
    """What turns states into readings; states have `hidden` dimensions."""

    projection: NDArray[np.float32]
    """Shape (dimensions, hidden)."""

    offset: NDArray[np.float32]
    """Shape (dimensions,)."""

    networks: HarmNetworks
    curve: ActCurve

    def reading(self, states: NDArray[np.float32]) -> ActReading:
        """Read a text by the states of its tokens, shape (tokens, hidden)."""
        return self.reading_of(window_means(states), passage_means(states))

    def reading_of(self, means: NDArray[np.float32], passages: NDArray[np.float32]) -> ActReading:
        """Read a text by the mean states of its windows, and of its passages, each of shape (…, hidden)."""
        found = means @ self.projection.T + self.offset
        return ActReading(
            directions=np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32),
            harm_nats=np.full(len(means), self.networks.log_odds(passages), np.float32),
        )

    def save(self, path: Path) -> None:
        """Write the file that `read_act_weights` reads."""
        curve, networks = self.curve, self.networks
        np.savez_compressed(
            path, projection=self.projection.astype(np.float16), offset=self.offset.astype(np.float32),
            units=networks.units.astype(np.float16), units_bias=networks.units_bias.astype(np.float32),
            queries=networks.queries.astype(np.float32), values=networks.values.astype(np.float32),
            scalars=np.array([
                networks.bias, curve.similarity_slope, curve.harm_slope, curve.bias, curve.threshold_nats,
                curve.doubt_nats,
            ]),
        )  # fmt: skip


class PackagedActReader:
    """Implements `audit.forget.act.ActReader`; its backbone is loaded when the first text is read.

    Raises:
        UsageError: the packaged backbone, or the file of weights, is not there.
    """

    def __init__(self) -> None:
        self._weights, digest = read_act_weights()
        self.curve = self._weights.curve
        self.model_id = f"{folder_id(ensure(BACKBONE))}+acts-{READING}-{digest}"

    def read(self, texts: Sequence[str]) -> tuple[ActReading, ...]:
        """See `audit.forget.act.ActReader`."""
        return tuple(map(self._weights.reading, packaged_states().tokens(texts)))


def window_means(states: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average the states of a text's tokens: over all, and where it is longer than a window, over each window.

    Args:
        states: Shape (tokens, hidden).

    Returns:
        Shape (1 + windows, hidden).
    """
    found = [states.mean(0)]
    if len(states) > WHOLE_UP_TO * WINDOW_TOKENS:
        found += [states[window[0] : window[-1] + 1].mean(0) for window in windows(range(len(states)), WINDOW_TOKENS)]
    return np.stack(found)


def passage_means(states: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average the states of a text's tokens: over all, and over each passage.

    Args:
        states: Shape (tokens, hidden).

    Returns:
        Shape (1 + passages, hidden); passages overlap by half.
    """
    passages = windows(range(len(states)), PASSAGE_TOKENS)
    return np.stack([states.mean(0), *(states[part[0] : part[-1] + 1].mean(0) for part in passages)])


def read_act_weights() -> tuple[ActWeights, str]:
    """Return the packaged weights, and a short digest of them.

    Raises:
        UsageError: the file is not one of weights.
    """
    raw = files("models").joinpath("data", ACTS_FILE).read_bytes()
    with files("models").joinpath("data", ACTS_FILE).open("rb") as file, np.load(file, allow_pickle=False) as data:
        arrays = {name: np.asarray(data[name], np.float32) for name in _PARTS}
    if [arrays[name].ndim for name in ("projection", "units", "queries")] != [2, 3, 3]:
        raise UsageError(f"{ACTS_FILE}: its parts are not of one reader")
    (rows, hidden), (networks, units, width) = arrays["projection"].shape, arrays["units"].shape
    heads = (networks, arrays["queries"].shape[1], units)
    expected = {
        "offset": (rows,), "units_bias": (networks, units), "queries": heads, "values": heads, "scalars": (_SCALARS,)
    }  # fmt: skip
    if width != hidden or any(arrays[name].shape != shape for name, shape in expected.items()):
        raise UsageError(f"{ACTS_FILE}: its parts are not of one reader")
    if not all(np.isfinite(part).all() for part in arrays.values()):
        raise UsageError(f"{ACTS_FILE}: a weight is no number")
    bias, similarity, harm, offset, threshold, doubt = map(float, arrays["scalars"])
    weights = ActWeights(
        projection=arrays["projection"], offset=arrays["offset"],
        networks=HarmNetworks(
            units=arrays["units"], units_bias=arrays["units_bias"], queries=arrays["queries"], values=arrays["values"],
            bias=bias,
        ),
        curve=ActCurve(
            similarity_slope=similarity, harm_slope=harm, bias=offset, threshold_nats=threshold, doubt_nats=doubt
        ),
    )  # fmt: skip
    return weights, hashlib.sha256(raw).hexdigest()[:16]
