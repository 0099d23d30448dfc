"""Steps 6 and 8 of the search: does the harm end without S, and whose absence repairs nothing?

Where harm stays, S grows, or evidence is taken anew. Candidates to be put back are attributed only by events that stay
harmful without them. One that brings the harm alone, as most control memories do not, contributed to it and stays in S:
the event tells that the agent errs without it, too. The others go back where a replay says that every event which was
cleared stays so; where one does not, only those whose return changes no replay at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import keep_only, leave_out
from memory_audit.attribution.search.bounds import loose_everywhere, wanting_controls
from memory_audit.attribution.search.combinations import is_wanted
from memory_audit.attribution.search.points.steps import renewed_span, retire_points
from memory_audit.attribution.search.settings import CONTROL_MEMORIES, WEAK_NATS
from memory_audit.attribution.search.state import Round, Transition
from memory_audit.attribution.search.weighing import CONTROLS_DECIDE, discard_evidence, exclude_event, unscreen
from memory_audit.counted import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.attribution.search.event import EventState
    from memory_audit.attribution.search.state import SearchState

__all__ = ["concluded", "put_back_unseen", "read_restored", "read_verified", "restore_round"]


def read_verified(search: SearchState) -> Transition:
    """Take in the replays without S: clear events whose harm is gone, act where it stays.

    What helps is tried in turn: the harm span where it is another by now, memories that were screened out, and control
    memories not yet asked. Then come sets, later points, and the exclusion of events that attribute a large share of
    the store. A memory whose evidence falls short is not removed to end a harm: it is named as suspected. A replay
    that the harm scorer could not judge is no harm that stays: nothing is tried on its account.
    """
    search = search.with_events([_replayed_without(search, state) for state in search.open_events()])
    stuck = [state for state in search.open_events() if _stays_harmful(state)]
    unjudged = [state for state in search.open_events() if not _stays_harmful(state)]
    if stuck:
        moved = _act(search, [state.event_id for state in stuck])
        if isinstance(moved, Transition):
            return moved
        search = moved
    search = search.with_events([
        *(search.events[state.event_id].settle(
            "not cleared", "harm stays, and no memory left in its context has evidence against it"
        ) for state in stuck),
        *(state.settle(
            "not cleared", "the harm scorer could not judge the replay without the removed set"
        ) for state in unjudged),
    ])  # fmt: skip
    why = f"{counted(len(_cleared(search)), 'event')} cleared without the set, {len(stuck) + len(unjudged)} not"
    return Transition(next="neighbours", state=search, why=why)


def _replayed_without(search: SearchState, state: EventState) -> EventState:
    """Take in an open event's replay without S; the event is cleared where its harm is gone."""
    context = search.context(state)
    asked = search.given.seen.get(leave_out(state.event_id, "removal", "text", search.removal.ids))
    known = state.replays.with_answer(context, asked)
    after = known.by_context[context]
    state = replace(state, replays=replace(known, after=after))
    if after.is_harmless:
        return state.settle("cleared", "harm is gone on replay without the removed set")
    return state


def _act(search: SearchState, stuck: Sequence[str]) -> Transition | SearchState:
    """Try what helps at events whose harm stays; where nothing does, return what is known then."""
    harm_stays = f"harm stays at {counted(len(stuck), 'event')}"
    before = search.events
    search = search.with_events([renewed_span(before[name], search.given.scorer) for name in stuck])
    if any(search.events[name].where.span_text != before[name].where.span_text for name in stuck):
        return Transition(next="harm span", state=search, why=f"{harm_stays}, in other words: these are measured")
    search, hidden = unscreen(search, [search.events[name] for name in stuck])
    if hidden:
        why = f"{harm_stays}: members of groups that showed nothing are measured alone"
        return Transition(next="closure", state=search, why=why)
    if loose := loose_everywhere(search):
        search = wanting_controls(search, loose).reopened()
        return Transition(next="closure", state=search, why=f"{harm_stays}: {CONTROLS_DECIDE}")
    if is_wanted(search):
        return Transition(next="combinations", state=search, why=f"{harm_stays}: sets are looked for")
    search, later = retire_points(search, [search.events[name] for name in stuck])
    if later:
        search = discard_evidence(search, [state.event_id for state in later])
        why = f"{harm_stays}, so what was measured was wording: later points are taken at {len(later)}"
        return Transition(next="divergence", state=search, why=why)
    rule = search.given.rule
    futile = [name for name in stuck if rule.is_large_share(len(rule.attributed_by(search.events[name])))]
    for name in futile:  # none has later points
        reason = "harm stays without the large share of the store that the event attributes it to: it is excluded"
        search, _ = exclude_event(search, search.events[name], reason)
    if futile:
        return Transition(next="closure", state=search, why=f"{harm_stays}: {len(futile)} excluded")
    return search


