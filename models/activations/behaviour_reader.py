"""Reads behaviours (`blocks.behaviour`) from a packaged backbone's activations: a projection, and small networks.

All were fitted on scenarios written for this project (`python -m training.behaviour_reading`): a behaviour, the same
behaviour in other words, and safe answers to the same request. The projection brings restatements together and puts
safe answers away; the networks (`memory_audit.models.activations.behaviour_networks`) tell harm by itself, and whether
a text restates a given behaviour. A text is read once. Its direction is of the states averaged as a whole; the networks
look at short passages. The layers of the backbone were adapted together with the networks, as low-rank updates
(`memory_audit.models.activations.low_rank`), which nobody else reads with; in these layers a token sees what follows
it, too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_audit.errors import UsageError
from memory_audit.guard.blocks.behaviour import BehaviourCurve, BehaviourFeatures
from memory_audit.models.activations.behaviour_networks import ComparingNetworks, HarmNetworks
from memory_audit.models.activations.hidden_states import (
    BACKBONE,
    LAYER,
    READING,
    HiddenStates,
    packaged_states,
    windows,
)
from memory_audit.models.calibration import read_calibration
from memory_audit.models.weights.cache import folder_id
from memory_audit.models.weights.coder import coder_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "FIRST",
    "SCALE",
    "SECOND",
    "PackagedBehaviourReader",
    "ReaderFile",
    "ReaderWeights",
    "adapted",
    "passage_means",
    "passage_slices",
    "read_weights",
    "weights_of",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderFile:
    """A packaged reader's weights, and whose states they read."""

    name: str
    backbone: str
    """One of `memory_audit.models.weights.coder.CODERS`."""

    layer: int
    """Whose output is read; those above are not loaded."""

    @property
    def calibration(self) -> str:
        """Name of the file with its curve."""
        return self.name.replace(".npz", ".json")


FIRST = ReaderFile(name="act_reader.npz", backbone=BACKBONE, layer=LAYER)
"""Reads every write."""

SECOND = ReaderFile(name="act_reader_second.npz", backbone="1.5b", layer=16)
"""Reads what the first leaves open (`memory_audit.models.activations.behaviour_cascade`). Of 28 layers."""

PASSAGE_TOKENS = 16
"""A clause or two."""

