"""Reads acts (`audit.forget.act`) from the packaged 0.5B's activations: a projection, and a small network for harm.

Both were fitted on scenarios written for this project (`python -m benchmarks.act_reading`): an act, the same act in
other words, and safe answers to the same request. The projection brings restatements together and puts safe answers
away; the network tells harmful practice from sound. A text is read once, and averaged as a whole and over windows of
its tokens, so that harmless sentences around an act do not drown it.
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

__all__ = ["ACTS_FILE", "ActWeights", "PackagedActReader", "read_act_weights", "window_means"]

ACTS_FILE = "act_reader.npz"

_PARTS = ("projection", "offset", "units", "units_bias", "harm", "scalars")

WINDOW_TOKENS = 60
"""Two or three sentences."""

WHOLE_UP_TO = 1.3
"""Windows longer than a text's own share of this are left out: such a text is one window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActWeights:
    """What turns states into readings; states have `hidden` dimensions."""

    projection: NDArray[np.float32]
    """Shape (dimensions, hidden)."""

    offset: NDArray[np.float32]
    """Shape (dimensions,)."""

    units: NDArray[np.float32]
    """Shape (units, hidden): one layer of rectified units."""

    units_bias: NDArray[np.float32]
    """Shape (units,)."""

    harm: NDArray[np.float32]
    """Shape (units,)."""

    harm_bias: float
    curve: ActCurve

    def reading(self, means: NDArray[np.float32]) -> ActReading:
        """Read mean states, shape (windows, hidden)."""
        found = means @ self.projection.T + self.offset
        active = np.maximum(means @ self.units.T + self.units_bias, 0)
        return ActReading(
            directions=np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32),
            harm_nats=np.asarray(active @ self.harm + self.harm_bias, np.float32),
        )

    def save(self, path: Path) -> None:
        """Write the file that `read_act_weights` reads."""
        curve = self.curve
        np.savez_compressed(
            path, projection=self.projection.astype(np.float16), offset=self.offset.astype(np.float32),
            units=self.units.astype(np.float16), units_bias=self.units_bias.astype(np.float32),
            harm=self.harm.astype(np.float32),
            scalars=np.array([
                self.harm_bias, curve.similarity_slope, curve.harm_slope, curve.bias, curve.threshold_nats
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
        return tuple(self._weights.reading(window_means(states)) for states in packaged_states().tokens(texts))


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


def read_act_weights() -> tuple[ActWeights, str]:
    """Return the packaged weights, and a short digest of them.

    Raises:
        UsageError: the file is not one of weights.
    """
    raw = files("models").joinpath("data", ACTS_FILE).read_bytes()
    with files("models").joinpath("data", ACTS_FILE).open("rb") as file, np.load(file, allow_pickle=False) as data:
        arrays = {name: np.asarray(data[name], np.float32) for name in _PARTS}
    (rows, hidden), (units, width) = arrays["projection"].shape, arrays["units"].shape
    shapes = (arrays["offset"].shape, arrays["units_bias"].shape, arrays["harm"].shape, arrays["scalars"].shape)
    if width != hidden or shapes != ((rows,), (units,), (units,), (5,)):
        raise UsageError(f"{ACTS_FILE}: its parts are not of one reader")
    if not all(np.isfinite(part).all() for part in arrays.values()):
        raise UsageError(f"{ACTS_FILE}: a weight is no number")
    bias, similarity, harm, offset, threshold = map(float, arrays["scalars"])
    weights = ActWeights(
        projection=arrays["projection"], offset=arrays["offset"], units=arrays["units"],
        units_bias=arrays["units_bias"], harm=arrays["harm"], harm_bias=bias,
        curve=ActCurve(similarity_slope=similarity, harm_slope=harm, bias=offset, threshold_nats=threshold),
    )  # fmt: skip
    return weights, hashlib.sha256(raw).hexdigest()[:16]
