"""Where an audit's work is done.

The flow in `audit_memory` knows only this interface; with the fakes both sides give equal bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.jobs.executors.replay_group import Program, ReplayGroup
    from memory_audit.models.loading import Part
    from memory_audit.models.protocols import Embedder, EntailmentModel, Generator

__all__ = ["Executor", "Work"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Work(Protocol[T_co]):
    """Work that can be done in any process that sees the same files. Can be pickled."""

    @property
    def memory_bytes(self) -> int:
        """About how much main memory it takes."""
        ...

    @property
    def parts(self) -> frozenset[Part]:
        """Which models it asks: the others are not started for it."""
        ...

    def __call__(self, executor: Executor) -> T_co:
        """Do it, with the models of an executor."""
        ...

    def failed(self, error: Exception) -> T_co:
        """Say what it comes to where it cannot be done: its process ended each time."""
        ...


class Executor(Protocol):
    """Holds the three models. They start when first asked for; `close` ends them."""

    machine: str
    """Where they run: the name of a host, or the address of a cluster."""

    @property
    def backbone(self) -> Generator:
        """The backbone; asking for it starts it, so that its minutes are not taken for slow replays.

        Raises:
            ModelError: it cannot be served.
            UsageError: it is not there.
        """
        ...

    @property
    def embedder(self) -> Embedder:
        """The embedder. Raises like `backbone`, at the latest when it is first asked."""
        ...

    @property
    def entailment(self) -> EntailmentModel:
        """The NLI model. Raises like `backbone`, at the latest when it is first asked."""
        ...

    def replay(self, groups: Sequence[ReplayGroup], program: Program) -> Iterator[Outcome]:
        """Answer every question of every group, in any order, yielding outcomes as they arrive.

        Raises:
            ModelError: the backbone died; what was yielded is good.
        """
        ...

    def each(self, works: Sequence[Work[T]]) -> Iterator[T]:
        """Do works that ask these models, in any order, yielding what each comes to.

        Raises:
            AuditError: one of them failed; what was yielded is good.
        """
        ...

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work that awaits the backbone, and return what it returns."""
        ...

    @property
    def on_cluster(self) -> bool:
        """Whether its models can be asked from tasks on other machines."""
        ...

    def close(self) -> None:
        """End the models. Idempotent."""
        ...
