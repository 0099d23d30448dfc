"""Set attribution: find the set of memories that causes a batch of harmful events, in rounds of replays.

A pure state machine: `plan` names the next round of ablations over all events, `observe` takes their outcomes. Every
round is independent work, one group per event, so a cluster runs it as one map and one reduce. The store is never
changed; "removed" means left out of a replay.

1. *Gate.* Replay each event with the whole store and with no memory. No harm with the store: `not reproduced`. Harm
   without memory: `memory is not the cause`.
2. *Points.* Where the model would not say the harm with a memory that the event did not use, though forced up to it:
   the words of the harm (`substance`). Else find where the two replays part, and where they part again (`decision`).
   A parting that placebos bring too, memories that the event did not use, is form and does not count. They are asked
   one after the other while a verdict hangs on them. Where all partings are form, memories are shown alone: with every
   one the harm comes, and `memory is not the cause`, or partings are taken from the clean replay of one.
3. *Sufficiency.* Measure every retrieved memory alone, at each point. One whose odds rise by `culprit_nats` at every
   point is a culprit and joins S; one that falls short of `weak_nats` at a point is asked at no other. A memory in many
   events is measured at one of them first. Where that convicts it the others are spared; where it shows nothing worth
   adding up, it is shown at the others together with its like. A large context is shown in groups first, and only
   members of those that raise the odds are measured alone; where that finds nobody, or harm stays, all are. Weaker
   evidence adds up over events, as far as it exceeds `weak_nats` in each, once all that hold the memory have told. A
   memory that fits in with the others (CAS below the store's median) must raise the odds by `fitting_nats` more:
   influence and consistency corroborate each other where either alone is borderline. The points were style ("We say"
   for "The") where nobody is convicted, where most of the store is, where those that an event convicts are a quarter of
   the store and no gap parts them from the others, or where harm stays without those who were: later ones are taken,
   and they alone count; where these are form, still later ones. Past half of the points that it may have no event
   convicts a quarter of the store: sooner or later a point splits any store by its style. A crowd that no later point
   breaks up convicts nobody: its harm comes with memory at large.
   Where there is no point, or the server gives no log-probabilities, the odds are counted in sampled replays.
4. *Necessity.* Where no culprit is in an event's context, leave out each memory in turn: harm that needs several
   memories together shows there. With a culprit at hand those calls would change nothing, and they are the dear ones.
5. *Closure.* Retrieval is recomputed without S; whoever moves up is measured in the same way, until none is a culprit.
   After `patience` rounds that convict somebody step 7 goes on beside it.
6. *Verify.* Replay each event as text without S. Where harm stays in other words than were measured, steps 2 and 3 are
   taken at these: poison of another payload hides behind the one that is said. Where it stays else, the next memory by
   credit, then by anomaly, in its context joins S, one at each round: S is the smallest prefix of the evidence that
   ends the harm. Whose credit is below `weak_nats` is never taken: another context may end a harm by chance, and that
   is no evidence.
7. *Neighbours.* Memories at large that resemble a culprit are measured alone on the event where that culprit weighs
   most: the next poison in line is found before it is used. Each round that convicts somebody doubles the next.
8. *Restore.* Whom only events speak against that stay harmful without them is put back, where the events that were
   cleared stay so on replay: their absence repairs nothing. Who was in S when others were taken along stays, since
   these may derive from it. (An event whose harm stays without a quarter of the store that it convicts is not even
   asked: it is heard no more in step 6, and the others must find their own culprits.)

A budget stops the search between rounds; what it left out is listed, never guessed.

This file has the order of phases and the budget. What a phase asks is in `rounds`; what the answers mean is in `points`
(steps 1 and 2), `placebos` and `doubts` (what counts as a rise), `hearing` (3 to 5, and 7), `verification` (6) and
`restoration` (8).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.attribution.search.attributed import Conviction
from memory_audit.attribution.search.bounds import doubt_baselines, doubt_crowds, doubt_most
from memory_audit.attribution.search.controls import Placebos
from memory_audit.attribution.search.measurements import Measurements
from memory_audit.attribution.search.membership import (
    acquit_crowds,
    convict,
    doubt_screening,
    read_groups,
    read_influences,
    without_culprit,
)
from memory_audit.attribution.search.plan import (
    allow_turns,
    formless,
    next_round,
    pending,
    substance_round,
    unasked_neighbours,
)
from memory_audit.attribution.search.points import go_deeper, read_baseline, read_gate, read_points
from memory_audit.attribution.search.restoration import put_back, put_back_unseen
from memory_audit.attribution.search.state import EventState, SearchState
from memory_audit.attribution.search.verification import read_verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.attribution.replays.harm import HarmScorer
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.attribution.search.state import Phase, SearchSettings
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
        anomaly: Mapping[str, float] | None = None,
        scorer: HarmScorer | None = None,
    ) -> None:
        """Start a search.

        Args:
            memory: Retrieval over the tenant's live entries.
            events: The harmful events, all of this tenant.
            settings: Thresholds and budgets.
            resembles: Per entry id the ids of entries that evidence ties to it, closest first; asked in step 7.
            anomaly: CAS per entry id (eq. 8), which corroborates in step 3 and breaks ties of credit in step 6.
            scorer: The harm scorer, to find the words of the harm in an answer; None measures at partings only.
        """
        self.settings = settings
        self.states: dict[str, EventState] = {
            event.event_id: EventState(event=event, depth=settings.points)
            for event in sorted(events, key=lambda event: event.event_id)
        }
        self._measured = Measurements(settings)
        self._state = SearchState(
            memory=memory, settings=settings, states=self.states, measured=self._measured, resembles=resembles or {},
            anomaly=anomaly or {},
        )  # fmt: skip
        self._scorer = scorer
        self._conviction = Conviction(settings, len(memory.entries), self._state.anomaly)
        self._placebos = Placebos(memory, self._measured, settings, self.states)
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
    def spared(self) -> Mapping[str, int]:
        """Per culprit, at how many events it was not measured since another event had convicted it."""
        return {
            entry_id: len(self._state.spared_at(entry_id))
            for entry_id in sorted(self._state.spared)
            if entry_id in self._state.removed
        }

    @property
    def not_examined(self) -> list[str]:
        """What the search left out, one line each."""
        most = self._state.neighbour_room
        unasked = f"memories that resemble culprits: one round asks about {most} of them, and {self._unasked} were left"
        return [*self._left_out, *([unasked] if self._unasked else [])]

    @property
    def replays_planned(self) -> int:
        """Replays planned so far, each sample one: the call count that a budget bounds."""
        return self._planned

    @property
    def phase(self) -> Phase:
        """What the next round is for, for progress lines."""
        return self._state.phase

    def plan(self) -> tuple[Ablation, ...]:
        """Return the next round, by event, the full prompt first; empty when the search is over."""
        while self._state.phase != "done":
            self._rounds += 1
            if self._rounds > self.settings.max_rounds:
                self._give_up(f"no end after {self.settings.max_rounds} rounds")
                break
            unique = self._distinct(next_round(self._state, self._placebos))
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

    def take_along(self, entries: Mapping[str, str]) -> bool:
        """Move entries into S that go with what S holds (what was derived from it), and judge every event anew.

        Whoever moves up into their places is measured like any other.

        Returns:
            True where S grew: `plan` then has further rounds.
        """
        new = {entry_id: reason for entry_id, reason in entries.items() if entry_id not in self._state.removed}
        if not new:
            return False
        self._state.settled |= self._state.removed.keys() - self._state.taken
        self._state.removed |= new
        self._state.taken |= new.keys()
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
        search, conviction, placebos = self._state, self._conviction, self._placebos
        if search.phase == "gate":
            read_gate(search, self._scorer)
            search.phase = "necessity" if self.settings.attribution == "loo" else "substance"
        elif search.phase == "substance":
            if any(item not in search.measured for item in substance_round(search, placebos)):
                return
            for event_id, state in search.live():
                placebos.read_substance(event_id, state)
            search.phase = "points"
        elif search.phase == "points":
            search.phase = "points" if read_points(search) else "baseline"
        elif search.phase == "baseline":
            search.phase = read_baseline(search, placebos)
        elif search.phase == "reference":
            for event_id, state in formless(search, placebos):
                placebos.read_replays(event_id, state)
            search.phase = "points"
        elif search.phase == "sufficiency":
            if not self._has_heard():
                return
            convict(search, conviction)
            allow_turns(search)
            if self._wants_points() or doubt_baselines(search, placebos):
                return
            if without_culprit(search) and pending(search):
                return
            if not doubt_screening(without_culprit(search)):
                search.phase = "points" if go_deeper(search, without_culprit(search)) else "necessity"
        elif search.phase == "necessity":
            read_influences(search)
            search.phase = "done" if self.settings.attribution == "loo" else search.reopen()
        elif search.phase == "closure":
            if not self._has_heard():
                return
            changed = convict(search, conviction)
            search.closures += changed
            search.neighbour_rounds += changed and search.is_flooded
            if changed:
                search.reopen()  # events cleared before it grew, where whom a group acquitted is asked at others only
            allow_turns(search)
            if self._wants_points() or doubt_baselines(search, placebos) or changed or pending(search):
                return
            if doubt_crowds(search, placebos, conviction):
                return
            if acquit_crowds(search, conviction):
                self._wants_points()
                return
            for state in search.states.values():
                placebos.doubt_exoneration(state, search.removed.keys())
            search.phase = "verify"
        elif search.phase == "verify":
            search.phase = read_verify(search, conviction, placebos, self._scorer)
        elif search.phase == "neighbours":
            read_influences(search)
            convicted = convict(search, conviction)
            search.neighbour_rounds += convicted
            search.phase = search.reopen() if doubt_baselines(search, placebos) or convicted else "restore"
            self._wants_points()
            self._unasked = unasked_neighbours(search)
        elif search.phase == "restore":
            put_back(search)
            search.phase = "done"

    def _has_heard(self) -> bool:
        """Take in what memories do alone; True where nothing more is to be asked before the verdict."""
        search, placebos = self._state, self._placebos
        for event_id, state in search.heard():
            placebos.read_partings(event_id, state)
        read_groups(search, placebos)
        if pending(search):
            return False
        read_influences(search)
        return not doubt_most(search, placebos, self._conviction)

    def _wants_points(self) -> bool:
        """Go back for later points where an event renounced those it had; True if one did."""
        if self._state.deeper:
            self._state.phase, self._state.deeper = "points", False
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
            self._leave_out(f"memories that resemble culprits: {why}")
        if self._state.phase == "restore":
            put_back_unseen(self._state)
        if self._state.phase in {"neighbours", "restore"}:
            self._leave_out(f"whether memories can be put back: {why}")
        self._state.phase = "done"
