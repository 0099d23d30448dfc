"""TracLLM's single-text score (Wang et al., arXiv 2506.04202; USENIX Security 2025), written from its description.

A text's score is the log-probability of the observed answer with this text alone, less that with none. Up to five texts
are scored one by one, without TracLLM's search. It ranks and has no threshold: whoever uses it says how many to take.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.attribution.peers.verdicts import Attribution

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.attribution.peers.likelihood import Likelihood
    from benchmarks.attribution.peers.methods import Trial
    from memory_audit.entry import Entry
    from memory_audit.events import Event

__all__ = ["above_half", "single_text", "true_count"]


def single_text(trial: Trial, model: Likelihood) -> Attribution:
    """Score what each event retrieved, in nats; it has no rule of its own."""
    agent, _ = trial.program.build()

    def nats(event: Event, *shown: Entry) -> float:
        messages = next(agent.episode(event.query, shown, trial.config.seed)).messages
        return math.fsum(model.token_nats(messages, event.output))

    scores: dict[str, dict[str, float]] = {}
    with trial.reporter.stage("TracLLM: single texts", len(trial.events)) as progress:
        for event in trial.events:
            bare = nats(event)
            scores[event.event_id] = {
                entry.entry_id: nats(event, entry) - bare for entry in trial.memory.retrieve(event.query)
            }
            progress.advance()
    return Attribution(scores=scores, chosen=None)


def above_half(scores: Mapping[str, Mapping[str, float]]) -> frozenset[str]:
    """Take the texts that score above half of their event's maximum, and above nothing."""
    return frozenset(
        name
        for of_event in scores.values()
        for name, score in of_event.items()
        if score > max(0.0, max(of_event.values()) / 2)
    )


def true_count(scores: Mapping[str, Mapping[str, float]], poison: frozenset[str]) -> frozenset[str]:
    """Take the highest scores of each event, as many as it has poisoned texts: a help that no user can give."""
    chosen: set[str] = set()
    for of_event in scores.values():
        ranked = sorted(of_event, key=lambda name: (-of_event[name], name))
        chosen.update(ranked[: len(poison & of_event.keys())])
    return frozenset(chosen)
