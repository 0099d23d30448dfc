"""An NLI model that is loaded when it is first asked, and only then, like the guard's backbone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.loading import entailment_id, load_entailment

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from models.loading import ModelSpecs
    from models.protocols import EntailmentModel

__all__ = ["LazyEntailment"]


class LazyEntailment:
    """Implements `models.protocols.EntailmentModel`. One call at a time.

    Raises:
        UsageError: a model that is not there.
    """

    def __init__(self, specs: ModelSpecs) -> None:
        self.model_id = entailment_id(specs)
        self._specs = specs
        self._model: EntailmentModel | None = None

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `models.protocols.EntailmentModel`."""
        if self._model is None:
            self._model = load_entailment(self._specs)
        return self._model.probabilities(pairs)
