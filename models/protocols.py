"""The three edges at which MemAudit meets a model, each one small interface with a real and a fake side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_audit.generation import Completion, GenerationRequest

__all__ = ["Embedder", "EntailmentModel", "Generator"]


class Generator(Protocol):
    """The backbone: a chat model behind vLLM, an OpenAI-compatible server, or a fake."""

    model_id: str
    """Name and digest of the weights, for memo keys and the attestation."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request. Call it concurrently: batching and the prefix cache live behind it.

        Raises:
            ModelError: the server refused the request, or answered outside its contract.
            ModelLostError: it died, or cannot be reached: another one may answer.
        """
        ...

    async def close(self) -> None:
        """Release the server. Idempotent."""
        ...


class EntailmentModel(Protocol):
    """A natural language inference model."""

    model_id: str

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score (premise, hypothesis) pairs.

        Returns:
            Shape (len(pairs), 3), rows sum to 1, columns contradiction, neutral, entailment; in the order given.
        """
        ...


class Embedder(Protocol):
    """A sentence embedding model."""

    model_id: str

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts.

        Returns:
            Shape (len(texts), dimensions), rows of unit L2 norm, in the order given; of no texts, too.
        """
        ...
