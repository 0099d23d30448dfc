"""What the set search is told, what it knows of one event, and what it knows over all events.

Records only: what is asked next is `memory_audit.attribution.search.plan`, and what the answers mean is said by the
files of the steps (see `memory_audit.attribution.search.search`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from memory_audit.attribution.search.evidence import Influence, credit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.attribution.search.divergence import MeasurementPoint
    from memory_audit.attribution.search.measurements import Measurements
    from memory_audit.events import Event

__all__ = ["AttributionMethod", "EventState", "EventStatus", "SearchPhase", "SearchSettings", "SearchState"]

EventStatus = Literal["open", "cleared", "memory is not the cause", "not reproduced", "not cleared", "not examined"]
AttributionMethod = Literal["set", "loo"]
SearchPhase = Literal[
    "reproduction",
    "harm span",
    "divergence",
    "baseline",
    "reference",
    "sufficiency",
    "necessity",
    "closure",
    "verify",
    "neighbours",
    "restore",
    "done",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How the search decides. Thresholds are in nats of log-odds of the harmful continuation."""

    attribution_nats: float
    """A memory that alone raises the log-odds by this much (odds 7 : 1) at every point is attributed without further
    question. Calibrated on the demo's corpus: seven of eight poisons rise by 2.5 or more, no benign memory by 0.6.
    The default is `memory_audit.config`'s."""

    consistent_extra_nats: float = 0.5
    """How much more evidence a memory needs that is more consistent than the median one."""

    attribution: AttributionMethod = "set"
    """`set` as above; `loo` is the paper's plain leave-one-out CMIS on the binary harm score."""

    weak_nats: float = 1.0
    """Credit from which a memory is taken into S where harm stays. Below it none is, whatever stays."""

    span_surprisal_nats: float = 4.0
    """Least surprisal (-log p) of the harm span with control memories where the span is what is measured."""

    most_of_store: float = 0.75
    """Largest share of a store that S may be. An effect of nearly every memory is diffuse, or the store is beyond
    repair by removal: go back to an older snapshot."""

    large_share: float = 0.25
    """Share of a store from which the memories that one event attributes must stand out, and end its harm: a gap of
    `weak_nats` separates them from others measured there. Without one the effect is diffuse."""

    control_memories: int = 3
    """Memories that an event did not use, shown alone: what any memory would do. With fewer at hand none is shown."""

    points: int = 2
    """Divergence points measured per event: the second tells the harm from the wording."""

    most_points: int = 8
    """Most divergence points taken per event: half as many where those so far are format effects or attribute nothing,
    all where what they attribute turns out not to be the cause."""

    screen_from: int = 12
    """Memories yet to be measured from which they are shown in groups of about their square root first."""

    samples: int = 0
    """Sampled replays per question where no odds can be had; 0 takes one harm score there."""

    max_rounds: int = 256
    """Rounds after which open events are given up as `not cleared`."""

    max_replays: int | None = None
    """Budget on replays planned, each sample one; None is no budget."""

    patience: int = 8
    """Rounds of step 5 that add to S after which step 7 goes on beside it. Where poison comes by the hundred, only as
    many move up in a round as one event retrieves."""

    neighbour_candidates: int = 32
    """Most memories measured in step 7 in its first round, and twice as many in each one after a round that added to S.
    A round that adds none is the last: how many it left is told with what was not examined."""


