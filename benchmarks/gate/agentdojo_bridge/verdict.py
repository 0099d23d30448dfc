"""What a defence is asked and what it says: values only, importable without AgentDojo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RETRY", "Defence", "Returned", "Verdict"]

RETRY = "Refused. Try again without"
"""How the refusal of a generic retry begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """One executed call and what the tool returned."""

    tool: str
    arguments: dict[str, Any]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a defence decides about one call."""

    arguments: dict[str, Any] | None
    """What to execute (as proposed, or repaired); None where refused."""

    reason: str = ""
    repaired: bool = False
    quarantine: frozenset[int] = frozenset()
    """Positions in `returned` that the model must do without when it tries again."""


class Defence(Protocol):
    """One row of the benchmark; a new one for every run."""

    def judge(self, request: str, tool: str, arguments: dict[str, Any], returned: Sequence[Returned]) -> Verdict:
        """Decide about a call."""
        ...

    def judge_answer(self, request: str, text: str, returned: Sequence[Returned]) -> str:
        """Return what of the answer may go to the user."""
        ...
