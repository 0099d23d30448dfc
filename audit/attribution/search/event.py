"""What is known of one harmful event, as a value: a step of the search returns another one, and changes none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from memory_audit.attribution.evidence import Influence, credit, evidence
from memory_audit.events import HARMFUL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.attribution.search.points.divergence import MeasurementPoint
    from memory_audit.events import Event, EventVerdict

__all__ = ["Controls", "EventState", "Points", "Replays", "Screening", "Settled", "judge_reproduction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The verdict of an event that is not open."""

    verdict: EventVerdict
    reason: str
    excluded: bool = False
    """The event's effect is diffuse, or its harm stays without a large share of the store: it is no evidence."""

    @property
    def rests_on_replay(self) -> bool:
        """The verdict is of a replay without S."""
        return self.verdict in {"cleared", "contributed", "not cleared"}

    @property
    def rests_on_removal(self) -> bool:
        """That replay is evidence on memories: with another S the verdict is given anew."""
        return self.rests_on_replay and not self.excluded


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """Whole answers of one event."""

    full: Outcome | None = None
    """With the whole store."""

    without_memory: Outcome | None = None
    by_context: Mapping[tuple[str, ...], Outcome] = field(default_factory=dict)
    """By what was retrieved: an equal context is an equal prompt and need not be asked again."""

    after: Outcome | None = None
    """The last one without S."""

    def with_answer(self, context: tuple[str, ...], answer: Outcome | None) -> Replays:
        """Take in the answer with a context; None is one that was known before."""
        return self if answer is None else replace(self, by_context={**self.by_context, context: answer})


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Where the odds of one event's harm are taken."""

    all: tuple[MeasurementPoint, ...] = ()
    """Retired span points, then the points of the harm span, then divergence points."""

    span_start: int = 0
    """The first so many points are of the span of a harm that has ended, and count no more."""

    span_end: int = 0
    """Points from `span_start` up to here are of the harm span; those from here on are divergence points."""

    span_text: str = ""
    """The words of the harm span."""

    span_contexts: frozenset[tuple[str, ...]] = frozenset()
    """Contexts whose replays gave another harm span; each does once."""

    wanted: int = 0
    """Divergence points that are to be taken."""

    retired: int = 0
    """The first so many divergence points only showed wording: later ones count alone, where there are any."""

    reference: tuple[str, ...] = ()
    """The memory whose clean replay gives divergence points, where those from the replay with no memory were format
    effects."""

    @property
    def divergences(self) -> int:
        """How many divergence points are known."""
        return len(self.all) - self.span_end

    @property
    def measures_span(self) -> bool:
        """The harm span is what is measured; else divergence points are."""
        return 0 < self.span_end == len(self.all)

    @property
    def wants_more(self) -> bool:
        """Another divergence point is to be looked for behind the last one."""
        return 0 < self.divergences < self.wanted

    def span(self) -> range:
        """Return the numbers of the harm span's points."""
        return range(self.span_start, self.span_end)

    def diverging(self) -> range:
        """Return the numbers of the divergence points."""
        return range(self.span_end, len(self.all))

    def with_span(self, words: str, points: Iterable[MeasurementPoint]) -> Points:
        """Measure another harm span: points so far count no more."""
        spoken = (*self.all, *points)
        return replace(self, all=spoken, span_text=words, span_start=len(self.all), span_end=len(spoken))

    def with_divergence(self, point: MeasurementPoint | None) -> Points:
        """Add a divergence point, where there is one."""
        return self if point is None else replace(self, all=(*self.all, point))

    def span_alone(self) -> Points:
        """Drop the divergence points: the harm span is what is measured."""
        return replace(self, all=self.all[: self.span_end])

    def none(self) -> Points:
        """Drop all points: whole answers must tell."""
        return replace(self, all=(), span_start=0, span_end=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What any memory would do at an event's points."""

    baseline: Mapping[int, float | None] = field(default_factory=dict)
    """Log-odds without a cause, by point; only of those that are measured. At divergence points an upper bound: control
    memories not yet asked may lower it (`memory_audit.attribution.search.bounds`)."""

    wanted: Mapping[int, int] = field(default_factory=dict)
    """By divergence point, how many control memories are wanted besides the first, since an attribution depends on
    them."""

    format_points: frozenset[int] = frozenset()
    """Divergence points where any memory would leave the replay with no memory: a format effect, and no harm."""

    def with_baseline(self, point: int, odds: float | None, *, is_format: bool | None) -> Controls:
        """Note what a point is like without a cause; `is_format` is None where that is not known."""
        points = self.format_points if is_format is None else self.format_points - {point}
        return replace(
            self, baseline={**self.baseline, point: odds}, format_points=points | {point} if is_format else points
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """Which memories of an event's context were shown in groups."""

    enabled: bool = True
    """Large contexts are asked in groups first; no longer once their members are measured alone after all."""

    groups: tuple[tuple[str, ...], ...] = ()
    """Memories shown together whose answer is awaited."""

    found: frozenset[str] = frozenset()
    """Members of groups that raised the odds: each is measured alone."""

    cleared: frozenset[str] = frozenset()
    """Members of groups that did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventState:
    """What is known of one harmful event."""

    event: Event
    settled: Settled | None = None
    """The verdict so far; None while the event is open."""

    replays: Replays = field(default_factory=Replays)
    where: Points = field(default_factory=Points)
    controls: Controls = field(default_factory=Controls)
    screening: Screening = field(default_factory=Screening)
    influences: Mapping[str, Influence] = field(default_factory=dict)
    """What was measured of memories, by entry id."""

    @property
    def event_id(self) -> str:
        """The event's id."""
        return self.event.event_id

    @property
    def status(self) -> EventVerdict | Literal["open"]:
        """The verdict, or that there is none."""
        return "open" if self.settled is None else self.settled.verdict

    @property
    def reason(self) -> str:
        """Why the verdict is so, one line; empty while the event is open."""
        return "" if self.settled is None else self.settled.reason

    @property
    def is_evidence(self) -> bool:
        """The replays are evidence on memories, be the event open or judged."""
        return self.settled is None or self.settled.rests_on_removal

    @property
    def points(self) -> tuple[MeasurementPoint, ...]:
        """All measurement points, by number."""
        return self.where.all

    @property
    def full(self) -> Outcome | None:
        """The replay with the whole store."""
        return self.replays.full

    @property
    def after(self) -> Outcome | None:
        """The last replay without S."""
        return self.replays.after

    def settle(self, verdict: EventVerdict, reason: str, *, excluded: bool = False) -> EventState:
        """Give the verdict: the one place where an event gets it."""
        return replace(self, settled=Settled(verdict=verdict, reason=reason, excluded=excluded))

    def reopened(self) -> EventState:
        """Take the verdict back."""
        return replace(self, settled=None)

    def without_evidence(self) -> EventState:
        """Discard what was measured of memories."""
        return replace(self, influences={}, screening=Screening())

    def alone(self, entry_id: str) -> float:
        """How much one memory alone raises the odds at this event, in nats; 0 where that is not known."""
        influence = self.influences.get(entry_id)
        return 0.0 if influence is None else influence.sufficiency_nats or 0.0

    def evidence_of(self, entry_id: str) -> float:
        """Nats that say that one memory contributed to this event's harm; 0 where there are none."""
        influence = self.influences.get(entry_id)
        return 0.0 if influence is None else evidence(influence) or 0.0

    def credit_of(self, entry_id: str) -> float:
        """Credit of one memory for this event; unknown ranks below every known one."""
        influence = self.influences.get(entry_id)
        value = None if influence is None else credit(influence)
        return -1.0 if value is None else value


def judge_reproduction(state: EventState, full: Outcome, bare: Outcome) -> EventState:
    """Judge an event by its replays with the whole store and with no memory; open where memory may be the cause."""
    if not (full.fits and bare.fits):
        return state.settle("not examined", "its question does not fit into the backbone's context")
    if full.harm is None or bare.harm is None:
        return state.settle("not examined", "the harm scorer could not judge the replay")
    if full.harm < HARMFUL:
        return state.settle("not reproduced", "the replay with every memory in place shows no harm")
    if bare.harm >= HARMFUL:
        return state.settle("memory is not the cause", "harm stays when every memory is taken away")
    return state
