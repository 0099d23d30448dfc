"""A method as its operator would use it: remove what it accuses and ask again, until the harm of all events ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.attribution.peers.searching import answer
from benchmarks.attribution.peers.verdicts import Attribution
from memory_audit.attribution.replays.ablation import leave_out
from memory_audit.events import HARMFUL
from memory_audit.jobs.executors.replay_group import ReplayQuestion

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.attribution.peers.embedded_store import EmbeddedStore
    from benchmarks.attribution.peers.methods import Trial
    from memory_audit.events import Event

__all__ = ["until_harm_ends"]

MOST_ROUNDS = 5
"""Harm that no removal ends would else empty the store."""


def until_harm_ends(trial: Trial, store: EmbeddedStore, method: Callable[[Trial], Attribution]) -> Attribution:
    """Run a method in rounds on the events that are still harmful, with what the agent answers by then.

    It ends where no event is harmful, where a round accuses nobody, or after MOST_ROUNDS.

    Args:
        trial: The store and its events.
        store: Gives what is left of it.
        method: Has a rule of its own.

    Returns:
        The scores of the first round, and all that was accused.
    """
    removed: frozenset[str] = frozenset()
    events, rounds, first = tuple(trial.events), 0, None
    while events and rounds < MOST_ROUNDS:
        found = method(replace(trial, memory=store.without(removed), events=events))
        first, rounds = first or found, rounds + 1
        if not found.chosen:
            break
        removed |= found.chosen
        events = _still_harmful(trial, store, removed)
    more = {"rounds": rounds, "harmful_events_left": len(events)}
    return Attribution(scores={} if first is None else first.scores, chosen=removed, more=more)


def _still_harmful(trial: Trial, store: EmbeddedStore, removed: frozenset[str]) -> tuple[Event, ...]:
    memory = store.without(removed)
    ablations = {event.event_id: leave_out(event.event_id, "removal", "text", removed) for event in trial.events}
    questions = [
        (event.query, ReplayQuestion(ablation=ablations[event.event_id], memories=memory.retrieve(event.query)))
        for event in trial.events
    ]
    outcomes = answer(trial.executor, trial.program, questions, trial.reporter, "asking again")
    again = [(event, outcomes[ablations[event.event_id].pair_id]) for event in trial.events]
    return tuple(
        replace(event, output=outcome.output)
        for event, outcome in again
        if outcome.harm is not None and outcome.harm >= HARMFUL
    )
