"""A backbone that is loaded when it is first asked, and only then: most writes that a guard sees never need one.

One whose engine died is loaded again when it is next asked: a guard outlives it.

A server's is nothing to load: its client is made at once, so that an address that cannot be meant is heard before the
first write that needs it. The server is not contacted for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.errors import ModelLostError
from memory_audit.models.backbone.generator_http import OutageError
from memory_audit.models.loading import backbone_id, load_generator, served_here

if TYPE_CHECKING:
    from memory_audit.generation import Completion, GenerationRequest
    from memory_audit.models.loading import ModelSpecs
    from memory_audit.models.protocols import Generator

__all__ = ["LazyGenerator"]


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
