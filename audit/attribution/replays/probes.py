"""Benign probes: recent uses not marked harmful, whose answers must survive the removal of S."""

from __future__ import annotations

import re

from rapidfuzz.distance import Levenshtein

__all__ = ["SAME_ANSWER_SIMILARITY", "answer_of", "same_answer"]

SAME_ANSWER_SIMILARITY = 0.8
"""Normalised edit similarity from which two free texts count as one answer: a word or two reworded, not a change."""


def answer_of(output: str, pattern: str | None) -> str | None:
    """Return what counts as the answer in an output: the pattern's last match, or the whole text folded.

    None where the pattern does not match: the output has no answer.
    """
    if pattern is None:
        return " ".join(output.casefold().split())
    found = list(re.finditer(pattern, output))
    if not found:
        return None
    return found[-1].group(1) if found[-1].re.groups else found[-1].group(0)


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
