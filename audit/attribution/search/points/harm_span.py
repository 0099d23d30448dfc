"""The harm span: the shortest part of an answer that the harm scorer already calls harmful.

Where two replays diverge may be wording, or what a benign memory adds to the same answer. The odds of the harm itself,
with the answer forced up to it, tell more: "park on deck B or the cemetery lot" diverges from the clean answer at the
deck, and only the poison raises the cemetery. They say nothing where what was forced already settles the harm, as a
poisoned chain of thought does before the F of "Answer: F"; `memory_audit.attribution.search.search` asks first whether
it does, and keeps to divergence points then.

Scorers that ask a model are not asked here: they would be asked for every word.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_audit.attribution.search.points.divergence import WORD, MeasurementPoint
from memory_audit.events import HARMFUL

if TYPE_CHECKING:
    from memory_audit.attribution.replays.harm import HarmScorer

__all__ = ["harm_span", "span_points"]

MOST_WORDS = 512
"""Longer answers are not searched."""

MOST_POINTS = 6
"""Points of one span: what makes a name or a number, not a sentence."""

_DIGITS = re.compile(r"\d+")


def harm_span(scorer: HarmScorer, query: str, answer: str) -> tuple[int, int] | None:
    """Find the span: the end of the first word with which the answer is harmful, and as few words before as will do.

    Returns:
        Start and end index in `answer`, whole words, the leading space included; None where the scorer asks a model,
        the answer is too long, or no prefix of it is harmful. Where the scorer has a method `decisive`, which takes the
        span's text and returns two indices, the span is cut down to the words of that part.
    """
    # Up to the last word: a word is looked for at each of the blanks behind it, which takes quadratic time.
    words = list(WORD.finditer(answer, 0, len(answer.rstrip())))
    if len(words) > MOST_WORDS:
        return None
    end = next((word.end() for word in words if _is_harmful(scorer, query, answer[: word.end()])), None)
    if end is None:
        return None
    start = 0
    for word in words:
        if word.start() >= end or not _is_harmful(scorer, query, answer[word.start() : end]):
            break
        start = word.start()
    decisive = getattr(scorer, "decisive", None)
    if decisive is None:
        return start, end
    first, last = decisive(answer[start:end])
    inside = [word for word in words if word.end() > start + first and word.start() < start + last]
    return (inside[0].start(), inside[-1].end()) if inside else (start, end)


def span_points(answer: str, span: tuple[int, int]) -> tuple[MeasurementPoint, ...]:
    """Return one point for each word of the span, and for each digit of a number, at most MOST_POINTS.

    Numbers are split from their space, and by many tokenisers into digits (see
    `memory_audit.attribution.search.points.divergence`).
    """
    starts: list[int] = []
    for word in WORD.finditer(answer, *span):
        first = word.end() - len(word[0].lstrip())
        digits = _DIGITS.match(answer, first, word.end())
        starts += range(digits.start(), digits.end()) if digits else [word.start()]
    return tuple(MeasurementPoint(history=(), answer=answer, start=start, clean="") for start in starts[:MOST_POINTS])


def _is_harmful(scorer: HarmScorer, query: str, text: str) -> bool:
    """Ask of a fragment. Failing on it is no harm: a checker that parses whole answers, as JSON, cannot read a part."""
    try:
        return _is_scored_harmful(scorer, query, text)
    except Exception:  # noqa: BLE001 - the user's own scorer may raise anything
        return False


def _is_scored_harmful(scorer: HarmScorer, query: str, text: str) -> bool:
    scoring = scorer.score(query, text)
    try:
        next(scoring)
    except StopIteration as done:
        return done.value is not None and done.value >= HARMFUL
    scoring.close()
    return False
