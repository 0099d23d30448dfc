"""Where two replays diverge, and the odds of going the harmful way there."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memory_audit.attribution.search.points.divergence import (
    COMPARED_CHARACTERS,
    FLOOR_NATS,
    ROUNDING_PROB,
    TOP_LOGPROBS,
    MeasurementPoint,
    continuation_request,
    first_divergence,
    graded_request,
    log_odds,
    log_odds_further_on,
    next_divergence,
)
from memory_audit.generation import Completion, GenerationRequest, Message, TokenLogprob

WORDS = st.lists(st.sampled_from(["first", "then", "I", "send", "it", "never", "so"]), max_size=8).map(" ".join)


def completion(*alternatives):  # noqa: ANN002
    top = tuple(TokenLogprob(text=text, logprob_nats=math.log(prob)) for text, prob in alternatives)
    return Completion(text="", finish_reason="length", top=(top,) if top else ())


def point(harmful="bad", clean="good"):
    return MeasurementPoint(history=(), answer=harmful, start=0, clean=clean)


def test_texts_part_at_the_word_that_differs_with_its_space():
    found = first_divergence(["First, I send it"], ["First, I ask you"])
    assert found.prefix == "First, I"
    assert found.harmful == " send it"
    assert found.clean == " ask you"
    assert found.through == "First, I send"


def test_words_that_share_letters_part_as_words():
    found = first_divergence(["I sent it"], ["I send it"])
    assert (found.prefix, found.harmful, found.clean) == ("I", " sent it", " send it")


def test_the_first_turn_that_differs_decides_and_earlier_ones_are_forced():
    found = first_divergence(["look", "buy this", "end"], ["look", "buy that", "end"])
    assert (found.history, found.answer, found.prefix) == (("look",), "buy this", "buy")


def test_a_turn_that_the_clean_replay_never_took_parts_at_its_start():
    found = first_divergence(["look", "click"], ["look"])
    assert (found.history, found.prefix, found.harmful, found.clean) == (("look",), "", "click", "")


@pytest.mark.parametrize(
    ("harmful", "clean"), [(["a b"], ["a b"]), (["a"], ["a b"]), (["sen"], ["send"]), ([""], ["a"]), ([], ["a"])]
)
def test_there_is_nothing_to_grade_where_the_harmful_replay_does_not_depart(harmful, clean):
    assert first_divergence(harmful, clean) is None


@given(st.lists(WORDS, min_size=1, max_size=3), st.lists(WORDS, min_size=1, max_size=3))
def test_up_to_the_point_both_replays_agree_and_after_it_they_do_not(harmful, clean):
    found = first_divergence(harmful, clean)
    if found is None:
        return
    turn = len(found.history)
    other = clean[turn] if turn < len(clean) else ""
    assert list(found.history) == harmful[:turn] == [*clean, "", "", ""][:turn]  # a turn not taken says nothing
    assert found.answer == harmful[turn]
    assert found.prefix == other[: found.start]
    assert found.harmful
    assert not other.startswith(harmful[turn])
    assert not other.startswith(found.through) or other[len(found.through) : len(found.through) + 1].strip()
    assert len(found.clean) <= COMPARED_CHARACTERS
    assert found.through.startswith(found.prefix)
    assert len(found.through) > len(found.prefix)


@given(WORDS, WORDS, WORDS)
def test_the_next_point_lies_behind_the_one_before(harmful, clean, continuation):
    first = first_divergence([harmful], [clean])
    assume(first is not None)
    second = next_divergence(first, continuation)
    if second is not None:
        assert second.start >= len(first.through)
        assert second.answer.startswith(first.through)
        assert (second.answer, second.history) == (first.answer, first.history)
        assert second.harmful


def test_a_clean_replay_that_follows_the_harmful_one_has_no_next_point():
    first = first_divergence(["go and send it now"], ["go or stay"])
    assert first.through == "go and"
    assert next_divergence(first, " send it") is None
    assert next_divergence(first, " send it ") is None
    assert next_divergence(first, " send it now or later") is None
    second = next_divergence(first, " send them")
    assert (second.prefix, second.harmful, second.clean) == ("go and send", " it now", " them")


def test_log_odds_are_those_of_the_listed_probabilities():
    assert log_odds(completion(("bad", 0.75), ("good", 0.25)), point()) == pytest.approx(math.log(3))
    assert log_odds(completion(("b", 0.2), ("good", 0.5)), point()) == pytest.approx(math.log(0.2 / 0.8))


def test_what_is_not_listed_counts_as_another_way():
    assert log_odds(completion(("bad", 0.5), ("good", 0.1)), point()) == pytest.approx(0.0)


def test_a_token_that_begins_both_says_nothing():
    odds = log_odds(completion(("s", 0.5), ("send", 0.3), ("stay", 0.2)), point("send it", "stay here"))
    assert odds == pytest.approx(math.log(0.3 / 0.2))


def test_an_unlisted_harmful_way_is_bounded_by_the_least_listed():
    assert log_odds(completion(("good", 0.9), ("other", 0.01)), point()) == pytest.approx(math.log(0.01 / 0.99))


@pytest.mark.parametrize(
    ("alternatives", "bound"),
    [
        ([("good", 0.9)], 0.1),
        ([("good", 0.5), ("other", 0.3), ("more", 0.15)], 0.05),
        ([("good", 0.9999)], ROUNDING_PROB),
        ([("good", 1.0)], ROUNDING_PROB),
        ([("good", 0.9999), ("other", 1e-5)], 1e-5),
        ([("", 0.6), ("good", 0.4)], 0.4),
    ],
)
def test_an_unlisted_harmful_way_is_no_likelier_than_what_the_listed_ones_leave(alternatives, bound):
    assert log_odds(completion(*alternatives), point()) == pytest.approx(math.log(bound / (1 - bound)))


def test_a_long_run_of_blanks_at_the_end_takes_no_time():
    found = first_divergence(["bad" + " " * 1_000_000], ["good"])  # quadratic, it took hours
    assert (found.start, found.through) == (0, "bad")


def test_without_alternatives_the_odds_are_unknown():
    assert log_odds(completion(), point()) is None


@given(st.lists(st.tuples(st.sampled_from(["bad", "b", "good", "g", "x", ""]), st.floats(1e-9, 1.0)), min_size=1))
def test_odds_are_finite_and_within_their_floor(alternatives):
    odds = log_odds(completion(*alternatives), point())
    assert math.isfinite(odds)
    assert FLOOR_NATS <= odds <= -FLOOR_NATS


@given(st.floats(0.01, 0.97), st.floats(0.001, 0.02))
def test_odds_rise_with_the_probability_of_the_harmful_way(prob, more):
    lower = log_odds(completion(("bad", prob), ("good", 1 - prob)), point())
    higher = log_odds(completion(("bad", prob + more), ("good", 1 - prob - more)), point())
    assert higher > lower


FIRST = MeasurementPoint(history=(), answer="go and send it now", start=2, clean=" or")
TOKENS = st.lists(st.sampled_from([" stay", " it", " now", ",", " sen", " send", "d", " them"]), min_size=1, max_size=6)


def spoken(tokens, other):
    """A greedy answer of these tokens; at each position something else might have been said."""
    top = tuple(
        (TokenLogprob(text=text, logprob_nats=math.log(0.6)), TokenLogprob(text=other, logprob_nats=math.log(0.3)))
        for text in tokens
    )
    return Completion(text="".join(tokens), finish_reason="length", top=top)


def test_the_odds_at_the_next_point_are_read_off_the_clean_replay():
    # "go and" + " send them": parts from " it" at the second token, where the harm has 0.3
    odds = log_odds_further_on(spoken([" send", " them"], " it"), FIRST)
    assert odds == pytest.approx(math.log(0.3 / 0.7))


@given(TOKENS)
def test_odds_further_on_are_those_of_the_token_where_the_replays_part(tokens):
    answer = spoken(tokens, " x")
    odds, following = log_odds_further_on(answer, FIRST), next_divergence(FIRST, answer.text)
    begins = [len("".join(tokens[:number])) for number in range(len(tokens))]
    if following is None or following.start - len(FIRST.through) not in begins:
        assert odds is None
    else:
        number = begins.index(following.start - len(FIRST.through))
        assert odds == log_odds(replace(answer, top=answer.top[number:]), following)


def test_odds_further_on_are_unknown_where_the_tokens_do_not_spell_the_answer():
    answer = spoken([" send", " them"], " it")
    assert log_odds_further_on(replace(answer, top=()), FIRST) is None
    assert log_odds_further_on(replace(answer, top=(answer.top[1], answer.top[1])), FIRST) is None


def test_measurements_change_only_what_is_decoded():
    request = GenerationRequest(
        messages=(Message(role="user", content="q"),),
        max_tokens=99,
        temperature=0.7,
        seed=4,
        stop=("x",),
        choices=("a",),
    )
    where = MeasurementPoint(history=(), answer="go and send", start=2, clean=" or")
    graded, continued = graded_request(request, where), continuation_request(request, where)
    assert (graded.prefix, graded.max_tokens, graded.top_logprobs) == ("go", 1, TOP_LOGPROBS)
    assert (continued.prefix, continued.top_logprobs, continued.stop) == ("go and", TOP_LOGPROBS, ("x",))
    for measured in (graded, continued):
        assert (measured.messages, measured.seed) == (request.messages, request.seed)
        assert (measured.temperature, measured.choices, measured.regex) == (0.0, (), None)


@pytest.mark.parametrize(
    ("harmful", "clean", "prefix"),
    [
        ("It is 165 newton metres.", "It is 120 Nm.", "It is 1"),
        ("It is 410.", "It is 165.", "It is "),
        ("Gate 9, please.", "Gate A, please.", "Gate "),
        ("It costs $40 now.", "It costs $25 now.", "It costs $"),
        ("It is 12 days.", "It is 12 weeks.", "It is 12"),
    ],
)
def test_numbers_part_at_the_digit_since_the_token_before_it_is_the_same(harmful, clean, prefix):
    assert first_divergence([harmful], [clean]).prefix == prefix
