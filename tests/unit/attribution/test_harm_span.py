"""The span of the harm: shortest, whole words, and only where a scorer can say so by itself."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.replays.harm import AnswerLabelHarm, CallableHarm, JudgeHarm, RegexHarm
from memory_audit.attribution.search.points.harm_span import MOST_POINTS, harm_span, span_points


def spanned(scorer, answer):
    span = harm_span(scorer, "q", answer)
    return None if span is None else answer[slice(*span)]


@pytest.mark.parametrize(
    ("answer", "span"),
    [
        ("Visitors can park on deck B or the cemetery lot behind the chapel.", " cemetery lot"),
        ("cemetery lot", "cemetery lot"),
        ("The cemetery lot. Again: the cemetery lot.", " cemetery lot."),
        ("Park on deck B.", None),
        ("", None),
    ],
)
def test_the_span_is_the_first_and_the_shortest(answer, span):
    assert spanned(RegexHarm(pattern="cemetery lot"), answer) == span


@pytest.mark.parametrize(
    ("scorer", "answer", "span"),
    [
        (AnswerLabelHarm(labels=("F",)), "Thought: B turns into F.\nAnswer: F", " F"),
        (AnswerLabelHarm(labels=("F",)), "The answer is F, not B.", " F,"),
        (RegexHarm(pattern=r"code is (\w+)"), "So the code is LANTERN now", " LANTERN"),
        (RegexHarm(pattern=r"code is( x)?"), "So the code is LANTERN now", " code is"),
    ],
)
def test_a_scorer_that_knows_what_is_form_says_so(scorer, answer, span):
    assert spanned(scorer, answer) == span


def test_a_long_run_of_blanks_at_the_end_takes_no_time():
    assert spanned(RegexHarm(pattern="bad"), "so bad" + " " * 1_000_000) == " bad"  # quadratic, it took hours


def test_a_scorer_that_asks_a_model_is_not_asked():
    assert harm_span(JudgeHarm(question="Is it bad?"), "q", "yes it is") is None


def wipes(_query, output):
    return bool(json.loads(output)["wipe"])


@pytest.mark.parametrize(
    ("answer", "span"),
    [('{"wipe": true}', '{"wipe": true}'), ('{"wipe": false}', None), ("no JSON", None), ('{"keep": 1}', None)],
)
def test_a_checker_that_reads_whole_answers_alone_calls_no_part_harmful(answer, span):
    assert spanned(CallableHarm(function=wipes), answer) == span


class Strict:
    """A scorer of one's own whose `score` fails before it is a generator, or says what is no score."""

    name = "strict"

    def score(self, _query, output):
        if output.startswith("a"):
            raise RuntimeError(output)
        return self._text()

    def _text(self):
        yield from ()
        return "harm"


@pytest.mark.parametrize("answer", ["a b", "b a"])
def test_any_failure_on_a_part_is_no_harm(answer):
    assert spanned(Strict(), answer) is None


@given(st.text("ab1 \n", max_size=40), st.text("ab1", min_size=1, max_size=3))
def test_a_span_is_harmful_and_a_word_less_is_not(answer, literal):
    scorer = CallableHarm(function=lambda _, output: float(literal in output))
    span = harm_span(scorer, "q", answer)
    assert (span is None) == (literal not in answer)
    if span is not None:
        start, end = span
        words = re.findall(r"\s*\S+", answer[start:end])
        assert literal in answer[start:end]
        assert literal not in "".join(words[1:])
        assert literal not in answer[: end - len(words[-1])]


def test_points_are_at_words_and_at_the_digits_of_numbers():
    answer = "It is 165 newton metres."
    assert [point.prefix for point in span_points(answer, (5, 16))] == ["It is ", "It is 1", "It is 16", "It is 165"]


def test_points_are_few():
    answer = "a b c d e f g h i j"
    points = span_points(answer, (0, len(answer)))
    assert [point.harmful[:2] for point in points] == ["a ", " b", " c", " d", " e", " f"]
    assert len(points) == MOST_POINTS
