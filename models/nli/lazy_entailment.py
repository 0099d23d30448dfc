"""An NLI model that is loaded when it is first asked, and only then, like the guard's backbone."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from memory_audit.models.loading import entailment_id, load_entailment

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_audit.models.loading import ModelSpecs
    from memory_audit.models.protocols import EntailmentModel

__all__ = ["LazyEntailment"]


class LazyEntailment:
    """Implements `memory_audit.models.protocols.EntailmentModel`. One call at a time.

    Raises:
        UsageError: a model that is not there.
    """

    def __init__(self, specs: ModelSpecs) -> None:
        self.model_id = entailment_id(specs)
        self._specs = specs

    @cached_property
    def _model(self) -> EntailmentModel:
        return load_entailment(self._specs)

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `memory_audit.models.protocols.EntailmentModel`."""
        return self._model.probabilities(pairs)