SCALE = ".scale"
"""Ends the name of the array that another one, of int8 codes, is multiplied by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderWeights:
    """What turns states into readings; states have `hidden` dimensions."""

    projection: NDArray[np.float32]
    """Shape (dimensions, hidden)."""

    offset: NDArray[np.float32]
    """Shape (dimensions,)."""

    harm: HarmNetworks
    comparing: ComparingNetworks
    curve: BehaviourCurve
    updates: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Of the backbone's layers, see `low_rank.with_updates`; states are read with them."""

    def reading(self, passages: NDArray[np.float32]) -> BehaviourFeatures:
        """Read a text by its `passage_means`."""
        found = passages[0] @ self.projection.T + self.offset
        return BehaviourFeatures(
            direction=np.asarray(found / np.linalg.norm(found), np.float32), harm_nats=self.harm.log_odds(passages),
            passages=self.comparing.seen(passages),
        )  # fmt: skip

    def log_odds(self, reading: BehaviourFeatures, behaviours: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `memory_audit.guard.blocks.behaviour.BehaviourReader`."""
        return self.curve.log_odds(reading.harm_nats, self.comparing.log_odds(reading.passages, behaviours))


class PackagedBehaviourReader:
    """Implements `behaviour_cascade.OneReader`; its backbone is loaded when the first text is read.

    It is an `memory_audit.guard.blocks.behaviour.BehaviourReader` as well, whose curve knows of no threshold for what
    is in
    doubt: a guard has the two together (`memory_audit.models.activations.behaviour_cascade.packaged_cascade`).

    Args:
        source: Which.

    Raises:
        UsageError: the packaged backbone, or the file of weights, is not there.
    """

    def __init__(self, source: ReaderFile = FIRST) -> None:
        self._source = source
        self._weights, digest = read_weights(source)
        self.curve = self._weights.curve
        self.dimensions = len(self._weights.projection)
        self.model_id = f"{folder_id(coder_folder(source.backbone))}+acts-{READING}-{digest}"

    def read(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """See `memory_audit.guard.blocks.behaviour.BehaviourReader`."""
        return tuple(self._weights.reading(passage_means(states)) for states in self._states.tokens(texts))

    taught = read
    """See `memory_audit.guard.blocks.behaviour.BehaviourReader`: removed texts are read as all others are."""

    def log_odds(self, reading: BehaviourFeatures, behaviours: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `memory_audit.guard.blocks.behaviour.BehaviourReader`."""
        return self._weights.log_odds(reading, behaviours)

    def restated_nats(self, reading: BehaviourFeatures, behaviours: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `memory_audit.models.activations.behaviour_cascade.OneReader`."""
        return self._weights.comparing.log_odds(reading.passages, behaviours)

    @cached_property
    def _states(self) -> HiddenStates:
        return adapted(packaged_states(self._source.backbone, self._source.layer), self._weights.updates)


def adapted(states: HiddenStates, updates: Mapping[str, NDArray[np.float32]]) -> HiddenStates:
    """Return the states that a reader with these updates reads.

    Raises:
        ModelError: they do not fit the backbone.
    """
    import torch  # noqa: PLC0415 - heavy, and loaded when the first text is read

    return states.updated({name: torch.from_numpy(part) for name, part in updates.items()}) if updates else states


def passage_means(states: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average the states of a text's tokens: over all, and over each passage.

    Args:
        states: Shape (tokens, hidden).

    Returns:
        Shape (1 + passages, hidden); passages overlap by half.
    """
    return np.stack([states[tokens].mean(0) for tokens in passage_slices(len(states))])


def passage_slices(count: int) -> list[slice]:
    """Return which of a text's tokens are averaged: all, and each passage."""
    passages = windows(range(count), PASSAGE_TOKENS)
    return [slice(0, count), *(slice(part[0], part[-1] + 1) for part in passages)]


def read_weights(source: ReaderFile = FIRST) -> tuple[ReaderWeights, str]:
    """Return a packaged reader's weights and curve, and a short digest of the weights.

    Raises:
        UsageError: a file is not there, the weights are not those that were calibrated, or the calibration is none.
    """
    expected, curve = read_calibration(source.calibration, weights_sha256=str, curve=BehaviourCurve)
    try:
        raw = files("memory_audit.models").joinpath("data", source.name).read_bytes()
    except OSError as error:
        raise UsageError(f"{source.name}: {error.strerror or error}; install MemAudit again") from None
    if (digest := hashlib.sha256(raw).hexdigest()) != expected:
        raise UsageError(f"{source.name}: sha256 is {digest}, expected {expected}; install MemAudit again")
    with np.load(BytesIO(raw), allow_pickle=False) as stored:
        return weights_of(stored, curve), digest[:16]


def weights_of(stored: Mapping[str, NDArray[Any]], curve: BehaviourCurve) -> ReaderWeights:
    """Return the weights that a file's arrays hold, in single precision: codes are multiplied by their scales."""
    arrays = {
        name: np.asarray(stored[name] * stored.get(f"{name}{SCALE}", np.float32(1)), np.float32)
        for name in stored if not name.endswith(SCALE)
    }  # fmt: skip
    return ReaderWeights(
        updates=_taken("layers", arrays), projection=arrays["projection"], offset=arrays["offset"],
        harm=HarmNetworks(**_taken("harm", arrays)), comparing=ComparingNetworks(**_taken("comparing", arrays)),
        curve=curve,
    )  # fmt: skip


def _taken(kind: str, arrays: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Return the parts of one kind of a file's arrays."""
    return {name.removeprefix(f"{kind}."): part for name, part in arrays.items() if name.startswith(f"{kind}.")}
