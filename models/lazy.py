"""Models that are loaded when they are first asked, and only then; their ids are known before.

Most writes that a guard sees need no backbone, and most resumed audits no embedder. A backbone whose engine died is
loaded again when it is next asked: a guard outlives it. One behind a server is nothing to load: its client is made at
once, so that an address that cannot be meant is heard before the first write that needs it. The server is not contacted
for that.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from memory_audit.errors import ModelLostError
from memory_audit.models.backbone.generator_http import OutageError
from memory_audit.models.loading import (
    backbone_id,
    embedder_id,
    entailment_id,
    load_embedder,
    load_entailment,
    load_generator,
    served_here,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_audit.generation import Completion, GenerationRequest
    from memory_audit.models.loading import ModelSpecs
    from memory_audit.models.protocols import Embedder, EntailmentModel, Generator

__all__ = ["LazyEmbedder", "LazyEntailment", "LazyGenerator"]


class LazyGenerator:
    """Implements `memory_audit.models.protocols.Generator`. One event loop.

    Raises:
        UsageError: a backbone that is not there, or cannot be meant.
    """

    def __init__(self, specs: ModelSpecs) -> None:
        self.model_id = backbone_id(specs.backbone)
        self._specs = specs
        self._generator: Generator | None = None if served_here(specs.backbone) else load_generator(specs)

    async def start(self) -> None:
        """Load the backbone now, in a minute or so. Idempotent. Raises like `loading.load_generator`."""
        self._loaded()

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request; see `memory_audit.models.protocols.Generator`."""
        generator = self._loaded()
        try:
            return await generator.generate(request)
        except OutageError:  # a server's client is as good as before
            raise
        except ModelLostError:
            if self._generator is generator:  # of many that failed together the first
                await self.close()
            raise

    def _loaded(self) -> Generator:
        if self._generator is None:
            self._generator = load_generator(self._specs)  # nothing is awaited here: two first requests load it once
        return self._generator

    async def close(self) -> None:
        """Close the backbone, if it was loaded. Idempotent."""
        generator, self._generator = self._generator, None
        if generator is not None:
            await generator.close()


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

    def load(self) -> None:
        """Load it now. Idempotent."""
        _ = self._model

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `memory_audit.models.protocols.EntailmentModel`."""
        return self._model.probabilities(pairs)


class LazyEmbedder:
    """Implements `memory_audit.models.protocols.Embedder`. One call at a time.

    Raises:
        UsageError: a model that is not there.
    """

    def __init__(self, specs: ModelSpecs) -> None:
        self.model_id = embedder_id(specs)
        self._specs = specs

    @cached_property
    def _model(self) -> Embedder:
        return load_embedder(self._specs)

    def load(self) -> None:
        """Load it now. Idempotent."""
        _ = self._model

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see `memory_audit.models.protocols.Embedder`."""
        return self._model.embed(texts)