@dataclass(slots=True, kw_only=True)
class EventState:
    """What is known of one harmful event."""

    event: Event
    status: EventStatus = "open"
    full: Outcome | None = None
    """The text replay with the whole store."""

    without_memory: Outcome | None = None
    """The text replay with no memory."""

    points: list[MeasurementPoint] = field(default_factory=list)
    """Retired span points, then the points of the harm span, then divergence points."""

    span_start: int = 0
    """The first so many points are of the span of a harm that has ended, and count no more."""

    span_end: int = 0
    """Points from `span_start` up to here are of the harm span; those from here on are divergence points."""

    span_text: str = ""
    """The words of the harm span."""

    span_contexts: set[tuple[str, ...]] = field(default_factory=set)
    """Contexts whose replays gave another harm span; each does once."""

    wanted_divergences: int = 0

    retired_divergences: int = 0
    """The first so many divergence points only showed wording: later ones count alone, where there are any."""

    odds_full: list[float | None] = field(default_factory=list)
    baseline: dict[int, float | None] = field(default_factory=dict)
    """Log-odds without a cause, by point; only of those that are measured. At divergence points an upper bound: control
    memories not yet asked may lower it (`memory_audit.attribution.search.bounds`)."""

    controls_wanted: dict[int, int] = field(default_factory=dict)
    """By divergence point, how many control memories are wanted besides the first, since an attribution depends on
    them."""

    format_points: set[int] = field(default_factory=set)
    """Divergence points where any memory would leave the replay with no memory: a format effect, and no harm."""

    reference: tuple[str, ...] = ()
    """The memory whose clean replay gives divergence points, where those from the replay with no memory were format
    effects."""

    excluded: bool = False
    """The event's effect is diffuse, or its harm stays without a large share of the store: it is no evidence."""

    groups: list[tuple[str, ...]] = field(default_factory=list)
    """Memories shown together whose answer is awaited."""

    screened_in: set[str] = field(default_factory=set)
    """Members of groups that raised the odds: each is measured alone."""

    screened_out: set[str] = field(default_factory=set)
    """Members of groups that did not."""

    screening: bool = True
    """Large contexts are asked in groups first; no longer once their members are measured alone after all."""

    influences: dict[str, Influence] = field(default_factory=dict)
    replayed: dict[tuple[str, ...], Outcome] = field(default_factory=dict)
    """Text replays by context: an equal context is an equal prompt and need not be asked again."""

    after: Outcome | None = None
    """The last text replay without S."""

    reason: str = ""

    @property
    def divergences(self) -> int:
        """How many divergence points are known."""
        return len(self.points) - self.span_end

    @property
    def measures_span(self) -> bool:
        """The harm span is what is measured; else divergence points are."""
        return 0 < self.span_end == len(self.points)

    def alone(self, entry_id: str) -> float:
        """How much one memory alone raises the odds at this event, in nats; 0 where that is not known."""
        influence = self.influences.get(entry_id)
        return 0.0 if influence is None else influence.sufficiency_nats or 0.0

    def credit_of(self, entry_id: str) -> float:
        """Credit of one memory for this event; unknown ranks below every known one."""
        influence = self.influences.get(entry_id)
        value = None if influence is None else credit(influence)
        return -1.0 if value is None else value


@dataclass(slots=True, kw_only=True)
class SearchState:
    """What is known over all events of one tenant."""

    memory: RankedMemory
    settings: SearchSettings
    states: dict[str, EventState]
    """Events by id, in the order of their ids."""

    measured: Measurements
    resembles: Mapping[str, Sequence[str]]
    """Per entry id the ids of entries that evidence ties to it, closest first."""

    inconsistency: Mapping[str, float]
    """CAS per entry id (eq. 8)."""

    phase: SearchPhase = "reproduction"
    removed: dict[str, str] = field(default_factory=dict)
    """S so far: entry id to the machine-written reason."""

    derived: set[str] = field(default_factory=set)
    """Members of S that derive from others, and are not there by their own evidence."""

    possible_ancestors: set[str] = field(default_factory=set)
    """Members of S when derived ones were added, which may derive from any of them: none of these is put back."""

    skipped: dict[str, set[str]] = field(default_factory=dict)
    """Per entry id the events at which it was once not measured, since its quota of events was used up."""

    event_quotas: dict[str, int] = field(default_factory=dict)
    """Per entry id at how many events it may be measured before evidence is weighed again; one where it is missing."""

    neighbours_asked: set[str] = field(default_factory=set)
    closure_rounds: int = 0
    """Rounds of step 5 that added to S."""

    neighbour_rounds: int = 0
    """Rounds that added to S in step 7, or in step 5 with it beside: poison by the hundred is found in few."""

    later_points_wanted: bool = False
    """An event whose evidence was discarded may have later points: they are to be taken next."""

    def open_events(self) -> list[tuple[str, EventState]]:
        """Return the open events by id."""
        return [(event_id, state) for event_id, state in self.states.items() if state.status == "open"]

    def evidence_events(self) -> list[tuple[str, EventState]]:
        """Return the events by id whose replays are evidence on memories, open or judged."""
        no_evidence = {"memory is not the cause", "not reproduced", "not examined"}
        return [
            (event_id, state)
            for event_id, state in self.states.items()
            if not state.excluded and state.status not in no_evidence
        ]

    @property
    def is_flooded(self) -> bool:
        """Tell whether step 5 goes on for so long that step 7 begins beside it."""
        return self.closure_rounds >= self.settings.patience

    @property
    def neighbour_room(self) -> int:
        """How many memories that resemble attributed ones the next round has room for."""
        return min(self.settings.neighbour_candidates << self.neighbour_rounds, len(self.memory))

    def skipped_at(self, entry_id: str) -> set[str]:
        """Return the events that skipped an entry and did not measure it later."""
        events = self.skipped.get(entry_id, set())
        return {event_id for event_id in events if entry_id not in self.states[event_id].influences}

    def context(self, state: EventState, removed: frozenset[str] | None = None) -> tuple[str, ...]:
        r"""R(q, M \ S), with S as it stands unless another is given."""
        out = frozenset(self.removed) if removed is None else removed
        return self.memory.context(state.event.query, out, logged=state.event.retrieved)

    def reopen(self) -> SearchPhase:
        """S changed: every event judged without the old S must be judged without the new one; return where to go on."""
        for state in self.states.values():
            if state.status in {"cleared", "not cleared"} and not state.excluded:
                state.status = "open"
        return "closure"
