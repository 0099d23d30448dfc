"""Step 6 of the search: does the harm end without S? Where it stays, S grows, or evidence is taken anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import leave_out
from memory_audit.attribution.search.bounds import tighten_everywhere
from memory_audit.attribution.search.membership import discard_evidence, exclude_event, unscreen
from memory_audit.attribution.search.points import renew_span, retire_points
from memory_audit.events import HARMFUL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.attribution.replays.harm import HarmScorer
    from memory_audit.attribution.search.attributed import AttributionRule
    from memory_audit.attribution.search.controls import ControlMemories
    from memory_audit.attribution.search.state import EventState, SearchPhase, SearchState

__all__ = ["read_verify"]


def read_verify(
    search: SearchState, rule: AttributionRule, controls: ControlMemories, scorer: HarmScorer | None
) -> SearchPhase:
    """Take in the replays without S: clear events whose harm is gone, act where it stays; return where that leads.

    What helps is tried in turn: the harm span where it is another by now, memories that were screened out, and control
    memories not yet asked. Then come the next memory by credit, later points, and the exclusion of events that
    attribute a large share of the store. A replay that the harm scorer could not judge is no harm that stays: nothing
    is tried on its account.
    """
    removed = frozenset(search.removed)
    stuck, unjudged = [], []
    for event_id, state in search.open_events():
        context = search.context(state)
        asked = search.measured.get(leave_out(event_id, "removal", "text", removed))
        if asked is not None:
            state.replayed[context] = asked
        state.after = state.replayed[context]
        if state.after.harm is None:
            unjudged.append(state)
        elif state.after.harm < HARMFUL:
            state.status, state.reason = "cleared", "harm is gone on replay without the removed set"
        else:
            stuck.append((event_id, state))
    if renew_span((state for _, state in stuck), scorer):
        return "harm span"
    if unscreen(state for _, state in stuck):
        return "closure"
    if stuck and tighten_everywhere(search, controls):
        return search.reopen()
    if _escalate(search, stuck):
        return search.reopen()
    later = [state for _, state in stuck if retire_points(search, state)]
    if later:
        discard_evidence(search, later)
        return "divergence"
    futile = [state for _, state in stuck if rule.is_large_share(len(rule.attributed_by(state)))]
    for state in futile:  # none has later points
        exclude_event(
            search, state,
            "harm stays without the large share of the store that the event attributes it to: it is excluded",
        )  # fmt: skip
    if futile:
        return "closure"
    for _, state in stuck:
        state.status = "not cleared"
        state.reason = "harm stays, and no memory left in its context has evidence against it"
    for state in unjudged:
        state.status = "not cleared"
        state.reason = "the harm scorer could not judge the replay without the removed set"
    return "neighbours"


def _escalate(search: SearchState, stuck: Iterable[tuple[str, EventState]]) -> bool:
    """Take the most credited memory left in each stuck event's context into S; True if there is one to take.

    Of events that share it one takes: the others' contexts change with that, and their harm may be gone.
    """
    candidates = []
    for event_id, state in stuck:
        context = search.context(state)  # never empty: with no memory there was no harm
        worst = max(context, key=lambda name: (state.credit_of(name), search.inconsistency.get(name, 0.0), name))
        if state.credit_of(worst) >= search.settings.weak_nats:
            candidates.append((state.credit_of(worst), search.inconsistency.get(worst, 0.0), worst, event_id, context))
    taken: set[str] = set()
    for credited, _, worst, event_id, context in sorted(candidates, reverse=True):
        if taken.isdisjoint(context):
            taken.add(worst)
            search.removed[worst] = f"next by credit while harm stayed in {event_id} (credit {credited:.1f} nats)"
    return bool(taken)
