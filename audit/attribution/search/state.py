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
    from memory_audit.attribution.search.divergence import DecisionPoint
    from memory_audit.attribution.search.measurements import Measurements
    from memory_audit.events import Event

__all__ = ["EventState", "Phase", "SearchSettings", "SearchState", "Status"]

Status = Literal["open", "cleared", "memory is not the cause", "not reproduced", "not cleared", "not examined"]
Attribution = Literal["set", "loo"]
Phase = Literal[
    "gate",
    "substance",
    "points",
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

    culprit_nats: float
    """A memory that alone raises the log-odds by this much (odds 7 : 1) at every point is a culprit without further
    question. Calibrated on the demo's corpus: seven of eight poisons rise by 2.5 or more, no benign memory by 0.6.
    The default is `memory_audit.config`'s."""

    fitting_nats: float = 0.5
    """How much more evidence a memory needs that is more consistent than the median one."""

    attribution: Attribution = "set"
    """`set` as above; `loo` is the paper's plain leave-one-out CMIS on the harm verdict."""

    weak_nats: float = 1.0
    """Credit from which a memory is taken into S where harm stays. Below it nobody is, whatever stays."""

    substance_nats: float = 4.0
    """How improbable the words of the harm are with a placebo (-log p) where they are what is measured."""

    most_of_store: float = 0.75
    """Largest share of a store that S may be. What nearly every memory brings when it is shown alone comes with memory
    at large, or the store is beyond repair by removal: go back to an older snapshot."""

    large_share: float = 0.25
    """Share of a store from which those that one event convicts must stand out, and end its harm: a gap of `weak_nats`
    parts them from others measured there. Without one the event is swayed by memory at large."""

    placebos: int = 3
    """Memories that an event did not use, shown alone: what any memory would do. With fewer at hand none is shown."""

    points: int = 2
    """Decision points measured per event: the second tells substance from style."""

    most_points: int = 8
    """Partings taken in search of the substance: half as many where those so far are form or convict nobody, all where
    whom they convict turns out not to be the cause."""

    screen_from: int = 12
    """Memories yet to be measured from which they are shown in groups of about their square root first."""

    samples: int = 0
    """Sampled replays per question where no odds can be had; 0 judges there by one verdict."""

    max_rounds: int = 256
    """Rounds after which open events are given up as `not cleared`."""

    max_replays: int | None = None
    """Budget on replays planned, each sample one; None is no budget."""

    patience: int = 8
    """Rounds of step 5 that convict somebody after which step 7 goes on beside it: where poison comes by the hundred,
    only as many move up in a round as one event retrieves."""

    neighbour_candidates: int = 32
    """Most memories measured in step 7 in its first round, and twice as many in each one after a round that convicted
    somebody. A round that convicts nobody is the last: how many it left is told with what was not examined."""


@dataclass(slots=True, kw_only=True)
class EventState:
    """What is known of one harmful event."""

    event: Event
    status: Status = "open"
    full: Outcome | None = None
    gate: Outcome | None = None
    points: list[DecisionPoint] = field(default_factory=list)
    spoken: int = 0
    """The first so many points are the words of the harm; the others are partings."""

    past: int = 0
    """The first so many of them are words of a harm that has ended, and count no more."""

    said: str = ""
    """The words of the harm that are pointed at."""

    pointed: set[tuple[str, ...]] = field(default_factory=set)
    """Contexts whose replays gave other words to point at; each does once."""

    depth: int = 0
    """Partings wanted."""

    style: int = 0
    """The first so many partings turned out to be style: later ones count alone, where there are any."""

    odds_full: list[float | None] = field(default_factory=list)
    baseline: dict[int, float | None] = field(default_factory=dict)
    """Log-odds without a cause, by point; only of those that are measured. At partings as far as placebos were asked:
    more of them may lower it (`memory_audit.attribution.search.bounds`)."""

    doubts: dict[int, int] = field(default_factory=dict)
    """By parting, how many placebos are wanted there besides the first, where they may convict somebody."""

    form: set[int] = field(default_factory=set)
    """Partings where any memory would part from the gate replay: a form, and no harm."""

    reference: tuple[str, ...] = ()
    """The memory whose clean replay partings are taken from, where those from the gate replay were form."""

    at_large: bool = False
    """Too much of the store brings the harm, one memory at a time, or harm stays without a large share of it: the event
    speaks against nobody."""

    groups: list[tuple[str, ...]] = field(default_factory=list)
    """Memories shown together whose answer is awaited."""

    suspects: set[str] = field(default_factory=set)
    """Members of groups that raised the odds: each is measured alone."""

    acquitted: set[str] = field(default_factory=set)
    """Members of groups that did not."""

    screening: bool = True
    """Large contexts are asked in groups first; no longer once that was doubted."""

    influences: dict[str, Influence] = field(default_factory=dict)
    replayed: dict[tuple[str, ...], Outcome] = field(default_factory=dict)
    """Text replays by context: an equal context is an equal prompt and need not be asked again."""

    after: Outcome | None = None
    """The last text replay without S."""

    reason: str = ""

    @property
    def partings(self) -> int:
        """How many partings are known."""
        return len(self.points) - self.spoken

    @property
    def speaks(self) -> bool:
        """The words of the harm are what is measured; else partings are."""
        return 0 < self.spoken == len(self.points)

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

    anomaly: Mapping[str, float]
    """CAS per entry id (eq. 8)."""

    phase: Phase = "gate"
    removed: dict[str, str] = field(default_factory=dict)
    """S so far: entry id to the machine-written reason."""

    taken: set[str] = field(default_factory=set)
    """Members of S that were taken along with others, not convicted."""

    settled: set[str] = field(default_factory=set)
    """Members of S when others were taken along, which may derive from any of them: none of these is put back."""

    spared: dict[str, set[str]] = field(default_factory=dict)
    """Per entry id the events at which it was once not measured, since it was another one's turn."""

    turns: dict[str, int] = field(default_factory=dict)
    """Per entry id at how many events it may have been measured before the next verdict; one where nothing is said."""

    neighbours_asked: set[str] = field(default_factory=set)
    closures: int = 0
    """Rounds of step 5 that convicted somebody."""

    neighbour_rounds: int = 0
    """Rounds that convicted somebody in step 7, or in step 5 with it beside: poison by the hundred is found in few."""

    deeper: bool = False
    """An event that renounced its points may have later ones: they are to be taken next."""

    def live(self) -> list[tuple[str, EventState]]:
        """Return the open events by id."""
        return [(event_id, state) for event_id, state in self.states.items() if state.status == "open"]

    def heard(self) -> list[tuple[str, EventState]]:
        """Return the events by id that say something of memories, open or judged."""
        mute = {"memory is not the cause", "not reproduced", "not examined"}
        return [
            (event_id, state)
            for event_id, state in self.states.items()
            if not state.at_large and state.status not in mute
        ]

    @property
    def is_flooded(self) -> bool:
        """Tell whether step 5 goes on for so long that step 7 begins beside it."""
        return self.closures >= self.settings.patience

    @property
    def neighbour_room(self) -> int:
        """How many memories that resemble culprits the next round has room for."""
        return min(self.settings.neighbour_candidates << self.neighbour_rounds, len(self.memory))

    def spared_at(self, entry_id: str) -> set[str]:
        """Return the events that spared an entry and never measured it since."""
        events = self.spared.get(entry_id, set())
        return {event_id for event_id in events if entry_id not in self.states[event_id].influences}

    def context(self, state: EventState, removed: frozenset[str] | None = None) -> tuple[str, ...]:
        r"""R(q, M \ S), with S as it stands unless another is given."""
        out = frozenset(self.removed) if removed is None else removed
        return self.memory.context(state.event.query, out, logged=state.event.retrieved)

    def reopen(self) -> Phase:
        """S changed: every event judged without the old S must be judged without the new one; return where to go on."""
        for state in self.states.values():
            if state.status in {"cleared", "not cleared"} and not state.at_large:
                state.status = "open"
        return "closure"
