"""Where an audit's work is done.

The flow in `audit_memory` knows only this interface; with the fakes both sides give equal bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.jobs.executors.replay_group import Program, ReplayGroup
    from memory_audit.models.protocols import Generator

__all__ = ["Executor"]

T = TypeVar("T")


class Executor(Protocol):
    """Runs models over batches. Models start when first used; `close` ends them."""

    def start_backbone(self) -> None:
        """Load the backbone now, so that its minutes are not taken for slow replays. Idempotent.

        Raises:
            ModelError: it cannot be served.
            UsageError: it is not there.
        """
        ...

    def replay(self, groups: Sequence[ReplayGroup], program: Program) -> Iterator[Outcome]:
        """Answer every question of every group, in any order, yielding outcomes as they arrive.

        Raises:
            ModelError: the backbone died; what was yielded is good.
        """
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `memory_audit.models.protocols.Embedder`."""
        ...

    def entail(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """See `memory_audit.models.protocols.EntailmentModel`."""
        ...

    def ask(self, work: Callable[[Generator], Coroutine[Any, Any, T]]) -> T:
        """Run work that talks to the backbone, and return what it returns.

        Raises:
            ModelError: the backbone died.
        """
        ...

    def model_ids(self) -> dict[str, str]:
        """Return role (backbone, nli, embedder) to model id, of those that were used."""
        ...

    def close(self) -> None:
        """End the models. Idempotent."""
        ...
