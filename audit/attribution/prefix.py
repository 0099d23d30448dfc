"""The paper's choice of S, made checkable: the smallest prefix of the DS ranking whose removal ends the harm on replay.

Used with `attribution: loo`, where plain leave-one-out CMIS and CAS are fused and ranked (Algorithm 1) and S is cut
from the top of that ranking. The same plan and observe rounds as `SetSearch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import Ablation, Outcome, leave_out
from memory_audit.events import HARMFUL
from memory_audit.fusion import PrefixSearch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memory_audit.attribution.search.state import EventState

__all__ = ["PrefixChoice"]


class PrefixChoice:
    """Replays the live events of one tenant without growing prefixes of a ranking."""

    def __init__(self, ranking: Sequence[str], states: Iterable[EventState], *, limit: int) -> None:
        """Start the choice.

        Args:
            ranking: Entry ids, most suspicious first.
            states: The events after attribution; only open ones are replayed.
            limit: Longest prefix that may be removed.
        """
        self._ranking = tuple(ranking)
        self._states = [state for state in states if state.status == "open"]
        self._search = PrefixSearch(limit=min(limit, len(self._ranking)))
        self._size: int | None = None

    @property
    def removed(self) -> tuple[str, ...]:
        """S; empty where no prefix within the limit ends the harm."""
        return self._ranking[: self._search.smallest or 0]

    def plan(self) -> tuple[Ablation, ...]:
        """Return the next round; empty when S is chosen."""
        if not self._states:
            return ()
        self._size = self._search.proposal()
        return () if self._size is None else self._round(self._size)

    def observe(self, outcomes: Iterable[Outcome]) -> None:
        """Take the round's outcomes."""
        if self._size is None:
            return
        wanted = {ablation.pair_id for ablation in self._round(self._size)}
        harms = [outcome.harm for outcome in outcomes if outcome.pair_id in wanted]
        harmful = any(harm is None or harm >= HARMFUL for harm in harms)
        self._search.record(self._size, harm=harmful)

    def _round(self, size: int) -> tuple[Ablation, ...]:
        removed = frozenset(self._ranking[:size])
        return tuple(leave_out(state.event.event_id, "removal", "text", removed) for state in self._states)
