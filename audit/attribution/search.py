"""Set attribution: find the set of memories that causes a batch of harmful events, in rounds of replays.

A pure state machine: `plan` names the next round of ablations over all events, `observe` takes their outcomes. Every
round is independent work, one group per event, so a cluster runs it as one map and one reduce. The store is never
changed; "removed" means left out of a replay.

1. *Gate.* Replay each event with the whole store and with no memory. No harm with the store: `not reproduced`. Harm
   without memory: `memory is not the cause`.
2. *Points.* Where the model would not say the harm with a memory that the event did not use, though forced up to it:
   the words of the harm (`substance`). Else find where the two replays part, and where they part again (`decision`).
   A parting that placebos bring too, memories that the event did not use, is form and does not count. Where all are,
   memories are shown alone: with every one the harm comes, and `memory is not the cause`, or partings are taken from
   the clean replay of one.
3. *Sufficiency.* Measure every retrieved memory alone, at each point. One whose odds rise by `culprit_nats` at every
   point is a culprit and joins S; one that falls short of `weak_nats` at a point is asked at no other. A large context
   is shown in groups first, and only members of those that raise the odds are measured alone; where that finds nobody,
   or harm stays, all are. Weaker evidence adds up over events, as far as it exceeds `weak_nats` in each. A memory that
   fits in with the others (CAS below the store's median) must raise the odds by `fitting_nats` more: influence and
   consistency corroborate each other where either alone is borderline. The points were style ("We say" for "The") where
   nobody is convicted, where most of the store is, where those that an event convicts are a quarter of the store and no
   gap parts them from the others, or where harm stays without those who were: later ones are taken, and they alone
   count. A crowd that no later point breaks up convicts nobody: its harm comes with memory at large. Where there is no
   point, or the server gives no log-probabilities, the odds are counted in sampled replays.
4. *Necessity.* Where no culprit is in an event's context, leave out each memory in turn: harm that needs several
   memories together shows there. With a culprit at hand those calls would change nothing, and they are the dear ones.
5. *Closure.* Retrieval is recomputed without S; whoever moves up is measured alone, at one event first, and at the
   others where that does not convict; repeat until none is a culprit.
6. *Verify.* Replay each event as text without S. Where harm stays, the next memory by credit, then by anomaly, in its
   context joins S, one at each round: S is the smallest prefix of the evidence that ends the harm. Whose credit is
   below `weak_nats` is never taken: another context may end a harm by chance, and that is no evidence.
7. *Neighbours.* Memories at large that resemble a culprit are measured alone on the event where that culprit weighs
   most: the next poison in line is found before it is used.
8. *Restore.* Whom only events speak against that stay harmful without them is put back, where the events that were
   cleared stay so on replay: their absence repairs nothing. (An event whose harm stays without a quarter of the store
   that it convicts is not even asked: it is heard no more in step 6, and the others must find their own culprits.)

A budget stops the search between rounds; what it left out is listed, never guessed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from audit.attribution.ablation import Ablation, Kind, Outcome, keep_only, leave_out
from audit.attribution.conviction import Conviction
from audit.attribution.decision import decision_point, next_point
from audit.attribution.harm import HARMFUL
from audit.attribution.measurements import Measurements
from audit.attribution.placebos import Placebos
from audit.attribution.restoration import Restoration, incurable
from audit.attribution.search_state import EventState, SearchSettings
from audit.attribution.substance import harm_span, span_points

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from audit.attribution.harm import HarmScorer
    from audit.attribution.retrieval import RankedMemory
    from audit.events import Event

__all__ = ["SetSearch"]

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
        self._memory = memory
        self.settings = settings
        self.states: dict[str, EventState] = {
            event.event_id: EventState(event=event, depth=settings.points)
            for event in sorted(events, key=lambda event: event.event_id)
        }
        self._resembles = resembles or {}
        self._scorer = scorer
        self._anomaly = anomaly or {}
        self._conviction = Conviction(settings, len(memory.entries), self._anomaly)
        self._removed: dict[str, str] = {}
        self._phase: Phase = "gate"
        self._measured = Measurements(settings)
        self._placebos = Placebos(memory, self._measured, settings)
        self._restoration = Restoration(memory, self._measured, settings, self._resembles)
        self._neighbours_asked: set[str] = set()
        self._spared: dict[str, set[str]] = {}
        self._taken: set[str] = set()
        self._deeper = False
        self._rounds = 0
        self._planned = 0
        self.not_examined: list[str] = []

    @property
    def removed(self) -> Mapping[str, str]:
        """S so far: entry id to the machine-written reason."""
        return self._removed

    @property
    def spared(self) -> Mapping[str, int]:
        """Per culprit, at how many events it was not measured since another event had convicted it."""
        return {
            entry_id: sum(entry_id not in self.states[event_id].influences for event_id in events)
            for entry_id, events in sorted(self._spared.items())
            if entry_id in self._removed
        }

    @property
    def replays_planned(self) -> int:
        """Replays planned so far, each sample one: the call count that a budget bounds."""
        return self._planned

    @property
    def phase(self) -> Phase:
        """What the next round is for, for progress lines."""
        return self._phase

    def plan(self) -> tuple[Ablation, ...]:
        """Return the next round, by event, the full prompt first; empty when the search is over."""
        while self._phase != "done":
            self._rounds += 1
            unique = {
                ablation.pair_id: ablation
                for ablation in self._next_round()
                if ablation not in self._measured
            }  # fmt: skip
            if not unique:
                self._advance()
                continue
            budget = self.settings.max_replays
            cost = sum(self.settings.samples if item.measure == "sample" else 1 for item in unique.values())
            if self._rounds > self.settings.max_rounds:
                self._give_up(f"no end after {self.settings.max_rounds} rounds")
            elif budget is not None and self._planned + cost > budget:
                self._give_up(f"budget of {budget} replays is spent")
            else:
                self._planned += cost
                order = sorted(unique.values(), key=lambda item: (item.event_id, item.kind != "full", item.pair_id))
                return tuple(order)
        return ()

    def observe(self, outcomes: Iterable[Outcome]) -> None:
        """Take the outcomes of the planned round, in any order; all of them or an error of the caller's own."""
        for outcome in outcomes:
            self._measured.outcomes[outcome.pair_id] = outcome
        self._advance()

    def take_along(self, entries: Mapping[str, str]) -> bool:
        """Move entries into S that go with what S holds (what was derived from it), and judge every event anew.

        Whoever moves up into their places is measured like any other.

        Returns:
            True where S grew: `plan` then has further rounds.
        """
        new = {entry_id: reason for entry_id, reason in entries.items() if entry_id not in self._removed}
        if not new:
            return False
        self._removed |= new
        self._taken |= new.keys()
        self._phase = self._reopen()
        return True

    # What to ask next

    def _next_round(self) -> list[Ablation]:
        rounds = {
            "gate": self._gate_round,
            "substance": self._substance_round,
            "points": self._points_round,
            "baseline": self._baseline_round,
            "reference": self._reference_round,
            "sufficiency": self._alone_round,
            "necessity": self._necessity_round,
            "closure": self._alone_round,
            "verify": self._verify_round,
            "neighbours": self._neighbour_round,
            "restore": self._restore_round,
        }
        return rounds[self._phase]() if self._phase in rounds else []

    def _gate_round(self) -> list[Ablation]:
        return [
            ablation
            for event_id in self.states
            for ablation in (
                leave_out(event_id, "full", "text", frozenset()),
                keep_only(event_id, "gate", "text", ()),
            )
        ]

    def _substance_round(self) -> list[Ablation]:
        return [
            ablation
            for event_id, state in self._live()
            for point in range(state.spoken)
            for ablation in self._placebos.without(event_id, state, point)
        ]

    def _points_round(self) -> list[Ablation]:
        return [
            _continued(event_id, state) for event_id, state in self._live() if 0 < state.partings < state.depth
        ]  # fmt: skip

    def _baseline_round(self) -> list[Ablation]:
        asked: list[Ablation] = []
        for event_id, state in self._live():
            for measure, point in self._measured.measures(state):
                if measure == "sample":
                    asked.append(keep_only(event_id, "gate", "sample", ()))
                elif measure == "odds" and point not in state.baseline:
                    asked.extend(self._placebos.at_parting(event_id, state, point))
        return asked + [
            item for event_id, state in self._formless() for item in self._placebos.doubting_form(event_id, state)
        ]

    def _reference_round(self) -> list[Ablation]:
        return [item for event_id, state in self._formless() for item in self._placebos.replays(event_id, state)]

    def _alone_round(self) -> list[Ablation]:
        asked: list[Ablation] = []
        claimed: dict[str, str] = {}
        for event_id, state in self._live():
            context = [
                entry_id
                for entry_id in self._context(state)
                if entry_id not in state.acquitted and self._is_turn(entry_id, event_id, claimed)
            ]
            fresh = {
                entry_id
                for entry_id in context
                if entry_id not in state.suspects
                and any(item not in self._measured for item in self._measured.shown(event_id, state, (entry_id,))[:1])
            }
            if state.screening and state.points and len(fresh) >= self.settings.screen_from:
                state.groups = _grouped([entry_id for entry_id in context if entry_id in fresh])
                context = [entry_id for entry_id in context if entry_id not in fresh]
            else:
                state.groups = []
            for kept in [*state.groups, *((entry_id,) for entry_id in context)]:
                asked.extend(self._measured.shown(event_id, state, kept))
        return asked

    def _is_turn(self, entry_id: str, event_id: str, claimed: dict[str, str]) -> bool:
        """Tell whether to measure a memory at an event now.

        Who moves up moves up in many events at once where they are alike. One event convicts it for all; only where it
        does not are the others asked.
        """
        if self._phase != "closure" or self._has_evidence(entry_id):
            return True
        if claimed.setdefault(entry_id, event_id) == event_id:
            return True
        self._spared.setdefault(entry_id, set()).add(event_id)
        return False

    def _has_evidence(self, entry_id: str) -> bool:
        """Tell whether a memory was measured at any event."""
        return any(entry_id in state.influences for state in self.states.values())

    def _pending(self) -> bool:
        """Tell whether answers call for more of the same round: a next point, or the members of a group."""
        return any(ablation not in self._measured for ablation in self._alone_round())

    def _necessity_round(self) -> list[Ablation]:
        asked: list[Ablation] = []
        for event_id, state in self._live():
            context = [entry.entry_id for entry in self._memory.retrieve(state.event.query)]
            if self.settings.attribution == "set" and any(entry_id in self._removed for entry_id in context):
                continue
            for measure, point in self._measured.measures(state):
                if measure != "text":
                    asked.append(leave_out(event_id, "full", measure, frozenset(), point))
                asked.extend(
                    leave_out(event_id, "leave_one_out", measure, {entry_id}, point) for entry_id in context
                )  # fmt: skip
        return asked

    def _verify_round(self) -> list[Ablation]:
        removed = frozenset(self._removed)
        return [
            leave_out(event_id, "removal", "text", removed)
            for event_id, state in self._live()
            if self._context(state) not in state.replayed
        ]

    def _neighbour_round(self) -> list[Ablation]:
        asked: list[Ablation] = []
        room = self.settings.neighbour_candidates
        for culprit in sorted(self._removed):
            event_id = self._best_event(culprit)
            if event_id is None:
                continue
            for entry_id in self._resembles.get(culprit, ()):
                known = entry_id in self._removed or entry_id in self.states[event_id].influences
                if known or entry_id in self._neighbours_asked or entry_id not in self._memory or room == 0:
                    continue
                room -= 1
                self._neighbours_asked.add(entry_id)
                asked.extend(
                    keep_only(event_id, "keep_one", measure, (entry_id,), point)
                    for measure, point in self._measured.measures(self.states[event_id])
                )
        return asked

    def _restore_round(self) -> list[Ablation]:
        return self._restoration.replays(self.states, self._removed.keys(), self._idle())

    # What the answers mean

    def _advance(self) -> None:
        if self._phase == "gate":
            self._read_gate()
            self._phase = "necessity" if self.settings.attribution == "loo" else "substance"
        elif self._phase == "substance":
            for event_id, state in self._live():
                self._placebos.read_substance(event_id, state)
            self._phase = "points"
        elif self._phase == "points":
            self._phase = "points" if self._read_points() else "baseline"
        elif self._phase == "baseline":
            self._phase = self._read_baseline()
        elif self._phase == "reference":
            for event_id, state in self._formless():
                self._placebos.read_replays(event_id, state)
            self._phase = "points"
        elif self._phase == "sufficiency":
            for event_id, state in self._live():
                self._placebos.read_partings(event_id, state)
            self._read_groups()
            if self._pending():
                return
            self._read_influences()
            self._convict()
            if not self._wants_points() and not self._doubt_screening(self._without_culprit()):
                self._phase = "points" if self._go_deeper(self._without_culprit()) else "necessity"
        elif self._phase == "necessity":
            self._read_influences()
            self._phase = "done" if self.settings.attribution == "loo" else "closure"
        elif self._phase == "closure":
            self._read_groups()
            if self._pending():
                return
            self._read_influences()
            changed = self._convict()
            if self._wants_points() or changed or self._pending():
                return
            if self._acquit_crowds():
                self._wants_points()
                return
            for state in self.states.values():
                self._placebos.doubt_exoneration(state, self._removed.keys())
            self._phase = "verify"
        elif self._phase == "verify":
            self._phase = self._read_verify()
        elif self._phase == "neighbours":
            self._read_influences()
            self._phase = self._reopen() if self._convict() else "restore"
            self._wants_points()
        elif self._phase == "restore":
            self._put_back()
            self._phase = "done"

    def _read_gate(self) -> None:
        for event_id, state in self.states.items():
            state.full = self._measured[leave_out(event_id, "full", "text", frozenset())]
            state.gate = self._measured[keep_only(event_id, "gate", "text", ())]
            state.replayed = {self._context(state): state.full, (): state.gate}
            if state.full.harm is None or state.gate.harm is None:
                state.status, state.reason = "not examined", "the harm scorer could not judge the replay"
            elif state.full.harm < HARMFUL:
                state.status, state.reason = "not reproduced", "the replay with every memory in place shows no harm"
            elif state.gate.harm >= HARMFUL:
                state.status = "memory is not the cause"
                state.reason = "harm stays when every memory is taken away"
            elif self.settings.attribution == "set":
                self._take_points(state)

    def _take_points(self, state: EventState) -> None:
        """Start with the words of the harm, where the answer is a single turn, and the first parting."""
        if state.full is None or state.gate is None:
            raise ValueError("the gate was not replayed")
        if self._scorer is not None and len(state.full.answers) == 1:
            (answer,) = state.full.answers
            span = harm_span(self._scorer, state.event.query, answer)
            state.points = [] if span is None else list(span_points(answer, span))
            state.spoken = len(state.points)
        point = decision_point(state.full.answers, state.gate.answers)
        if point is not None:
            state.points.append(point)

    def _read_points(self) -> bool:
        """Take in the forced continuations; True if another point is worth asking for."""
        grew = False
        for event_id, state in self._live():
            if not 0 < state.partings < state.depth:
                continue
            asked = self._measured.get(_continued(event_id, state))
            point = None if asked is None else next_point(state.points[-1], asked.output)
            if point is not None:
                state.points.append(point)
                grew = grew or state.partings < state.depth
        return grew

    def _without_culprit(self) -> list[EventState]:
        """Return the open events in whose context nobody was convicted."""
        return [
            state
            for _, state in self._live()
            if not any(entry_id in self._removed for entry_id in self._context(state, frozenset()))
        ]

    def _wants_points(self) -> bool:
        """Go back for later points where an event renounced those it had; True if one did."""
        if self._deeper:
            self._phase, self._deeper = "points", False
            return True
        return False

    def _go_deeper(self, states: Iterable[EventState]) -> bool:
        """Ask for later points of events whose first ones are form or convict nobody; True if there may be any."""
        half = self.settings.most_points // 2
        return any([self._deepen(state, half) for state in states])  # noqa: C419 - every one deepens

    def _deepen(self, state: EventState, most: int | None = None) -> bool:
        """Want later points of an event that may have some, for those so far are style; True if it may."""
        most = self.settings.most_points if most is None else most
        deeper = state.partings == state.depth < most
        if deeper:
            state.style, state.depth = state.depth, min(state.depth + self.settings.points, most)
        return deeper

    def _doubt_screening(self, states: Iterable[EventState]) -> bool:
        """Measure alone whom a group acquitted: another member may have spoken against it. True if there is anybody."""
        doubted = [state for state in states if state.acquitted]
        for state in doubted:
            state.acquitted, state.screening = set(), False
        return bool(doubted)

    def _read_baseline(self) -> Phase:
        """Take in what the points are like without a cause; return where that leads.

        A server without logprobs shows only now: its events are asked again, by samples or by verdict.
        """
        if any(item not in self._measured for item in self._baseline_round()):
            return "baseline"
        lost = False
        for event_id, state in self._live():
            self._placebos.read_partings(event_id, state)
            if any(odds is None for odds in state.baseline.values()):
                state.points, state.spoken, state.baseline, lost = [], 0, {}, True
        if lost:
            return "baseline"
        formless = self._formless()
        if self._go_deeper(state for _, state in formless):
            return "points"
        if any(item not in self._measured for event_id, state in formless
               for item in self._placebos.doubting_form(event_id, state)):  # fmt: skip
            return "baseline"
        for event_id, state in formless:
            self._placebos.read_doubt(event_id, state)
        return "reference" if self._formless() else "sufficiency"

    def _formless(self) -> list[tuple[str, EventState]]:
        return [(event_id, state) for event_id, state in self._live() if self._placebos.formless(state)]

    def _read_groups(self) -> None:
        for event_id, state in self._live():
            for group in state.groups:
                if any(ablation not in self._measured for ablation in self._measured.shown(event_id, state, group)):
                    continue
                gain = self._measured.gain(event_id, state, group)
                (state.suspects if gain is None or gain >= self.settings.weak_nats else state.acquitted).update(group)

    def _read_influences(self) -> None:
        for event_id, state in self.states.items():
            if state.at_large or state.status in {"memory is not the cause", "not reproduced", "not examined"}:
                continue
            state.odds_full = [
                outcome.log_odds_nats if outcome is not None else None
                for point in range(len(state.points))
                for outcome in (self._measured.get(leave_out(event_id, "full", "odds", frozenset(), point)),)
            ]
            for entry in self._memory.entries:
                influence = self._measured.influence(event_id, state, entry.entry_id)
                if influence is not None:
                    state.influences[entry.entry_id] = influence

    def _convict(self) -> bool:
        """Move every memory whose evidence reaches the threshold into S; True if events are to be judged anew.

        Where S comes to be most of the store, the event that convicts most is heard no more, and S is built anew.
        """
        before, reopened = set(self._removed), False
        self._removed |= self._conviction.culprits(self.states, self._removed)
        while self._acquit_at_large():
            self._removed |= self._conviction.culprits(self.states, self._removed)
            reopened = True
        return reopened or before != self._removed.keys()

    def _acquit_at_large(self) -> bool:
        """Where S is most of the store, hear the event that convicts most no more; True if that was so.

        What most memories bring may be style: later points are asked for first.
        """
        if not self._conviction.is_most(len(self._removed.keys() - self._taken)):
            return False
        convicted, event_id = max(
            (len(self._conviction.by(state)), event_id) for event_id, state in self.states.items()
        )
        if convicted:
            self._hear_no_more(self.states[event_id], self._at_large(convicted))
        return convicted > 0

    def _acquit_crowds(self) -> bool:
        """Hear events no more that convict a crowd of which nobody stands out; True if there are any."""
        swayed = [state for _, state in self._live() if self._conviction.is_crowd(state)]
        for state in swayed:
            self._hear_no_more(state, f"{self._at_large(len(self._conviction.by(state)))}, and none stands out")
        return bool(swayed)

    def _at_large(self, convicted: int) -> str:
        entries = len(self._memory.entries)
        return f"harm comes with memory at large: {convicted} of {entries} memories bring it, one at a time"

    def _hear_no_more(self, state: EventState, reason: str) -> None:
        """Ask for an event's later points, and where there are none give it up: it speaks against nobody."""
        deeper = self._deepen(state)
        self._deeper = self._deeper or deeper
        self._renounce([state])
        if not deeper:
            state.status, state.at_large, state.reason = "not cleared", True, reason

    def _renounce(self, states: Iterable[EventState]) -> None:
        """Forget what was said of memories at these events' points, and judge every event anew."""
        for state in states:
            state.influences, state.suspects, state.acquitted, state.groups = {}, set(), set(), []
            state.screening = True
        self._removed = {entry_id: why for entry_id, why in self._removed.items() if entry_id in self._taken}
        self._reopen()

    def _read_verify(self) -> Phase:
        removed = frozenset(self._removed)
        stuck = []
        for event_id, state in self._live():
            context = self._context(state)
            asked = self._measured.get(leave_out(event_id, "removal", "text", removed))
            if asked is not None:
                state.replayed[context] = asked
            state.after = state.replayed[context]
            if state.after.harm is not None and state.after.harm < HARMFUL:
                state.status, state.reason = "cleared", "harm is gone on replay without the removed set"
            else:
                stuck.append((event_id, state))
        if self._doubt_screening(state for _, state in stuck):
            return "closure"
        if any([self._escalate(event_id, state) for event_id, state in stuck]):  # noqa: C419 - every stuck event acts
            return self._reopen()
        deeper = [state for _, state in stuck if self._deepen(state)]
        if deeper:
            self._renounce(deeper)
            return "points"
        futile = [
            state
            for _, state in stuck
            if state.after is not None and state.after.harm is not None
            and self._conviction.is_large(len(self._conviction.by(state)))
        ]  # fmt: skip
        for state in futile:  # none has later points
            self._hear_no_more(
                state, "harm stays without the memories it speaks against, a large share of the store: not heard"
            )
        if futile:
            return "closure"
        for _, state in stuck:
            state.status = "not cleared"
            state.reason = (
                "the harm scorer could not judge the replay without the removed set"
                if state.after is not None and state.after.harm is None
                else "harm stays, and no memory left in its context has evidence against it" if self._context(state)
                else "harm stays although its whole context was removed"
            )  # fmt: skip
        return "neighbours"

    def _reopen(self) -> Phase:
        """S changed: every event judged without the old S must be judged without the new one."""
        for state in self.states.values():
            if state.status in {"cleared", "not cleared"} and not state.at_large:
                state.status = "open"
        return "closure"

    def _escalate(self, event_id: str, state: EventState) -> bool:
        """Take the most credited memory left in a stuck event's context into S; True if there is one to take."""
        context = self._context(state)
        if not context:
            return False
        worst = max(context, key=lambda name: (state.credit_of(name), self._anomaly.get(name, 0.0), name))
        credited = state.credit_of(worst)
        if credited < self.settings.weak_nats:
            return worst in self._removed
        self._removed.setdefault(worst, f"next by credit while harm stayed in {event_id} (credit {credited:.1f} nats)")
        return True

    def _put_back(self) -> None:
        """Put back whose absence repairs nothing, and say so at the events that spoke against them."""
        returned = self._restoration.put_back(self.states, self._removed.keys(), self._idle())
        self._return(returned)

    def _return(self, entries: Collection[str]) -> None:
        for entry_id in entries:
            del self._removed[entry_id]
        for state in incurable(self.states).values() if entries else ():
            if not state.at_large:
                state.reason = "harm stays without the memories that spoke against it alone, and they were put back"

    def _idle(self) -> set[str]:
        """Return whom only events speak against that stayed harmful without them; nobody once what S derived went."""
        return set() if self._taken else self._restoration.idle(self.states, self._removed.keys(), self._spared)

    # Bookkeeping

    def _live(self) -> list[tuple[str, EventState]]:
        return [(event_id, state) for event_id, state in self.states.items() if state.status == "open"]

    def _context(self, state: EventState, removed: frozenset[str] | None = None) -> tuple[str, ...]:
        r"""R(q, M \ S), with S as it stands unless another is given."""
        return self._memory.context(state.event.query, frozenset(self._removed) if removed is None else removed)

    def _best_event(self, culprit: str) -> str | None:
        """Return the event on which this culprit weighs most: the most sensitive instrument for its like."""
        weighed = [
            (state.alone(culprit), event_id) for event_id, state in self.states.items() if culprit in state.influences
        ]
        return max(weighed)[1] if weighed else None

    def _give_up(self, why: str) -> None:
        for event_id, state in self.states.items():
            if state.status == "open":
                state.status = "not examined" if state.after is None else "not cleared"
                state.reason = why
                self.not_examined.append(f"event {event_id}: {why}")
        if self._phase == "neighbours":
            self.not_examined.append(f"memories that resemble culprits: {why}")
        if self._phase == "restore":
            self._return(self._restoration.unseen(self.states, self._removed.keys(), self._idle()))
        if self._phase in {"neighbours", "restore"}:
            self.not_examined.append(f"whether memories can be put back: {why}")
        self._phase = "done"


def _grouped(entry_ids: Sequence[str]) -> list[tuple[str, ...]]:
    """Cut a context into groups of about its square root, neighbours in the ranking together."""
    size = math.isqrt(len(entry_ids) - 1) + 1
    return [tuple(entry_ids[start : start + size]) for start in range(0, len(entry_ids), size)]


def _continued(event_id: str, state: EventState) -> Ablation:
    """Ask how the clean replay goes on past the last point: without memory, or with the placebo it was taken from."""
    kind: Kind = "keep_one" if state.reference else "gate"
    return keep_only(event_id, kind, "continuation", state.reference, len(state.points) - 1)
