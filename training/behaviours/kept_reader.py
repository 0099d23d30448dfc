"""A reader of behaviours over states that are kept on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_audit.guard.blocks.behaviour import BehaviourFeatures
    from memory_audit.models.activations.behaviour_reader import ReaderWeights
    from training.behaviours.corpus import Scenario

    Read = Callable[[Sequence[str]], Sequence[NDArray[np.float32]]]

__all__ = ["KeptReader"]


class KeptReader:
    """Implements `behaviour_cascade.OneReader`, and `behaviour.BehaviourReader` for one thread.

    Args:
        weights: The reader's.
        model_id: Its name.
        read: Texts to the `passage_means` that these weights read.
    """

    def __init__(self, weights: ReaderWeights, model_id: str, read: Read) -> None:
        self.model_id, self.weights, self.dimensions = model_id, weights, len(weights.projection)
        self.curve = weights.curve
        self._read = read
        self._known: dict[str, BehaviourFeatures] = {}

    def prepare(self, texts: Sequence[str]) -> None:
        """Read texts, all at once: the file of states is large, and each call of `read` opens it."""
        new = sorted({text for text in texts if text not in self._known})
        if new:
            states = self._read(new)
            self._known.update(zip(new, map(self.weights.reading, states), strict=True))

    def read(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """See `BehaviourReader`."""
        self.prepare(texts)
        return tuple(self._known[text] for text in texts)

    taught = read
    """See `BehaviourReader`."""

    def log_odds(self, reading: BehaviourFeatures, behaviours: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `BehaviourReader`."""
        return self.weights.log_odds(reading, behaviours)

    def restated_nats(self, reading: BehaviourFeatures, behaviours: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `OneReader`."""
        return self.weights.comparing.log_odds(reading.passages, behaviours)

    def said(self, scenario: Scenario, place: int) -> tuple[float, float]:
        """Return what is said of a scenario's text with its behaviour: that it restates it, and that it is harmful."""
        behaviour, text = self.read([scenario.texts[0], scenario.texts[place]])
        return float(self.restated_nats(text, behaviour.direction[None])[0]), text.harm_nats
