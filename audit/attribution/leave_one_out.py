"""The paper's own attribution: plain leave-one-out CMIS, and S as the shortest prefix of a ranking that ends harm.

Used with `attribution: loo`, behind the same `plan` and `observe` as `SetSearch`.

1. *Reproduction.* Replay each event with the whole store and with no memory.
2. *Necessity.* Leave out each retrieved memory in turn, and retrieve anew: CMIS is the harm that goes with it (eq. 7).
3. *Choosing.* CMIS and CAS are fused into a ranking (Algorithm 1), and S is cut from its top: growing prefixes are left
   out until the harm of every event is gone. A budget on S takes the place of this step; one on replays does not count
   it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from memory_audit.attribution.evidence import Influence, difference, sum_over_events
from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.attribution.replays.ablation import Ablation, keep_only, leave_out
from memory_audit.attribution.search.event import EventState, Replays, judge_reproduction
from memory_audit.attribution.trace import Step
from memory_audit.events import HARMFUL
from memory_audit.fusion import PrefixSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.events import Event

__all__ = ["LeaveOneOut"]

PREFIX_SHARE = 0.5
"""Longest prefix of the ranking that may be removed: beyond half, the store is not repaired but lost."""


WHY = {
    "reproduction": "what the whole store and no memory do is known",
    "necessity": "what goes with each memory is known, and memories are ranked",
    "choosing": "a prefix of the ranking was left out, or none is left to try",
}
"""Per phase what followed, for the log of the run."""


class LeaveOneOut:
    """Plain leave-one-out over one tenant's events."""

    def __init__(  # noqa: PLR0913 - what is searched, how it counts, and who learns of it
        self,
        memory: RankedMemory,
        events: Sequence[Event],
        *,
        flip_nats: float,
        rank: Callable[[Mapping[str, float]], Sequence[str]] | None = None,
        max_replays: int | None = None,
        tell: Callable[[Step], None] | None = None,
    ) -> None:
        """Start.

        Args:
            memory: Retrieval over the tenant's live entries.
            events: The harmful events, all of this tenant.
            flip_nats: What harm that goes counts for, in nats, where necessity is reported.
            rank: From CMIS by entry id to all entry ids, most suspicious first; None chooses no S.
            max_replays: Budget on the replays of the first two steps; None is no budget.
            tell: Learns of each step, for the log of the run.
        """
        self._memory, self._rank, self._budget, self._flip_nats = memory, rank, max_replays, flip_nats
        self._tell = tell
        ordered = sorted(events, key=lambda event: event.event_id)
        self._states = {event.event_id: EventState(event=event) for event in ordered}
        self._ranking: Sequence[str] = ()
        self._prefixes = PrefixSearch(limit=0)
        self._asked: dict[str, Ablation] = {}
        self._planned = 0
        self._left_out: list[str] = []
        self.beyond_budget: tuple[str, ...] = ()
        """What a budget of replays left out, by name."""

        self.phase: Literal["reproduction", "necessity", "choosing", "done"] = "reproduction"
        """What the next round is for, for progress lines."""

    @property
    def states(self) -> Mapping[str, EventState]:
        """What is known of each event, by id."""
        return self._states

    @property
    def removal(self) -> RemovalSet:
        """S; empty where no prefix within the limit ends the harm."""
        chosen = self._ranking[: self._prefixes.smallest or 0]
        return RemovalSet(attributed=dict.fromkeys(chosen, "in the smallest prefix of the ranking that ends the harm"))

    @property
    def by_evidence(self) -> Collection[str]:
        """Members of S that are there by evidence of their own, and not by rank: none."""
        return ()

    @property
    def influence(self) -> Mapping[str, float]:
        """CMIS summed over events, by entry id."""
        return sum_over_events(
            (entry_id, influence.cmis)
            for state in self._states.values()
            for entry_id, influence in sorted(state.influences.items())
        )

    @property
    def awaited(self) -> frozenset[str]:
        """Nothing: all memories are ranked, and their inconsistency is known before."""
        return frozenset()

    @property
    def not_examined(self) -> list[str]:
        """What the budget left out, one line each."""
        return self._left_out

    def plan(self) -> tuple[Ablation, ...]:
        """Return the next round, by event, the full prompt first; empty when S is chosen."""
        while self.phase != "done":
            asked, bounded = self._round(), self.phase != "choosing" and self._budget is not None
            if not asked:
                self.observe(())
            elif bounded and self._planned + len(asked) > (self._budget or 0):
                self._give_up(f"budget of {self._budget} replays is spent")
            else:
                self._planned += len(asked) * (self.phase != "choosing")
                self._asked = {item.pair_id: item for item in asked}
                return tuple(sorted(asked, key=lambda item: (item.event_id, item.kind != "full", item.pair_id)))
        return ()

    def observe(self, outcomes: Iterable[Outcome]) -> None:
        """Take the outcomes of the planned round, in any order; all of them or an error of the caller's own."""
        seen = {self._asked[outcome.pair_id]: outcome for outcome in outcomes}
        phase, before, was = self.phase, self._states, self.removal
        match phase:
            case "reproduction":
                self._states = {event_id: self._reproduced(state, seen) for event_id, state in before.items()}
                self.phase = "necessity"
            case "necessity":
                self._states = {event_id: self._measured(state, seen) for event_id, state in before.items()}
                self._rank_all()
            case "choosing" if seen:
                harmful = any(outcome.harm is None or outcome.harm >= HARMFUL for outcome in seen.values())
                self._prefixes.record(len(next(iter(seen)).removed), harm=harmful)
            case _:
                self.phase = "done"
        self._say(phase, before, was, WHY[phase], sorted(seen.items(), key=lambda pair: pair[0].pair_id))

    def _round(self) -> list[Ablation]:
        states = [state for state in self._states.values() if state.settled is None]
        match self.phase:
            case "reproduction":
                return [ablation for event_id in self._states for ablation in (_full(event_id), _bare(event_id))]
            case "necessity":
                return [_without(state, name) for state in states for name in self._context(state)]
            case _:
                size = self._prefixes.proposal() if states else None
                gone = frozenset(self._ranking[:size])
                return [] if size is None else [leave_out(s.event_id, "removal", "text", gone) for s in states]

    def _rank_all(self) -> None:
        """Rank all entries, to cut S from the top; without a ranking nothing is left to choose."""
        self.phase = "done" if self._rank is None else "choosing"
        self._ranking = [] if self._rank is None else self._rank(self.influence)
        self._prefixes = PrefixSearch(limit=int(PREFIX_SHARE * len(self._ranking)))

    def _give_up(self, why: str) -> None:
        """End the attribution, and list what it leaves unexamined; the ranking is made of what is known."""
        phase, before = self.phase, self._states
        given_up = {
            event_id: state.settle("not examined" if state.full is None else "not cleared", why)
            for event_id, state in before.items()
            if state.settled is None
        }
        self._states = {**before, **given_up}
        self.beyond_budget = tuple(f"event {event_id}" for event_id in given_up)
        self._left_out = [f"{name}: {why}" for name in self.beyond_budget]
        self._rank_all()
        self._say(phase, before, RemovalSet(), why)

    def _say(
        self,
        phase: str,
        before: Mapping[str, EventState],
        was: RemovalSet,
        why: str,
        answers: Sequence[tuple[Ablation, Outcome]] = (),
    ) -> None:
        if self._tell is not None:
            step = Step(
                phase=phase, next=self.phase, why=why, answers=answers, before=before, after=self._states, was=was,
                now=self.removal,
            )  # fmt: skip
            self._tell(step)

    def _context(self, state: EventState) -> tuple[str, ...]:
        return self._memory.context(state.event.query, logged=state.event.retrieved)

    def _reproduced(self, state: EventState, seen: Mapping[Ablation, Outcome]) -> EventState:
        full, bare = seen[_full(state.event_id)], seen[_bare(state.event_id)]
        replays = Replays(full=full, without_memory=bare, by_context={self._context(state): full, (): bare})
        return judge_reproduction(replace(state, replays=replays), full, bare)

    def _measured(self, state: EventState, seen: Mapping[Ablation, Outcome]) -> EventState:
        if state.settled is not None or state.full is None:
            return state
        influences = {}
        for name in self._memory.in_log_order(self._context(state)):
            cmis = difference(state.full.harm, seen[_without(state, name)].harm)
            nats = None if cmis is None else cmis * self._flip_nats
            influences[name] = Influence(event_id=state.event_id, entry_id=name, necessity_nats=nats, cmis=cmis)
        return replace(state, influences=influences)


def _full(event_id: str) -> Ablation:
    return leave_out(event_id, "full", "text", frozenset())


def _bare(event_id: str) -> Ablation:
    return keep_only(event_id, "no_memory", "text", ())


def _without(state: EventState, entry_id: str) -> Ablation:
    return leave_out(state.event_id, "leave_one_out", "text", {entry_id})
