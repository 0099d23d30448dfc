"""Set attribution: find the set of memories that causes a batch of harmful events, in rounds of replays.

`plan` names the next round of ablations over all events, `observe` takes their outcomes. Every round is independent
work, one group per event, so a cluster runs it as one map and one reduce. The store is never changed; "removed" means
left out of a replay. S is the set of removed memories.

1. *Reproduction.* Replay each event with the whole store and with no memory. No harm with the store: `not reproduced`.
   Harm without memory: `memory is not the cause`.
2. *Measurement points.* The *harm span* is measured where a control memory, one that the event did not use, makes it
   improbable. Else *divergence points* are: words where the harmful replay leaves a clean one (`divergence`). A
   divergence that control memories bring too is a *format effect* and does not count. Where all are, memories are
   shown alone. If the harm comes with every one, `memory is not the cause`; else points are taken from a clean one.
3. *Sufficiency.* Measure every retrieved memory alone, at each point. One whose odds rise by `attribution_nats` at
   every point is attributed and joins S (`attribution_rule`). Memories in many events are measured at few, large
   contexts in groups first (`questions.alone_round`). Points that only show wording ("We say" for "The") are *retired*,
   and later ones count alone. An event whose effect is *diffuse*, and that has no later point, is *excluded*: it is no
   evidence.
4. *Necessity.* Where no memory in an event's context is attributed, a smallest set is looked for that brings the harm
   together, and what completes it in a member's place (`combinations`). Where there is none, leave out each memory in
   turn. Else those calls would change nothing, and they are the dear ones.
5. *Closure.* Retrieval is recomputed without S; whatever moves up is measured in the same way, until nothing is added.
6. *Verify.* Replay each event as text without S. Where harm stays in another span than was measured, steps 2 and 3 are
   taken at that span. Where it stays else, sets are looked for as in step 4. A memory whose evidence falls short joins
   S for no harm that stays: it is *suspected*.
7. *Neighbours.* Memories never retrieved that resemble an attributed one are measured alone: the next poison in line is
   found before it is used.
8. *Restore.* A memory that is attributed only by events that stay harmful without it is put back, where the cleared
   events stay cleared on replay: its absence repairs nothing. It stays in S where it brings the harm alone.
9. *Descent.* What derives from S joins it, and steps 5 to 8 are taken again, until nothing more derives from it.

A budget stops the search between rounds; what it left out is listed, never guessed.

What is known is one value (`state`). Each phase has a pure function that reads the next round off it (`questions`), and
one that takes in the answers and returns another value with the phase that follows, and why (`PHASES` below). This file
alone keeps the value of the day, and counts the budget. Where is measured is in `points` (steps 1 and 2), what any
memory would do in `controls` and `bounds`, what was seen in `measurements`, what joins S in `weighing` (3 to 5, and 7)
and `combinations` (4), and what ends the harm in `verification` (6 and 8).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from memory_audit.attribution.evidence import credit_over_events
from memory_audit.attribution.search import combinations, questions, verification, weighing
from memory_audit.attribution.search.attribution_rule import AttributionRule
from memory_audit.attribution.search.controls import ControlMemories
from memory_audit.attribution.search.event import EventState, Points
from memory_audit.attribution.search.measurements import Measurements
from memory_audit.attribution.search.points import steps
from memory_audit.attribution.search.state import Given, SearchState, Transition
from memory_audit.attribution.trace import Step
from memory_audit.counted import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from memory_audit.attribution.calibration import Calibration
    from memory_audit.attribution.removal_set import RemovalSet
    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.attribution.replays.harm import HarmScorer
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.attribution.search.settings import SearchSettings
    from memory_audit.attribution.search.state import Round, SearchPhase
    from memory_audit.events import Event

__all__ = ["SetSearch"]


class _Phase(NamedTuple):
    """What a phase asks, and what follows from the answers."""

    ask: Callable[[SearchState], Round]
    step: Callable[[SearchState], Transition]


PHASES: Mapping[SearchPhase, _Phase] = {
    "reproduction": _Phase(questions.reproduction_round, steps.read_reproduction),
    "harm span": _Phase(questions.span_round, steps.read_span),
    "divergence": _Phase(questions.continuation_round, steps.read_continuations),
    "baseline": _Phase(questions.baseline_round, steps.read_baseline),
    "reference": _Phase(questions.reference_round, steps.read_references),
    "sufficiency": _Phase(questions.evidence_round, weighing.read_sufficiency),
    "combinations": _Phase(combinations.combination_round, combinations.read_combinations),
    "necessity": _Phase(questions.necessity_round, weighing.read_necessity),
    "closure": _Phase(questions.evidence_round, weighing.read_closure),
    "verify": _Phase(questions.verify_round, verification.read_verified),
    "neighbours": _Phase(questions.neighbour_round, weighing.read_neighbours),
    "restore": _Phase(verification.restore_round, verification.read_restored),
}


UNWEIGHED: frozenset[SearchPhase] = frozenset({
    "reproduction", "harm span", "divergence", "baseline", "reference", "done",
})  # fmt: skip
"""Phases that hold no evidence against a threshold."""


class SetSearch:
    """The search over one tenant's events."""

    def __init__(  # noqa: PLR0913 - what it searches, three kinds of evidence, and what derives from what
        self,
        memory: RankedMemory,
        events: Sequence[Event],
        settings: SearchSettings,
        *,
        resembles: Mapping[str, Sequence[str]] | None = None,
        fits_in: Callable[[str], bool | None] = lambda _: False,
        scorer: HarmScorer | None = None,
        closure: Callable[[Collection[str]], Mapping[str, str]] | None = None,
        tell: Callable[[Step], None] | None = None,
        rule: type[AttributionRule] = AttributionRule,
    ) -> None:
        """Start a search.

        Args:
            memory: Retrieval over the tenant's live entries.
            events: The harmful events, all of this tenant.
            settings: Thresholds and budgets.
            resembles: Per entry id the ids of entries that evidence ties to it, closest first; asked in step 7.
            fits_in: Tells of an entry id whether the memory is more consistent than the median one (CAS, eq. 8), which
                corroborates in step 3; None while that is not known.
            scorer: The harm scorer, to find the harm span of an answer; None measures at divergence points only.
            closure: From attributed entries to those that derive from them and go with them, each with the reason.
            tell: Learns of each step, for the log of the run.
            rule: Says what is attributed.
        """
        ids = sorted(event.event_id for event in events)
        seen = Measurements(settings)
        given = Given(
            memory=memory, settings=settings, resembles=resembles or {}, scorer=scorer, seen=seen,
            rule=rule(settings, len(memory.entries), fits_in),
            controls=ControlMemories(memory, seen, settings, ids),
        )  # fmt: skip
        by_id = {event.event_id: event for event in events}
        where = Points(wanted=settings.points)
        states = {event_id: EventState(event=by_id[event_id], where=where) for event_id in ids}
        self._state = SearchState(given=given, events=states)
        self._closure = closure
        self._tell = tell
        self._rounds = 0
        self._planned = 0
        self._asked: dict[str, Ablation] = {}
        self.beyond_budget: tuple[str, ...] = ()
        """What a budget of replays left out, by name."""

    @property
    def states(self) -> Mapping[str, EventState]:
        """What is known of each event, by id."""
        return self._state.events

    @property
    def calibration(self) -> Calibration | None:
        """Clean incidents that evidence is held against."""
        return self._state.given.settings.calibration

    @property
    def rule(self) -> AttributionRule:
        """What is attributed to a memory, and what is evidence against it."""
        return self._state.given.rule

    @property
    def removal(self) -> RemovalSet:
        """S so far."""
        return self._state.removal

    @property
    def by_evidence(self) -> Collection[str]:
        """Members of S that are there by evidence of their own, and not by descent."""
        return self._state.removal.attributed

    @property
    def skipped(self) -> Mapping[str, int]:
        """Per attributed memory, at how many events it was not measured, since another event had decided."""
        return {
            entry_id: len(self._state.skipped_at(entry_id))
            for entry_id in sorted(self._state.skipped)
            if entry_id in self._state.removal.ids
        }

    @property
    def influence(self) -> Mapping[str, float]:
        """Credit summed over events, by entry id."""
        return credit_over_events((state.influences for state in self.states.values()), self.skipped)

    @property
    def not_examined(self) -> list[str]:
        """What the search left out, one line each."""
        most, left = questions.neighbour_room(self._state), self._state.neighbours.left
        unasked = f"memories like attributed ones: one round asks about {most} of them, and {left} were left"
        return [*self._state.left_out, *([unasked] if left else [])]

    @property
    def phase(self) -> SearchPhase:
        """What the next round is for, for progress lines."""
        return self._state.phase

    @property
    def awaited(self) -> frozenset[str]:
        """Entries that were shown or measured, where it must be known whether they fit in before the search goes on.

        There is none before harm was reproduced that memory causes: steps 1 and 2 weigh nothing.
        """
        events = self._state.evidence_events()
        if self._state.phase in UNWEIGHED or not events:
            return frozenset()
        retrieved = {name for state in events for name in self._state.context(state)}
        examined = retrieved | self._state.given.seen.examined
        return frozenset(name for name in examined if self.rule.fits_in(name) is None)

    def plan(self) -> tuple[Ablation, ...]:
        """Return the next round, by event, the full prompt first; empty when the search is over, or waits.

        It waits for what is `awaited`; that is also to be known before the outcomes of the round are observed.
        """
        settings, seen = self._state.given.settings, self._state.given.seen
        while self._state.phase != "done" or self._close():
            if self.awaited:
                return ()
            self._rounds += 1
            if self._rounds > settings.max_rounds:
                self._give_up(f"no end after {settings.max_rounds} rounds")
                continue
            asked = PHASES[self._state.phase].ask(self._state)
            self._state = asked.noted
            unique = self._distinct(asked.asked)
            if not unique:
                self._advance()
                continue
            budget = settings.max_replays
            cost = sum(settings.samples if item.measure == "sample" else 1 for item in unique.values())
            if budget is not None and self._planned + cost > budget:
                left = self._give_up(f"budget of {budget} replays is spent")
                self.beyond_budget = tuple(dict.fromkeys((*self.beyond_budget, *left)))
            else:
                self._planned += cost
                seen.expect(unique.values())
                self._asked = unique
                order = sorted(unique.values(), key=lambda item: (item.event_id, item.kind != "full", item.pair_id))
                return tuple(order)
        return ()

    def observe(self, outcomes: Iterable[Outcome]) -> None:
        """Take the outcomes of the planned round, in any order; all of them or an error of the caller's own."""
        seen, answers = self._state.given.seen, []
        for outcome in sorted(outcomes, key=lambda outcome: outcome.pair_id):
            asked = self._asked[outcome.pair_id]
            answers.append((asked, outcome))
            seen.note(asked, outcome)
            for same in self._same(asked):
                if same not in seen:
                    seen.note(same, outcome)
        self._advance(answers)

    def _distinct(self, asked: Iterable[Ablation]) -> dict[str, Ablation]:
        """Return the questions that have no answer yet by pair id; of those about copies of one memory, the first."""
        found: dict[str, Ablation] = {}
        for ablation in asked:
            known = ablation in self._state.given.seen
            if not known and not any(same.pair_id in found for same in self._same(ablation)):
                found[ablation.pair_id] = ablation
        return found

    def _same(self, ablation: Ablation) -> list[Ablation]:
        """Return the question and those that the same replay answers: of copies of a memory that is shown alone."""
        if ablation.kept is None or len(ablation.kept) != 1 or ablation.measure == "continuation":
            return [ablation]
        copies = self._state.given.memory.copies(ablation.kept[0])
        return [replace(ablation, kept=(entry_id,)) for entry_id in copies]

    def _advance(self, answers: Sequence[tuple[Ablation, Outcome]] = ()) -> None:
        """Take in the answers to the phase's questions, and go on to the next phase."""
        transition = PHASES[self._state.phase].step(self._state)
        for ablation, outcome in transition.also_seen:
            self._state.given.seen.note(ablation, outcome)
        self._move(replace(transition.state, phase=transition.next), transition.why, answers)

    def _move(self, search: SearchState, why: str, answers: Sequence[tuple[Ablation, Outcome]] = ()) -> None:
        """Make this the value of the day, and tell of it."""
        before, self._state = self._state, search
        if self._tell is not None:
            self._tell(
                Step(
                    phase=before.phase, next=search.phase, why=why, answers=answers, before=before.events,
                    after=search.events, was=before.removal, now=search.removal,
                )
            )  # fmt: skip

    def _close(self) -> bool:
        """Move into S what derives from it, and judge every event anew; True where there is anything.

        Whatever moves up into the places of derived memories is measured like any other memory.
        """
        removal = self._state.removal
        derived = {} if self._closure is None else self._closure(removal.attributed)
        new = {entry_id: why for entry_id, why in derived.items() if entry_id not in removal.ids}
        if new:
            why = f"{counted(len(new), 'memory')} joined the set, as derived from what it holds"
            self._move(replace(self._state.with_derived(new), phase="closure"), why)
        return bool(new)

    def _give_up(self, why: str) -> list[str]:
        """End the search, and list what it leaves unexamined; return it by name.

        An event that was replayed is not unexamined: the last replay without S judges it, or else this reason.
        """
        search = self._state
        given_up = [
            state.settle("not examined" if state.full is None else "not cleared", why) for state in search.open_events()
        ]
        left = [f"event {state.event_id}" for state in given_up]
        if search.phase == "neighbours":
            left.append("memories like attributed ones")
        if search.phase in {"neighbours", "restore"}:
            left.append("whether memories can be put back")
        search = search.with_events(given_up).leaving_out(*(f"{name}: {why}" for name in left))
        if search.phase == "restore":
            search, _ = verification.put_back_unseen(search)
        self._move(replace(verification.concluded(search), phase="done"), why)
        return left