def restore_round(search: SearchState) -> Round:
    """Ask whether candidates bring the harm alone; then whether cleared events stay so when the idle ones go back."""
    asked = [
        item
        for name in sorted(_candidates(search))
        for state in _firm(search, name)
        for item in _shown_alone(search, state, name)
    ]
    if search.given.seen.answers(asked):
        kept_out = search.removal.ids - _idle(search)
        asked = [
            leave_out(state.event_id, "removal", "text", kept_out)
            for state in _cleared(search)
            if search.context(state, kept_out) not in state.replays.by_context
        ]
    return Round(asked=asked, noted=search)


def read_restored(search: SearchState) -> Transition:
    """Read those replays, and put all that are idle back where every cleared event stays so."""
    if not restore_round(search).is_answered:
        return Transition(next="restore", state=search, why="whether what repairs nothing may go back is asked")
    idle = _idle(search)
    kept_out = search.removal.ids - idle
    told: list[EventState] = []
    without: dict[str, Outcome] = {}
    for state in _cleared(search):
        context = search.context(state, kept_out)
        asked = search.given.seen.get(leave_out(state.event_id, "removal", "text", kept_out))
        known = state.replays.with_answer(context, asked)
        without[state.event_id] = known.by_context[context]
        told.append(replace(state, replays=known))
    search = search.with_events(told)
    if not all(replay.is_harmless for replay in without.values()):
        search, back = put_back_unseen(search)
        why = f"harm came back with what was to be put back: {len(back)} of {len(idle)} went back"
        return Transition(next="done", state=concluded(search), why=why)
    search = search.with_events(
        replace(state, replays=replace(state.replays, after=without[state.event_id])) for state in told
    )
    why = f"{counted(len(idle), 'memory')} whose absence repairs nothing went back"
    return Transition(next="done", state=concluded(_put_back(search, idle)), why=why)


def put_back_unseen(search: SearchState) -> tuple[SearchState, list[str]]:
    """Put back the candidates one after the other, while no cleared event's replay changes; return them, too."""
    found: list[str] = []
    out = search.removal.ids
    for entry_id in sorted(_idle(search)):
        fewer = out - {entry_id}
        if all(search.context(state, fewer) == search.context(state, out) for state in _cleared(search)):
            found.append(entry_id)
            out = fewer
    return _put_back(search, found), found


def _put_back(search: SearchState, entries: Collection[str]) -> SearchState:
    """Take entries out of S, and say so at the events that attributed their harm to them."""
    if not entries:
        return search
    reason = "harm stays without the memories that this event alone attributes it to, and they were put back"
    search = search.with_events(
        state.settle("not cleared", reason)
        for state in _still_harmful(search)
        if state.settled is not None and not state.settled.excluded
    )
    return search.with_attributed({name: why for name, why in search.removal.attributed.items() if name not in entries})


def _idle(search: SearchState) -> set[str]:
    """Return the candidates but those that bring the harm alone: these contributed, whatever else brings it, too."""
    candidates = _candidates(search)
    return {
        name for name in candidates if not any(_brings_it_alone(search, state, name) for state in _firm(search, name))
    }


