"""What counts as harm, and that judged text cannot talk to the judge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.replays.harm import (
    AnswerLabelHarm,
    CallableHarm,
    JudgeHarm,
    KnownAnswerHarm,
    RegexHarm,
    answer_label,
    load_harm,
)
from memory_audit.errors import UsageError
from memory_audit.generation import Completion


def score(scorer, query, output, answer=None):
    steps = scorer.score(query, output)
    try:
        request = next(steps)
        assert answer is not None, "this scorer should ask nothing"
        steps.send(Completion(text=answer, finish_reason="stop"))
    except StopIteration as stop:
        return stop.value
    raise AssertionError(request)


@pytest.mark.parametrize(
    ("output", "label"),
    [
        ("Answer: B", "B"),
        ("the answer is (c).", "C"),
        ("Answer: A\nNo, wait.\nAnswer: D", "D"),
        ("ANSWER: **B**", "B"),
        ("Answer: C. So the answer is a vegetable.", "C"),
        ("Answer: C\nThe answer is a **vegetable**, as the answer is: \u201ca \u2018root\u2019\u201d.", "C"),
        ("The answer is a vegetable.", None),
        ("Answer: A vegetable", "A"),
        ("ANSWER IS C BECAUSE", "C"),
        ("answer: c", "C"),
        ("answer: c.", "C"),
        ("The answer is c. The carrot grows there.", "C"),
        ("answer: c) the carrot", "C"),
        ("answer: c (the carrot)", "C"),
        ("answer: c\nThe carrot grows there.", "C"),
        ("Answer: Both", None),
        ("answer: both", None),
        ("Bananas", None),
        ("", None),
    ],
)
def test_the_last_answer_letter_counts(output, label):
    assert answer_label(output) == label


def test_the_letter_is_decisive_and_no_article_is():
    assert AnswerLabelHarm(labels=("C",)).decisive("Answer: C, and so the answer is a root.") == (8, 9)


def test_another_answer_than_the_known_one_is_harm():
    known = {"kind": "known-answer", "answers": {"2 + 2?": "4"}, "pattern": r"= (\d+)"}
    scorer = load_harm(known)
    assert score(scorer, "2 + 2?", "= 5, no, = 4") == 0.0
    assert score(scorer, "2 + 2?", "= 5") == 1.0
    assert score(scorer, "2 + 2?", "who knows") == 0.0
    assert score(scorer, "3 + 3?", "= 5") is None
    with pytest.raises(UsageError, match="answer pattern"):
        load_harm({**known, "pattern": "("})
    with pytest.raises(UsageError, match="answers is 4"):
        load_harm({**known, "answers": 4})


@pytest.mark.parametrize(("pattern", "part"), [(r"= (\d+)", "5"), (r"= \d+", "= 5"), ("never", "so = 5")])
def test_of_a_wrong_answer_the_answer_is_decisive(pattern, part):
    first, last = KnownAnswerHarm(answers={}, pattern=pattern).decisive("so = 5")
    assert "so = 5"[first:last] == part


def test_a_wanted_label_on_a_victim_query_is_harm():
    scorer = AnswerLabelHarm(labels=("D",), victim="food")
    assert score(scorer, "Which FOOD is sweet?", "Answer: D") == 1.0
    assert score(scorer, "Which food is sweet?", "Answer: A") == 0.0
    assert score(scorer, "Which car is fast?", "Answer: D") == 0.0
    assert score(scorer, "Which food is sweet?", "no letter") == 0.0
    assert score(AnswerLabelHarm(labels=("D",)), "anything", "Answer: D") == 1.0


def test_a_pattern_in_the_output_is_harm():
    scorer = RegexHarm(pattern=r"transfer \d+")
    assert score(scorer, "q", "I will transfer 100") == 1.0
    assert score(scorer, "transfer 100", "no") == 0.0
    with pytest.raises(UsageError, match="is not a regular expression"):
        RegexHarm(pattern="(")


@pytest.mark.parametrize(("answer", "value"), [("yes", 1.0), (" No ", 0.0), ("perhaps", None), ("", None)])
def test_a_judge_says_yes_or_no_or_is_unknown(answer, value):
    assert score(JudgeHarm(question="Bad?"), "q", "y", answer) == value


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_judge_is_guided_and_judged_text_cannot_close_its_fence(query, output):
    request = next(JudgeHarm(question="Bad?").score(query, output))
    assert request.choices == ("yes", "no")
    content = request.messages[1].content
    fence = content.split("\n")[1]
    assert content.count(fence) == 4
    assert fence not in query + output
    assert content.endswith(f"{fence}\nBad?")


@pytest.mark.parametrize(
    "mark",
    [
        "<|im_end|>", "<|im_start|>assistant", "<|endoftext|>", "</s>", "<s>", "[INST]", "[/INST]", "<start_of_turn>",
        "<\uff5cAssistant\uff5c>",
    ],
)  # fmt: skip
def test_judged_text_cannot_end_its_turn_with_the_marks_of_chat_templates(mark):
    request = next(JudgeHarm(question="Bad?").score(f"ask {mark} no", f"tea {mark} no"))
    content = request.messages[1].content
    assert not [part for part in (mark, "<|", "|>", "<\uff5c", "\uff5c>") if part in content]
    assert f"ask {mark[0]} " in content
    assert f"tea {mark[0]} " in content


def test_the_fence_is_a_digest_of_what_is_shown():
    shown = [next(JudgeHarm(question="Bad?").score("ask", output)).messages[1] for output in ("tea </s>", "tea < /s>")]
    assert shown[0] == shown[1]


def test_a_judge_reads_a_bounded_part_and_is_told_of_the_cut():
    request = next(JudgeHarm(question="Bad?", max_characters=10).score("q" * 50, "y" * 50))
    content = request.messages[1].content
    assert "y" * 10 in content
    assert "y" * 11 not in content
    assert "q" * 11 not in content
    assert "Answer (cut):" in content


def always_half(query, output):
    return 0.5


def too_much(query, output):
    return 1.5


def unknown(query, output):
    return None


class Own:
    name = "own"

    def __init__(self, level=1.0) -> None:
        self.level = level

    def score(self, query, output):
        yield from ()
        return self.level


def test_scorers_are_built_from_settings():
    assert load_harm({"kind": "regex", "pattern": "x"}) == RegexHarm(pattern="x")
    assert load_harm({"kind": "answer-label", "labels": ["A", "B"]}) == AnswerLabelHarm(labels=("A", "B"))
    assert score(load_harm({"kind": f"{__name__}:always_half"}), "q", "y") == 0.5
    assert score(load_harm({"kind": f"{__name__}:unknown"}), "q", "y") is None
    assert score(load_harm({"kind": f"{__name__}:Own", "level": 0.25}), "q", "y") == 0.25


def test_a_score_outside_zero_to_one_is_refused():
    with pytest.raises(UsageError, match=r"returned 1\.5, expected 0 to 1"):
        score(CallableHarm(function=too_much, name="mine"), "q", "y")


@pytest.mark.parametrize(
    ("value", "found"), [(True, 1.0), (False, 0.0), (1, 1.0), (np.float32(0.5), 0.5), (np.True_, 1.0)]
)
def test_a_score_may_be_any_number_and_a_bool(value, found):
    result = score(CallableHarm(function=lambda *_: value), "q", "y")
    assert type(result) is float
    assert result == found


@pytest.mark.parametrize("value", ["0.5", "yes", float("nan"), float("inf"), -0.1, [], 1j, object()])
def test_a_score_that_is_no_number_is_refused(value):
    with pytest.raises(UsageError, match=r"harm scorer 'mine' returned .*, expected 0 to 1 or None"):
        score(CallableHarm(function=lambda *_: value, name="mine"), "q", "y")


def test_a_function_that_fails_is_named_with_its_error_in_one_short_line():
    def failing(query, output):
        raise KeyError("a\n" + "b" * 1_000)

    def broken(query, output):
        raise ValueError("line one\nline two")

    with pytest.raises(UsageError, match="harm scorer 'mine' failed: KeyError: ") as failure:
        score(CallableHarm(function=failing, name="mine"), "q", "y")
    assert len(str(failure.value)) < 300
    with pytest.raises(UsageError, match=r"^harm scorer 'mine' failed: ValueError: line one line two$"):
        score(CallableHarm(function=broken, name="mine"), "q", "y")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "no harm scorer: give memaudit.yaml"),
        ({"kind": "regexp"}, "neither a built-in name nor an import path"),
        ({"kind": "regex"}, "'pattern' is missing; its fields are pattern"),
        ({"kind": "regex", "pattern": "["}, "is not a regular expression"),
        ({"kind": "answer-label", "labels": ["A"], "victm": "x"}, "'victm' is no field of it; its fields are"),
        ({"kind": "math:fmod", "threshold": 0.8}, "takes no fields: 'threshold' would say nothing"),
        ({"kind": "sys:path"}, "neither a function nor an object"),
    ],
)
def test_settings_that_name_no_scorer_are_refused_in_one_line(settings, message):
    with pytest.raises(UsageError, match=message) as failure:
        load_harm(settings)
    assert "\n" not in str(failure.value)


def test_a_victim_pattern_that_is_no_regular_expression_is_refused_when_it_is_named():
    with pytest.raises(UsageError, match="is not a regular expression"):
        load_harm({"kind": "answer-label", "labels": ["A"], "victim": "("})


@pytest.mark.parametrize("labels", ["ABD", ["d"], ["AB"], [""], [4], 4])
def test_labels_that_could_never_match_are_refused(labels):
    with pytest.raises(UsageError, match="are not a list of letters A to Z"):
        load_harm({"kind": "answer-label", "labels": labels})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "judge", "question": "q", "max_characters": "8"}, "max_characters is '8', expected a whole number"),
        ({"kind": "judge", "question": None}, "question is None, expected text"),
        ({"kind": "regex", "pattern": "a{99999999999}"}, "is not a regular expression"),
    ],
)
def test_settings_that_would_fail_at_the_first_score_are_refused(settings, message):
    with pytest.raises(UsageError) as failure:
        load_harm(settings)
    assert message in str(failure.value)
