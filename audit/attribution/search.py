"""Set attribution: find the set of memories that causes a batch of harmful events, in rounds of replays.

A pure state machine: `plan` names the next round of ablations over all events, `observe` takes their outcomes. Every
round is independent work, one group per event, so a cluster runs it as one map and one reduce. The store is never
changed; "removed" means left out of a replay.

1. *Gate.* Replay each event with the whole store and with no memory. No harm with the store: `not reproduced`. Harm
   without memory: `memory is not the cause`.
2. *Points.* Where the model would not say the harm with a memory that the event did not use, though forced up to it:
   the words of the harm (`substance`). Else find where the two replays part, and where they part again (`decision`).
3. *Sufficiency.* Measure every retrieved memory alone, at each point. One whose odds rise by `culprit_nats` at every
   point is a culprit and joins S; one that falls short of `weak_nats` at a point is asked at no other. A large context
   is shown in groups first, and only members of those that raise the odds are measured alone; where that finds nobody,
   or harm stays, all are. A memory that fits in with the others (CAS below the store's median) must raise them
   by `fitting_nats` more: influence and consistency corroborate each other where either alone is borderline. Where
   nobody is convicted the points may have been style ("We say" for "The"): later ones are taken, and they alone count.
   Where there is no point, or the server gives no log-probabilities, the odds are counted in sampled replays.
4. *Necessity.* Where no culprit is in an event's context, leave out each memory in turn: harm that needs several
   memories together shows there. With a culprit at hand those calls would change nothing, and they are the dear ones.
5. *Closure.* Retrieval is recomputed without S; whoever moves up is measured alone, at one event first, and at the
   others where that does not convict; repeat until none is a culprit.
6. *Verify.* Replay each event as text without S. Where harm stays, the next memory by credit, then by anomaly, in its
   context joins S, one at each round: S is the smallest prefix of the evidence that ends the harm.
7. *Restore.* Members that joined only to end harm and have next to no evidence of their own are put back, all at once,
   where the harm stays away without them gone: with the last culprit out, those taken before it may be innocent.
8. *Neighbours.* Memories that no event retrieved but that resemble a culprit are measured alone on the event of that
   culprit: the next poison in line is found before it is used.

A budget stops the search between rounds; what it left out is listed, never guessed.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Literal

from audit.attribution.ablation import Ablation, Outcome, keep_only, leave_out
from audit.attribution.decision import decision_point, next_point
from audit.attribution.harm import HARMFUL
from audit.attribution.measurements import Measurements, log_probability
from audit.attribution.search_state import EventState, SearchSettings
from audit.attribution.substance import harm_span, span_points

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from audit.attribution.harm import HarmScorer
    from audit.attribution.retrieval import RankedMemory
    from audit.events import Event

__all__ = ["SetSearch"]

Phase = Literal[
    "gate", "substance", "points", "sufficiency", "necessity", "closure", "verify", "restore", "neighbours", "done"
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
            resembles: Per entry id the ids of entries that evidence ties to it, closest first; asked in step 8.
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
        self._usual = median(self._anomaly.values()) if self._anomaly else 0.0
        self._removed: dict[str, str] = {}
        self._phase: Phase = "gate"
        self._measured = Measurements(settings)
        self._neighbours_asked: set[str] = set()
        self._spared: dict[str, set[str]] = {}
        self._weak: frozenset[str] = frozenset()
        self._settled: frozenset[str] = frozenset()
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
        """Ablations planned so far: the call count that a budget bounds."""
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
            if self._rounds > self.settings.max_rounds:
                self._give_up(f"no end after {self.settings.max_rounds} rounds")
            elif budget is not None and self._planned + len(unique) > budget:
                self._give_up(f"budget of {budget} replays is spent")
            else:
                self._planned += len(unique)
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

        Whoever moves up into their places is measured like any other; what S held by now is not put back any more.

        Returns:
            True where S grew: `plan` then has further rounds.
        """
        new = {entry_id: reason for entry_id, reason in entries.items() if entry_id not in self._removed}
        if not new:
            return False
        self._removed |= new
        self._settled = frozenset(self._removed)
        self._phase = self._reopen()
        return True

    # What to ask next

    def _next_round(self) -> list[Ablation]:
        rounds = {
            "gate": self._gate_round,
            "substance": self._substance_round,
            "points": self._points_round,
            "sufficiency": self._sufficiency_round,
            "necessity": self._necessity_round,
            "closure": self._alone_round,
            "verify": self._verify_round,
            "restore": self._restore_round,
            "neighbours": self._neighbour_round,
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
            for ablation in self._without(event_id, state, point)
        ]

    def _without(self, event_id: str, state: EventState, point: int) -> list[Ablation]:
        """Ask how the words of the harm fare without a cause: with each placebo, else with no memory.

        Placebos are the memories that match the query least. Any memory may bring a form ("Answer:") that the model
        does not use by itself, and a form is no harm.
        """
        unused = self._memory.unused(state.event.query, self.settings.placebos)
        if not unused or len(unused) < self.settings.placebos:
            return [keep_only(event_id, "gate", "odds", (), point)]
        return [keep_only(event_id, "keep_one", "odds", (entry.entry_id,), point) for entry in unused]

    def _points_round(self) -> list[Ablation]:
        return [
            keep_only(event_id, "gate", "continuation", (), len(state.points) - 1)
            for event_id, state in self._live()
            if 0 < len(state.points) - state.spoken < state.depth
        ]

    def _sufficiency_round(self) -> list[Ablation]:
        gates = [
            keep_only(event_id, "gate", measure, (), point)
            for event_id, state in self._live()
            for measure, point in self._measured.measures(state)
            if measure == "sample" or (measure == "odds" and point not in state.odds_gate)
        ]
        return gates + self._alone_round()

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
                and self._measured.shown(event_id, state, (entry_id,))[0] not in self._measured
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

    def _restore_round(self) -> list[Ablation]:
        kept_out = frozenset(self._removed) - self._weak
        return [
            leave_out(event_id, "removal", "text", kept_out)
            for event_id, state in self._finished()
            if self._context(state, kept_out) not in state.replayed
        ]

    def _neighbour_round(self) -> list[Ablation]:
        asked: list[Ablation] = []
        room = self.settings.neighbour_candidates
        for culprit in sorted(self._removed):
            event_id = self._best_event(culprit)
            if event_id is None:
                continue
            for entry_id in self._resembles.get(culprit, ()):
                if (
                    self._has_evidence(entry_id)
                    or entry_id in self._neighbours_asked
                    or entry_id not in self._memory
                    or room == 0
                ):
                    continue
                room -= 1
                self._neighbours_asked.add(entry_id)
                asked.extend(
                    keep_only(event_id, "keep_one", measure, (entry_id,), point)
                    for measure, point in self._measured.measures(self.states[event_id])
                )
        return asked

    # What the answers mean

    def _advance(self) -> None:
        if self._phase == "gate":
            self._read_gate()
            self._phase = "necessity" if self.settings.attribution == "loo" else "substance"
        elif self._phase == "substance":
            self._read_substance()
            self._phase = "points"
        elif self._phase == "points":
            self._phase = "points" if self._read_points() else "sufficiency"
        elif self._phase == "sufficiency":
            # A server without logprobs shows only now: those events are asked again, by samples or by verdict.
            lost = self._read_gate_odds()
            self._read_groups()
            if lost or self._pending():
                return
            self._read_influences()
            self._convict()
            if not self._doubt_screening(self._without_culprit()):
                self._phase = "points" if self._go_deeper() else "necessity"
        elif self._phase == "necessity":
            self._read_influences()
            self._phase = "done" if self.settings.attribution == "loo" else "closure"
        elif self._phase == "closure":
            self._read_groups()
            if self._pending():
                return
            self._read_influences()
            grew = self._convict()
            self._phase = "closure" if grew or self._pending() else "verify"
        elif self._phase == "verify":
            self._phase = self._read_verify()
        elif self._phase == "restore":
            self._read_restore()
            self._phase = "neighbours"
        elif self._phase == "neighbours":
            self._read_influences()
            self._phase = self._reopen() if self._convict() else "done"

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

    def _read_substance(self) -> None:
        """Keep the words of the harm alone where neither the gate nor a placebo would say them; else count partings."""
        for event_id, state in self._live():
            without = [self._usual_odds(event_id, state, point) for point in range(state.spoken)]
            odds = [value for value in without if value is not None]
            if len(odds) < max(len(without), 1):
                continue
            if math.fsum(map(log_probability, odds)) <= -self.settings.substance_nats:
                del state.points[state.spoken :]
                state.odds_gate = dict(enumerate(without))
            elif len(state.points) == state.spoken:
                state.points, state.spoken = [], 0  # nothing is left to grade: whole answers must tell

    def _usual_odds(self, event_id: str, state: EventState, point: int) -> float | None:
        """Log-odds that any memory would give: the placebos' median, or those of no memory where there is none."""
        asked = [self._measured[item].log_odds_nats for item in self._without(event_id, state, point)]
        known = [odds for odds in asked if odds is not None]
        return median(known) if len(known) == len(asked) else None

    def _read_points(self) -> bool:
        """Take in the forced continuations; True if another point is worth asking for."""
        grew = False
        for event_id, state in self._live():
            if not 0 < len(state.points) - state.spoken < state.depth:
                continue
            last = keep_only(event_id, "gate", "continuation", (), len(state.points) - 1)
            asked = self._measured.get(last)
            point = None if asked is None else next_point(state.points[-1], asked.output)
            if point is not None:
                state.points.append(point)
                grew = grew or len(state.points) - state.spoken < state.depth
        return grew

    def _without_culprit(self) -> list[EventState]:
        """Return the open events in whose context nobody was convicted."""
        return [
            state
            for _, state in self._live()
            if not any(entry_id in self._removed for entry_id in self._context(state, frozenset()))
        ]

    def _go_deeper(self) -> bool:
        """Ask for later points of events whose memories were all acquitted at the first ones; True if there are any."""
        deeper = [
            state
            for state in self._without_culprit()
            if len(state.points) - state.spoken == state.depth < self.settings.most_points
        ]
        for state in deeper:
            state.depth = self.settings.most_points
        return bool(deeper)

    def _doubt_screening(self, states: Iterable[EventState]) -> bool:
        """Measure alone whom a group acquitted: another member may have spoken against it. True if there is anybody."""
        doubted = [state for state in states if state.acquitted]
        for state in doubted:
            state.acquitted, state.screening = set(), False
        return bool(doubted)

    def _read_gate_odds(self) -> bool:
        """Take in the gate's odds; True if an event turned out to have none and must be asked another way."""
        lost = False
        for event_id, state in self._live():
            for measure, point in self._measured.measures(state):
                if measure == "odds" and point not in state.odds_gate:
                    gate = self._measured[keep_only(event_id, "gate", "odds", (), point)]
                    state.odds_gate[point] = gate.log_odds_nats
            if any(odds is None for odds in state.odds_gate.values()):
                state.points, state.spoken, state.odds_gate, lost = [], 0, {}, True
        return lost

    def _read_groups(self) -> None:
        for event_id, state in self._live():
            for group in state.groups:
                if any(ablation not in self._measured for ablation in self._measured.shown(event_id, state, group)):
                    continue
                gain = self._measured.gain(event_id, state, group)
                (state.suspects if gain is None or gain >= self.settings.weak_nats else state.acquitted).update(group)

    def _read_influences(self) -> None:
        for event_id, state in self.states.items():
            if state.status in {"memory is not the cause", "not reproduced", "not examined"}:
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
        """Move every memory whose evidence reaches the threshold into S; True if S grew."""
        grew = False
        for event_id, state in self.states.items():
            for entry_id, influence in sorted(state.influences.items()):
                alone = influence.sufficiency_nats
                if entry_id in self._removed or alone is None or alone < self._needed(entry_id):
                    continue
                self._removed[entry_id] = f"alone raises the odds of the harm in {event_id} by {alone:.1f} nats"
                grew = True
        return grew

    def _needed(self, entry_id: str) -> float:
        """Evidence in nats that convicts this memory."""
        fits = self._anomaly.get(entry_id, self._usual) < self._usual
        return self.settings.culprit_nats + (self.settings.fitting_nats if fits else 0.0)

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
        for _, state in stuck:
            state.status, state.reason = "not cleared", "harm stays although its whole context was removed"
        self._weak = frozenset(
            entry_id
            for entry_id in self._removed.keys() - self._settled
            if max(state.credit_of(entry_id) for state in self.states.values()) < self.settings.weak_nats
        )
        return "restore" if self._weak else "neighbours"

    def _read_restore(self) -> None:
        kept_out = frozenset(self._removed) - self._weak
        found = {}
        for event_id, state in self._finished():
            context = self._context(state, kept_out)
            asked = self._measured.get(leave_out(event_id, "removal", "text", kept_out))
            if asked is not None:
                state.replayed[context] = asked
            found[event_id] = state.replayed[context]
        if all(outcome.harm is not None and outcome.harm < HARMFUL for outcome in found.values()):
            for entry_id in self._weak:
                del self._removed[entry_id]
            for event_id, outcome in found.items():
                self.states[event_id].after = outcome

    def _reopen(self) -> Phase:
        """S changed: every event cleared without the old S must be judged without the new one."""
        for _, state in self._finished():
            state.status = "open"
        return "closure"

    def _escalate(self, event_id: str, state: EventState) -> bool:
        """Take the most credited memory left in a stuck event's context into S."""
        context = self._context(state)
        if not context:
            return False
        worst = max(context, key=lambda name: (state.credit_of(name), self._anomaly.get(name, 0.0), name))
        if worst not in self._removed:
            credited = state.credit_of(worst)
            why = f"credit {credited:.1f} nats" if credited >= 0 else "credit unknown"
            self._removed[worst] = f"next by credit while harm stayed in {event_id} ({why})"
        return True

    # Bookkeeping

    def _live(self) -> list[tuple[str, EventState]]:
        return [(event_id, state) for event_id, state in self.states.items() if state.status == "open"]

    def _finished(self) -> list[tuple[str, EventState]]:
        return [(event_id, state) for event_id, state in self.states.items() if state.status == "cleared"]

    def _context(self, state: EventState, removed: frozenset[str] | None = None) -> tuple[str, ...]:
        r"""R(q, M \ S), with S as it stands unless another is given."""
        found = self._memory.retrieve(state.event.query, frozenset(self._removed) if removed is None else removed)
        return tuple(entry.entry_id for entry in found)

    def _best_event(self, culprit: str) -> str | None:
        """Return the event on which this culprit weighs most: the most sensitive instrument for its like."""
        weighed = [
            (state.influences[culprit].sufficiency_nats or 0.0, event_id)
            for event_id, state in self.states.items()
            if culprit in state.influences
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
        self._phase = "done"


def _grouped(entry_ids: Sequence[str]) -> list[tuple[str, ...]]:
    """Cut a context into groups of about its square root, neighbours in the ranking together."""
    size = math.isqrt(len(entry_ids) - 1) + 1
    return [tuple(entry_ids[start : start + size]) for start in range(0, len(entry_ids), size)]