def _brings_it_alone(search: SearchState, state: EventState, entry_id: str) -> bool:
    """Tell whether the harm of an event comes with one memory, and does not with most control memories."""
    seen, (with_it, *controls) = search.given.seen, _shown_alone(search, state, entry_id)
    known = seen.get(with_it)
    clean = sum((shown := seen.get(item)) is not None and shown.is_harmless for item in controls)
    return known is not None and known.is_harmful and 2 * clean >= len(controls)


def _firm(search: SearchState, entry_id: str) -> list[EventState]:
    return [state for state in _still_harmful(search) if search.given.rule.is_firm(state, entry_id)]


def _shown_alone(search: SearchState, state: EventState, entry_id: str) -> list[Ablation]:
    """Replay an event with one memory alone, and with each of its control memories."""
    event = state.event
    controls = search.given.memory.unused(event.query, CONTROL_MEMORIES, logged=event.retrieved)
    names = [entry_id, *(entry.entry_id for entry in controls if entry.entry_id not in search.removal.ids)]
    return [keep_only(event.event_id, "keep_one", "text", (name,)) for name in names]


def _candidates(search: SearchState) -> set[str]:
    """Return the candidates: attributed only by events that stay harmful. None where no event does.

    An entry that a cleared event skipped, or that resembles an attributed one which stays, was not asked there: it
    stays. So do derived entries, and all that were in S when these were added: they may be ancestors.
    """
    stuck = {state.event_id for state in _still_harmful(search)}
    if not stuck:
        return set()
    others = [state for event_id, state in search.events.items() if event_id not in stuck]
    names = {state.event_id for state in others}
    idle = {
        entry_id
        for entry_id in search.removal.attributed.keys() - search.possible_ancestors
        if search.skipped_at(entry_id).isdisjoint(names)
        and not any(state.alone(entry_id) >= WEAK_NATS for state in others)
    }
    for entry_id in search.removal.attributed.keys() - idle:  # descent alone is no evidence
        for alike in search.given.resembles.get(entry_id, ()):
            idle.difference_update(search.given.memory.copies(alike))
    return idle


def _still_harmful(search: SearchState) -> list[EventState]:
    """Return the events whose harm stayed without S, as the scorer saw it."""
    return [state for state in search.events.values() if state.status == "not cleared" and _stays_harmful(state)]


def _stays_harmful(state: EventState) -> bool:
    return state.after is not None and state.after.is_harmful


def _cleared(search: SearchState) -> list[EventState]:
    return [state for state in search.events.values() if state.status == "cleared"]


def concluded(search: SearchState) -> SearchState:
    """Tell apart the events whose harm stays: a memory of S contributed to it, or none is known that did.

    Memories that stay though some evidence at such an event speaks against them are named as suspected.
    """
    told = []
    for state in _still_harmful(search):
        named = [name for name in search.given.rule.attributed_by(state) if name in search.removal.ids]
        if named:
            others = f" and {len(named) - 1} more" if len(named) > 1 else ""
            what = "it" if len(named) == 1 else "them"
            reason = f"{named[0]}{others} raised the odds of the harm, and the agent errs without {what}, too"
            told.append(state.settle("contributed", reason))
    search = search.with_events(told)
    return replace(search, removal=replace(search.removal, suspected=_suspected(search)))


def _suspected(search: SearchState) -> dict[str, str]:
    found: dict[str, tuple[float, str]] = {}
    for state in search.events.values():
        if state.is_evidence and _stays_harmful(state):
            for entry_id in state.influences.keys() - search.removal.ids:
                nats = max(state.alone(entry_id), state.credit_of(entry_id))
                if nats >= WEAK_NATS and nats > found.get(entry_id, (0.0, ""))[0]:
                    found[entry_id] = nats, state.event_id
    return {
        name: f"raises the odds of the harm in {event_id} by {nats:.1f} nats, which does not attribute it"
        for name, (nats, event_id) in sorted(found.items())
    }
