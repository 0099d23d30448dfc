"""Set attribution: find the set of memories that causes a batch of harmful events, in rounds of replays.

A pure state machine: `plan` names the next round of ablations over all events, `observe` takes their outcomes. Every
round is independent work, one group per event, so a cluster runs it as one map and one reduce. The store is never
changed; "removed" means left out of a replay. S is the set of removed memories.

1. *Reproduction.* Replay each event with the whole store and with no memory. No harm with the store: `not reproduced`.
   Harm without memory: `memory is not the cause`.
2. *Measurement points.* The *harm span* is measured where a control memory, one that the event did not use, makes it
   improbable. Else *divergence points* are: words where the harmful replay leaves a clean one (`divergence`). A
   divergence that control memories bring too is a *format effect* and does not count. Control memories are asked one
   after the other while an attribution depends on them. Where all divergence points are format effects, memories are
   shown alone. If the harm comes with every one, `memory is not the cause`; else divergence points are taken from the
   clean replay of one.
3. *Sufficiency.* Measure every retrieved memory alone, at each point. One whose odds rise by `attribution_nats` at
   every point is attributed and joins S. One that falls short of `weak_nats` at a point is asked at no other.
   - A memory in many events is measured at one of them first. Where that attributes the harm to it the others skip it.
     Where it shows nothing worth adding up, it is shown at the others together with its like.
   - A large context is shown in groups first (screening), and only members of groups that raise the odds are measured
     alone. Where that attributes nothing, or harm stays, all are.
   - Weaker evidence adds up over events, as far as it exceeds `weak_nats` in each, once all that hold the memory are
     measured.
   - A memory that fits in with the others (CAS below the store's median) must raise the odds by
     `consistent_extra_nats` more: influence and inconsistency corroborate each other where either alone is borderline.
   - Divergence points are *retired*, and later ones count alone, where those so far only show wording ("We say" for
     "The"). That is so where they attribute nothing, or most of the store, or a quarter of it without a gap to the
     others. It is so, too, where harm stays without what they attribute.
   - An effect is *diffuse* where an event attributes a quarter of the store without a gap, or past half of the points
     that it may have. Sooner or later a point splits any store by its wording. Where no later point helps, the event
     is *excluded*: it is no evidence.
   - Where there is no point, or the server gives no log-probabilities, the odds are counted in sampled replays.
4. *Necessity.* Where no memory in an event's context is attributed, leave out each in turn: harm that needs several
   memories together shows there. Else those calls would change nothing, and they are the dear ones.
5. *Closure.* Retrieval is recomputed without S; whatever moves up is measured in the same way, until nothing is added.
   After `patience` rounds that add to S step 7 goes on beside it.
6. *Verify.* Replay each event as text without S. Where harm stays in another span than was measured, steps 2 and 3 are
   taken at that span: poison of another payload hides behind the one that is said. Where it stays else, the next memory
   by credit, then by inconsistency, in its context joins S, one at each round. So S is the smallest prefix of the
   evidence that ends the harm. A memory whose credit is below `weak_nats` is never taken: another context may end a
   harm by chance, and that is no evidence.
7. *Neighbours.* Memories never retrieved that resemble an attributed one are measured alone, on the event where that
   one weighs most: the next poison in line is found before it is used. Each round that adds to S doubles the next.
8. *Restore.* A memory that is attributed only by events that stay harmful without it is put back, where the cleared
   events stay cleared on replay: its absence repairs nothing. Members of S when derived memories were added stay, since
   these may derive from them. (An event whose harm stays without a quarter of the store that it attributes is excluded
   in step 6, and the others must attribute by themselves.)

A budget stops the search between rounds; what it left out is listed, never guessed.

This file has the order of phases and the budget. What a phase asks is in `plan`. What the answers mean is in `points`
(steps 1 and 2), `controls` and `bounds` (what counts as a rise), `membership` (3 to 5, and 7), `verification` (6) and
`restoration` (8).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.attribution.search.attributed import AttributionRule
from memory_audit.attribution.search.bounds import tighten_before_most, tighten_large_shares, tighten_undecided
from memory_audit.attribution.search.controls import ControlMemories
from memory_audit.attribution.search.measurements import Measurements
from memory_audit.attribution.search.membership import (
    attribute,
    events_without_attribution,
    exclude_diffuse_events,
    read_groups,
    read_influences,
    unscreen,
)
from memory_audit.attribution.search.plan import (
    events_all_format,
    next_round,
    pending,
    raise_quotas,
    span_round,
    unasked_neighbours,
)
from memory_audit.attribution.search.points import (
    read_baseline,
    read_continuations,
    read_reproduction,
    retire_points_of,
)
from memory_audit.attribution.search.restoration import put_back, put_back_unseen
from memory_audit.attribution.search.state import EventState, SearchState
from memory_audit.attribution.search.verification import read_verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.attribution.replays.harm import HarmScorer
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.attribution.search.state import SearchPhase, SearchSettings
    from memory_audit.events import Event

__all__ = ["SetSearch"]


class SetSearch:
    """The search over one tenant's events."""

    def __init__(  # noqa: PLR0913 - what it searches, and three kinds of evidence
        self,
        memory: RankedMemory,
        events: Sequence[Event],
        settings: SearchSettings,
        *,
        resembles: Mapping[str, Sequence[str]] | None = None,
        inconsistency: Mapping[str, float] | None = None,
        scorer: HarmScorer | None = None,
    ) -> None:
        """Start a search.

        Args:
            memory: Retrieval over the tenant's live entries.
            events: The harmful events, all of this tenant.
            settings: Thresholds and budgets.
            resembles: Per entry id the ids of entries that evidence ties to it, closest first; asked in step 7.
            inconsistency: CAS per entry id (eq. 8), which corroborates in step 3 and breaks ties of credit in step 6.
            scorer: The harm scorer, to find the harm span of an answer; None measures at divergence points only.
        """
        self.settings = settings
        self.states: dict[str, EventState] = {
            event.event_id: EventState(event=event, wanted_divergences=settings.points)
            for event in sorted(events, key=lambda event: event.event_id)
        }
        self._measured = Measurements(settings)
        self._state = SearchState(
            memory=memory, settings=settings, states=self.states, measured=self._measured, resembles=resembles or {},
            inconsistency=inconsistency or {},
        )  # fmt: skip
        self._scorer = scorer
        self._rule = AttributionRule(settings, len(memory.entries), self._state.inconsistency)
        self._controls = ControlMemories(memory, self._measured, settings, self.states)
        self._rounds = 0
        self._planned = 0
        self._asked: dict[str, Ablation] = {}
        self._left_out: list[str] = []
        self._unasked = 0

    @property
    def removed(self) -> Mapping[str, str]:
        """S so far: entry id to the machine-written reason."""
        return self._state.removed

    @property
    def skipped(self) -> Mapping[str, int]:
        """Per attributed memory, at how many events it was not measured, since another event had decided."""
        return {
            entry_id: len(self._state.skipped_at(entry_id))
            for entry_id in sorted(self._state.skipped)
            if entry_id in self._state.removed
        }

    @property
    def not_examined(self) -> list[str]:
        """What the search left out, one line each."""
        most = self._state.neighbour_room
        unasked = f"memories like attributed ones: one round asks about {most} of them, and {self._unasked} were left"
        return [*self._left_out, *([unasked] if self._unasked else [])]

    @property
    def replays_planned(self) -> int:
        """Replays planned so far, each sample one: the call count that a budget bounds."""
        return self._planned

    @property
    def phase(self) -> SearchPhase:
        """What the next round is for, for progress lines."""
        return self._state.phase

    def plan(self) -> tuple[Ablation, ...]:
        """Return the next round, by event, the full prompt first; empty when the search is over."""
        while self._state.phase != "done":
            self._rounds += 1
            if self._rounds > self.settings.max_rounds:
                self._give_up(f"no end after {self.settings.max_rounds} rounds")
                break
            unique = self._distinct(next_round(self._state, self._controls))
            if not unique:
                self._advance()
                continue
            budget = self.settings.max_replays
            cost = sum(self.settings.samples if item.measure == "sample" else 1 for item in unique.values())
            if budget is not None and self._planned + cost > budget:
                self._give_up(f"budget of {budget} replays is spent")
            else:
                self._planned += cost
                self._measured.expect(unique.values())
                self._asked = unique
                order = sorted(unique.values(), key=lambda item: (item.event_id, item.kind != "full", item.pair_id))
                return tuple(order)
        return ()

    def observe(self, outcomes: Iterable[Outcome]) -> None:
        """Take the outcomes of the planned round, in any order; all of them or an error of the caller's own."""
        for outcome in outcomes:
            self._measured.outcomes[outcome.pair_id] = outcome
            for same in self._same(self._asked[outcome.pair_id]):
                if same not in self._measured:
                    self._measured.note(same, outcome)
        self._advance()

    def add_derived(self, entries: Mapping[str, str]) -> bool:
        """Move entries into S that derive from what S holds, and judge every event anew.

        Whatever moves up into their places is measured like any other memory.

        Returns:
            True where S grew: `plan` then has further rounds.
        """
        new = {entry_id: reason for entry_id, reason in entries.items() if entry_id not in self._state.removed}
        if not new:
            return False
        self._state.possible_ancestors |= self._state.removed.keys() - self._state.derived
        self._state.removed |= new
        self._state.derived |= new.keys()
        self._state.phase = self._state.reopen()
        return True

    def _distinct(self, asked: Iterable[Ablation]) -> dict[str, Ablation]:
        """Return the questions that have no answer yet by pair id; of those about copies of one memory, the first."""
        found: dict[str, Ablation] = {}
        for ablation in asked:
            if ablation not in self._measured and not any(same.pair_id in found for same in self._same(ablation)):
                found[ablation.pair_id] = ablation
        return found

    def _same(self, ablation: Ablation) -> list[Ablation]:
        """Return the question and those that the same replay answers: of copies of a memory that is shown alone."""
        if ablation.kept is None or len(ablation.kept) != 1 or ablation.measure == "continuation":
            return [ablation]
        return [replace(ablation, kept=(entry_id,)) for entry_id in self._state.memory.copies(ablation.kept[0])]

    def _advance(self) -> None:
        """Take in the answers to the phase's questions, and go on to the next phase."""
        search, rule, controls = self._state, self._rule, self._controls
        if search.phase == "reproduction":
            read_reproduction(search, self._scorer)
            search.phase = "necessity" if self.settings.attribution == "loo" else "harm span"
        elif search.phase == "harm span":
            if any(item not in search.measured for item in span_round(search, controls)):
                return
            for event_id, state in search.open_events():
                controls.read_span(event_id, state)
            search.phase = "divergence"
        elif search.phase == "divergence":
            search.phase = "divergence" if read_continuations(search) else "baseline"
        elif search.phase == "baseline":
            search.phase = read_baseline(search, controls)
        elif search.phase == "reference":
            for event_id, state in events_all_format(search, controls):
                controls.read_replays(event_id, state)
            search.phase = "divergence"
        elif search.phase == "sufficiency":
            if not self._has_all_evidence():
                return
            attribute(search, rule)
            raise_quotas(search)
            if self._wants_points() or tighten_undecided(search, controls):
                return
            if events_without_attribution(search) and pending(search):
                return
            if not unscreen(events_without_attribution(search)):
                retired = retire_points_of(search, events_without_attribution(search))
                search.phase = "divergence" if retired else "necessity"
        elif search.phase == "necessity":
            read_influences(search)
            search.phase = "done" if self.settings.attribution == "loo" else search.reopen()
        elif search.phase == "closure":
            if not self._has_all_evidence():
                return
            changed = attribute(search, rule)
            search.closure_rounds += changed
            search.neighbour_rounds += changed and search.is_flooded
            if changed:
                search.reopen()  # also events cleared before: what was screened out is asked about at others only
            raise_quotas(search)
            if self._wants_points() or tighten_undecided(search, controls) or changed or pending(search):
                return
            if tighten_large_shares(search, controls, rule):
                return
            if exclude_diffuse_events(search, rule):
                self._wants_points()
                return
            for state in search.states.values():
                controls.reopen_if_control_removed(state, search.removed.keys())
            search.phase = "verify"
        elif search.phase == "verify":
            search.phase = read_verify(search, rule, controls, self._scorer)
        elif search.phase == "neighbours":
            read_influences(search)
            grew = attribute(search, rule)
            search.neighbour_rounds += grew
            search.phase = search.reopen() if tighten_undecided(search, controls) or grew else "restore"
            self._wants_points()
            self._unasked = unasked_neighbours(search)
        elif search.phase == "restore":
            put_back(search)
            search.phase = "done"

    def _has_all_evidence(self) -> bool:
        """Take in what memories do alone; True where nothing more is to be asked before it is weighed."""
        search, controls = self._state, self._controls
        for event_id, state in search.evidence_events():
            controls.read_divergences(event_id, state)
        read_groups(search, controls)
        if pending(search):
            return False
        read_influences(search)
        return not tighten_before_most(search, controls, self._rule)

    def _wants_points(self) -> bool:
        """Go back for later points where an event retired those it had; True if one did."""
        if self._state.later_points_wanted:
            self._state.phase, self._state.later_points_wanted = "divergence", False
            return True
        return False

    def _leave_out(self, what: str) -> None:
        """List what is left unexamined; once, though a search that is taken up again leaves it out again."""
        if what not in self._left_out:
            self._left_out.append(what)

    def _give_up(self, why: str) -> None:
        """End the search, and list what it leaves unexamined.

        An event that was replayed is not unexamined: the last replay without S judges it, or else this reason.
        """
        for event_id, state in self.states.items():
            if state.status == "open":
                state.status = "not examined" if state.full is None else "not cleared"
                state.reason = why
                self._leave_out(f"event {event_id}: {why}")
        if self._state.phase == "neighbours":
            self._leave_out(f"memories like attributed ones: {why}")
        if self._state.phase == "restore":
            put_back_unseen(self._state)
        if self._state.phase in {"neighbours", "restore"}:
            self._leave_out(f"whether memories can be put back: {why}")
        self._state.phase = "done"
