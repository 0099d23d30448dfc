"""What the judging of a write asks of models. It asks by yielding; whoever drives it answers, or throws in the failure.

`memory_audit.guard.decide.judge` yields these and knows no model, thread or loop; `memory_audit.guard.decide.readers`
answers them.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memory_audit.guard.blocks.key_table import KeyTable

__all__ = ["Ask", "Embed", "ReadBehaviour", "ReadHazards", "Steps"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Embed:
    """Asks for vectors of texts: shape (texts, dimensions)."""

    texts: list[str]


@dataclass(frozen=True, slots=True)
class ReadBehaviour:
    """Asks how likely texts restate removed behaviours: for each text its log-odds in nats, shape (tombstones,).

    They are NaN where a tombstone has no behaviour, and -inf where the text is not held against it. For a text that
    could not be compared the answer is a line that says why.
    """

    texts: list[str]
    stones: list[NDArray[np.bool_]]
    """Of each text the tombstones that it is held against, shape (tombstones,): a reader may look closer where it finds
    a behaviour likely, and not for one that does not count."""

    behaviours: KeyTable
    """Of the tombstones."""


@dataclass(frozen=True, slots=True)
class ReadHazards:
    """Asks for the hazard signatures of texts: by taxonomy one for each text, None where the model gave none."""

    texts: list[str]
    taxonomies: tuple[str, ...]
    """Their digests."""


Ask = Embed | ReadBehaviour | ReadHazards

Steps = Generator[Ask, Any, T]
"""A judgement under way."""
