"""What the set search knows over all events, as a value: a step makes another one of it, and says why.

`SetSearch` is the one that holds the value of the day. What is asked next is read off it by `questions`, what the
answers mean is said by the files of the steps (see `memory_audit.attribution.search.search`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from memory_audit.attribution.removal_set import RemovalSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.attribution.replays.harm import HarmScorer
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.attribution.search.attribution_rule import AttributionRule
    from memory_audit.attribution.search.controls import ControlMemories
    from memory_audit.attribution.search.event import EventState
    from memory_audit.attribution.search.measurements import Measurements
    from memory_audit.attribution.search.settings import SearchSettings

__all__ = ["Given", "Neighbours", "Round", "SearchPhase", "SearchState", "Transition"]

SearchPhase = Literal[
    "reproduction", "harm span", "divergence", "baseline", "reference", "sufficiency", "combinations", "necessity",
    "closure", "verify", "neighbours", "restore", "done",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What does not change while a search goes on."""

    memory: RankedMemory
    settings: SearchSettings
    resembles: Mapping[str, Sequence[str]]
    """Per entry id the ids of entries that evidence ties to it, closest first."""

    scorer: HarmScorer | None
    rule: AttributionRule
    controls: ControlMemories
    seen: Measurements
    """Outcomes: more of them come in, and none is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """How far step 7 got: memories that resemble attributed ones."""

    asked: frozenset[str] = frozenset()
    rounds: int = 0
    """Rounds that added to S in step 7, or in step 5 with it beside: poison by the hundred is found in few."""

    left: int = 0
    """Those that the last round had no room for."""

    def after_round(self, *, added: bool) -> Neighbours:
        """Count a round that added to S."""
        return replace(self, rounds=self.rounds + added)


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """What is known over all events of one tenant."""

    given: Given
    events: Mapping[str, EventState]
    """By id, in the order of their ids."""

    phase: SearchPhase = "reproduction"
    removal: RemovalSet = field(default_factory=RemovalSet)
    """S so far."""

    possible_ancestors: frozenset[str] = frozenset()
    """Members of S when derived ones were added, which may derive from any of them: none of these is put back."""

    skipped: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Per entry id the events at which it was once not measured, since its quota of events was used up."""

    quotas: Mapping[str, int] = field(default_factory=dict)
    """Per entry id at how many events it may be measured before evidence is weighed again; one where it is missing."""

    neighbours: Neighbours = field(default_factory=Neighbours)
    closure_rounds: int = 0
    """Rounds of step 5 that added to S."""

    left_out: tuple[str, ...] = ()
    """What a budget left unexamined, one line each."""

    def open_events(self) -> list[EventState]:
        """Return the open events by id."""
        return [state for state in self.events.values() if state.settled is None]

    def evidence_events(self) -> list[EventState]:
        """Return the events by id whose replays are evidence on memories, open or judged."""
        return [state for state in self.events.values() if state.is_evidence]

    def context(self, state: EventState, removed: frozenset[str] | None = None) -> tuple[str, ...]:
        r"""R(q, M \ S), with S as it stands unless another is given."""
        out = self.removal.ids if removed is None else removed
        return self.given.memory.context(state.event.query, out, logged=state.event.retrieved)

    def skipped_at(self, entry_id: str) -> set[str]:
        """Return the events that skipped an entry and did not measure it later."""
        events = self.skipped.get(entry_id, frozenset())
        return {event_id for event_id in events if entry_id not in self.events[event_id].influences}

    def with_events(self, changed: Iterable[EventState]) -> SearchState:
        """Put these events in the place of what was known of them."""
        return replace(self, events={**self.events, **{state.event_id: state for state in changed}})

    def with_attributed(self, attributed: dict[str, str]) -> SearchState:
        """Put other attributed memories in the place of those in S."""
        return replace(self, removal=replace(self.removal, attributed=attributed))

    def with_derived(self, derived: Mapping[str, str]) -> SearchState:
        """Add memories to S that derive from what it holds, and judge every event anew."""
        return replace(
            self,
            possible_ancestors=self.possible_ancestors | self.removal.attributed.keys(),
            removal=replace(self.removal, derived={**self.removal.derived, **derived}),
        ).reopened()

    def reopened(self) -> SearchState:
        """S changed: every event that was judged without the old S is open again."""
        return self.with_events(
            state.reopened() for state in self.events.values() if state.settled and state.settled.rests_on_removal
        )

    def leaving_out(self, *lines: str) -> SearchState:
        """List what is left unexamined; once, though a search that is taken up again leaves it out again."""
        return replace(self, left_out=tuple(dict.fromkeys((*self.left_out, *lines))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a phase asks next."""

    asked: Sequence[Ablation]
    """Answered or not; empty where the phase asks nothing."""

    noted: SearchState
    """What is known once it is asked: which memories are shown in groups, skipped or asked about."""

    @property
    def is_answered(self) -> bool:
        """Nothing of it is left to ask."""
        return self.noted.given.seen.answers(self.asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What followed from the answers to a round."""

    next: SearchPhase
    state: SearchState
    why: str
    """One line, for the log of the run."""

    also_seen: Sequence[tuple[Ablation, Outcome]] = ()
    """Questions that an outcome answers besides its own."""
