"""Benign probes: recent uses not marked harmful, whose answers must survive the removal of S."""

from __future__ import annotations

from rapidfuzz.distance import Levenshtein

from memory_audit.attribution.replays.answers import answer_of

__all__ = ["SAME_ANSWER_SIMILARITY", "same_answer"]

SAME_ANSWER_SIMILARITY = 0.8
"""Normalised edit similarity from which two free texts count as one answer: a word or two reworded, not a change."""


def same_answer(before: str, after: str, pattern: str | None) -> bool | None:
    """Tell whether a probe kept its answer; None where there was no answer before."""
    expected, got = answer_of(before, pattern), answer_of(after, pattern)
    if expected is None:
        return None
    if got is None:
        return False
    if pattern is not None:
        return expected == got
    return bool(Levenshtein.normalized_similarity(expected, got) >= SAME_ANSWER_SIMILARITY)
