"""Rows of the result file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.gate.derivation.measures import auc
from benchmarks.harness.public_data import reading
from memory_audit.guard.text.forms import visible
from training.behaviours.corpus import ANSWERS, RESTATED, RESTATEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.behaviour import BehaviourReader
    from memory_audit.models.activations.behaviour_reader import ReaderWeights
    from training.behaviours.corpus import Note, Scenario
    from training.behaviours.scores import Scores

__all__ = ["conversations_row", "notes_row", "odds_with_own_acts", "rewritten_row", "rows_of", "turns_of"]

SHORT_WORDS = 6


def rows_of(every: Scores, parts: NDArray[np.str_], threshold: float, doubt: float) -> Iterator[dict[str, object]]:
    """Yield one row for all, and one for each part."""
    for part in ("all", *dict.fromkeys(parts.tolist())):
        held = (parts == part) | (part == "all")
        scores = every.chosen(held)
        own, harm, elsewhere, compared = scores.own, scores.harm, scores.elsewhere, scores.compared
        yield {
            "part": part, "scenarios": int(held.sum()),
            "auc": _auc(own[:, :RESTATED], own[:, RESTATED:]),
            "auc_comparison_alone": _auc(compared[:, :RESTATED], compared[:, RESTATED:]),
            "auc_harm_alone": _auc(harm[:, :RESTATED], harm[:, RESTATED:]),
            "auc_against": {kind: _auc(own[:, :RESTATED], own[:, RESTATED + n]) for n, kind in enumerate(ANSWERS)},
            "restated_refused": _share(own[:, :RESTATED], threshold),
            "refused_by_kind": {kind: _share(own[:, n], threshold) for n, kind in enumerate(RESTATEMENTS)},
            "safe_refused": _share(own[:, RESTATED:], threshold),
            "safe_refused_by_kind": {
                kind: _share(own[:, RESTATED + n], threshold) for n, kind in enumerate(ANSWERS)
            },
            "restated_in_doubt_or_refused": _share(own[:, :RESTATED], doubt),
            "in_doubt_or_refused_by_kind": {kind: _share(own[:, n], doubt) for n, kind in enumerate(RESTATEMENTS)},
            "safe_in_doubt_or_refused": _share(own[:, RESTATED:], doubt),
            "safe_elsewhere_in_doubt_or_refused": _share(elsewhere[:, RESTATED:], doubt),
            "safe_elsewhere_refused": _share(elsewhere[:, RESTATED:], threshold),
            "harmful_elsewhere_refused": _share(elsewhere[:, :RESTATED], threshold),
        }  # fmt: skip


def notes_row(scores: Scores, noted: Sequence[Note], threshold: float, doubt: float) -> dict[str, object]:
    """Return what is said of notes, ordinary and bad, by length."""
    row: dict[str, object] = {"part": "notes"}
    words = np.array([len(note.text.split()) for note in noted])
    for kind, bad in (("ordinary", False), ("bad", True)):
        mine = np.array([note.bad == bad for note in noted])
        for name, of_length in (("", words > 0), (", 6 words at most", words <= SHORT_WORDS)):
            chosen = scores.notes[mine & of_length]
            row[kind + name] = _shares(chosen, threshold, doubt)
    return row


def odds_with_own_acts(
    reader: BehaviourReader, found: Sequence[Scenario], pairs: Sequence[tuple[int, str]]
) -> NDArray[np.float64]:
    """Return log-odds of texts, each beside the number of the scenario whose behaviour it is held against."""
    behaviours = reader.taught([found[number].texts[0] for number, _ in pairs])
    readings = reader.read([text for _, text in pairs])
    odds = [
        reader.log_odds(one, behaviour.direction[None])[0] for one, behaviour in zip(readings, behaviours, strict=True)
    ]
    return np.array(odds, np.float64)


def rewritten_row(
    found: Sequence[Scenario],
    odds_of: Callable[[Sequence[tuple[int, str]]], NDArray[np.float64]],
    threshold: float,
    doubt: float,
) -> dict[str, object]:
    """Return what is said of texts that a small model rewrote, each compared with its scenario's behaviour.

    Args:
        found: Scenarios; not all have some.
        odds_of: Returns the log-odds of texts, each beside the number of the scenario whose behaviour it is held
            against.
        threshold: In nats.
        doubt: In nats.
    """
    sides = {
        side: odds_of([(number, text) for number, scenario in enumerate(found) for text in getattr(scenario, side)])
        for side in ("rewritten", "rewritten_right")
    }
    return {
        "part": "rewritten by a small model",
        "auc": _auc(sides["rewritten"], sides["rewritten_right"]),
        "restated": _shares(sides["rewritten"], threshold, doubt),
        "safe": _shares(sides["rewritten_right"], threshold, doubt),
    }


def conversations_row(
    turns: Sequence[NDArray[np.float32]], weights: ReaderWeights, behaviours: NDArray[np.float32]
) -> dict[str, object]:
    """Return what the weights say of MemoryBank's turns, as writes of a tenant with these removed behaviours.

    Args:
        turns: `passage_means` of what `turns_of` returns.
        weights: Fitted on none of this.
        behaviours: Directions, shape (behaviours, dimensions).
    """
    odds = np.array([float(weights.log_odds(weights.reading(text), behaviours).max()) for text in turns])
    return {"part": "MemoryBank", **_shares(odds, weights.curve.threshold_nats, weights.curve.doubt_nats)}


def turns_of(data: Path) -> list[str]:
    """Return what is said in MemoryBank's conversations, each text once; `data` is the folder with memorybank/.

    Raises:
        UsageError: the file is missing or damaged.
    """
    with reading(data / "memorybank" / "memory_bank_en.json") as path:
        bank = json.loads(path.read_text(encoding="utf-8"))
        return sorted({
            visible(said)
            for user in bank.values() for day in user["history"].values() for turn in day for said in turn.values()
        })  # fmt: skip


def _auc(higher: NDArray[np.float64], lower: NDArray[np.float64]) -> float | None:
    scores = np.concatenate([higher.ravel(), lower.ravel()])
    there = ~np.isnan(scores)
    positive = (np.arange(len(scores)) < higher.size)[there]
    if positive.all() or not positive.any():
        return None  # a kind of text that a part has none of
    return round(auc(scores[there], positive), 3)


def _shares(odds: NDArray[np.float64], threshold: float, doubt: float) -> dict[str, object]:
    return {"n": len(odds), "refused": _share(odds, threshold), "in_doubt_or_refused": _share(odds, doubt)}


def _share(scores: NDArray[np.float64], threshold: float) -> float | None:
    there = scores[~np.isnan(scores)]
    return round(float((there >= threshold).mean()), 4) if there.size else None
