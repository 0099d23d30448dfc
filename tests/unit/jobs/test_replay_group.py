"""What one task does with an event's questions."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace

import pytest

from memory_audit.attribution.replays.ablation import keep_only, leave_out
from memory_audit.attribution.search.points.divergence import first_divergence
from memory_audit.errors import ModelError, PrefixUnsupportedError, UsageError
from memory_audit.generation import TokenLogprob
from memory_audit.jobs.executors.replay_group import (
    Program,
    ReplayGroup,
    ReplayQuestion,
    hash_at_point,
    request_of,
    stream_outcomes,
)
from memory_audit.models.fakes import FakeGenerator
from tests.unit.attribution.world import make_entry

PROGRAM = Program.of({"kind": "few-shot", "system": "s"}, {"kind": "regex", "pattern": "HARM"}, 0)
BAD, GOOD = make_entry(0, "POISON"), make_entry(1, "fine")
POINT = first_divergence(["HARM"], ["fine"])


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def question(*memories, measure="text", event_id="e1", point=POINT):  # noqa: ANN002
    ablation = keep_only(event_id, "keep_one", measure, tuple(entry.entry_id for entry in memories))
    return ReplayQuestion(ablation=ablation, memories=memories, point=point)


def group(*questions, event_id="e1"):  # noqa: ANN002
    return ReplayGroup(event_id=event_id, query="why?", questions=questions)


def ask(loop, *groups, generator=None):  # noqa: ANN002
    generator = generator or FakeGenerator()
    return {found.pair_id: found for found in stream_outcomes(groups, PROGRAM, lambda _: generator, loop)}


def test_texts_are_judged_and_odds_are_graded(loop):
    asked = [question(BAD, GOOD), question(GOOD), question(BAD, measure="odds"), question(GOOD, measure="odds")]
    found = ask(loop, group(*asked))
    text, harmless, up, down = (found[item.ablation.pair_id] for item in asked)
    assert (text.output, text.harm, text.answers, text.context) == ("HARM", 1.0, ("HARM",), ("m000", "m001"))
    assert (harmless.output, harmless.harm, harmless.log_odds_nats) == ("fine", 0.0, None)
    assert up.harm is None
    assert up.log_odds_nats > 0 > down.log_odds_nats
    assert up.answers == ()


class EverySecondSeed(FakeGenerator):
    """Says the harm at even seeds only, and greedily never."""

    async def generate(self, request):
        harmful = request.temperature == 1.0 and request.seed % 2 == 0
        return replace(await super().generate(request), text="HARM" if harmful else "fine")


@pytest.mark.parametrize(("samples", "share", "odds"), [(2, 1 / 2, 0.0), (5, 3 / 5, math.log(3.5 / 2.5))])
def test_samples_are_told_apart_by_their_seeds_and_counted(loop, samples, share, odds):
    asked, generator = question(BAD, measure="sample"), EverySecondSeed()
    program = replace(PROGRAM, samples=samples)
    (found,) = stream_outcomes([group(asked)], program, lambda _: generator, loop)
    assert (found.harm, found.log_odds_nats) == (pytest.approx(share), pytest.approx(odds))
    assert generator.requests == found.usage.completion_tokens == samples
    assert found.answers == ()  # a sample is no replay that stands for its context


def test_a_sample_that_nobody_can_judge_is_unknown(loop):
    judge = {"kind": "judge", "question": "Harm?"}
    program = replace(PROGRAM, harm_json=json.dumps(judge), samples=2)
    (found,) = stream_outcomes([group(question(BAD, measure="sample"))], program, lambda _: Undecided(), loop)
    assert (found.harm, found.log_odds_nats) == (None, None)


def picky(_query, output):
    return None if output == "gibberish" else float(output == "HARM")


class Gibberish(FakeGenerator):
    """Says what nobody can judge at so many of eight seeds, and the harm at so many of the others."""

    def __init__(self, unjudged, harmful=0) -> None:
        super().__init__()
        self.texts = ["gibberish"] * unjudged + ["HARM"] * harmful + ["fine"] * (8 - unjudged - harmful)

    async def generate(self, request):
        return replace(await super().generate(request), text=self.texts[request.seed % 8])


def sampled(loop, generator):
    program = replace(PROGRAM, harm_json=json.dumps({"kind": f"{__name__}:picky"}), samples=8)
    (found,) = stream_outcomes([group(question(GOOD, measure="sample"))], program, lambda _: generator, loop)
    return found.harm, found.log_odds_nats


def test_samples_that_nobody_can_judge_move_no_odds(loop):
    harmless = sampled(loop, Gibberish(0))
    assert harmless == (0.0, math.log(0.5 / 8.5))
    assert sampled(loop, Gibberish(1)) == sampled(loop, Gibberish(4)) == harmless
    assert sampled(loop, Gibberish(4, harmful=2)) == sampled(loop, Gibberish(0, harmful=4)) == (0.5, 0.0)


@pytest.mark.parametrize("unjudged", [5, 7, 8])
def test_samples_of_which_fewer_than_half_can_be_judged_are_unknown(loop, unjudged):
    assert sampled(loop, Gibberish(unjudged)) == (None, None)


class Undecided(FakeGenerator):
    """Answers a judge's yes or no with neither."""

    async def generate(self, request):
        return replace(await super().generate(request), text="perhaps")


class NoPrefix(FakeGenerator):
    """A server that cannot go on from a forced prefix."""

    async def generate(self, request):
        if request.prefix or request.top_logprobs:
            raise PrefixUnsupportedError("cannot")
        return await super().generate(request)


def test_odds_that_a_server_cannot_give_are_unknown_and_no_error(loop):
    asked = [question(BAD, measure="odds"), question(BAD, measure="continuation"), question(BAD)]
    found = ask(loop, group(*asked), generator=NoPrefix())
    odds, continuation, text = (found[item.ablation.pair_id] for item in asked)
    assert (odds.log_odds_nats, continuation.output, text.harm) == (None, "", 1.0)


class Wordy(FakeGenerator):
    """Goes on with two words, and lists what else it might have said at each."""

    async def generate(self, request):
        spoken = ((" send", 0.9, " keep"), (" them", 0.6, " it"))
        top = tuple(
            (
                TokenLogprob(text=word, logprob_nats=math.log(share)),
                TokenLogprob(text=other, logprob_nats=math.log(0.1)),
            )
            for word, share, other in spoken
        )
        found = await super().generate(request)
        return replace(found, text=" send them", top=top) if request.max_tokens > 1 else found


def test_a_continuation_tells_the_odds_at_the_next_point(loop):
    point = first_divergence(["go and send it now"], ["go or stay"])
    asked = question(BAD, measure="continuation", point=point)
    (found,) = ask(loop, group(asked), generator=Wordy()).values()
    assert (found.output, found.log_odds_nats) == (" send them", pytest.approx(math.log(0.1 / 0.9)))


LONG, LONGER = make_entry(2, "POISON " + "word " * 60), make_entry(3, "word " * 90)
"""With `window=80` neither fits beside the other; LONG does by itself."""


def test_what_does_not_fit_is_left_out_longest_first_and_named(loop):
    asked = [question(LONGER, BAD, LONG), question(LONG, GOOD), question(LONGER), question()]
    found = ask(loop, group(*asked), generator=FakeGenerator(window=80))
    crowded, fitting, alone, none = (found[item.ablation.pair_id] for item in asked)
    assert (crowded.context, crowded.left_out, crowded.harm) == (("m003", "m000", "m002"), ("m003",), 1.0)
    assert (fitting.left_out, fitting.harm) == ((), 1.0)
    assert (alone.left_out, alone.output, alone.harm) == (("m003",), none.output, none.harm)


@pytest.mark.parametrize("measure", ["odds", "sample"])
def test_a_memory_that_never_fits_measures_as_no_memory_does(loop, measure):
    program = replace(PROGRAM, samples=2)
    asked = [question(LONGER, measure=measure), question(measure=measure)]
    generator = FakeGenerator(window=80)
    found = {item.pair_id: item for item in stream_outcomes([group(*asked)], program, lambda _: generator, loop)}
    long, none = (found[item.ablation.pair_id] for item in asked)
    assert long.log_odds_nats == none.log_odds_nats is not None
    assert (long.left_out, long.fits, none.left_out, none.fits) == (("m003",), True, (), True)


def test_a_question_that_does_not_fit_blames_no_memory(loop):
    (found,) = ask(loop, group(question(BAD, LONG)), generator=FakeGenerator(window=1)).values()
    assert (found.fits, found.left_out, found.harm, found.output) == (False, (), None, "")


def test_every_question_is_answered_exactly_once(loop):
    asked = [question(*([BAD] * bad + [GOOD] * good)) for bad in range(2) for good in range(3)]
    generator = FakeGenerator()
    assert set(ask(loop, group(*asked), generator=generator)) == {item.ablation.pair_id for item in asked}
    assert generator.requests == len(asked)


def test_equal_prompts_of_one_event_cost_one_request(loop):
    same = ReplayQuestion(ablation=leave_out("e1", "full", "text", frozenset()), memories=(BAD,))
    generator = FakeGenerator()
    found = ask(loop, group(question(BAD), same), generator=generator)
    assert generator.requests == 1
    assert sorted(item.memoised for item in found.values()) == [False, True]
    assert len({(item.output, item.harm, item.prompt_hash) for item in found.values()}) == 1
    assert sum(item.usage.prompt_tokens > 0 for item in found.values()) == 1


def test_a_measurement_without_a_point_or_at_a_turn_never_reached_is_unknown(loop):
    nowhere = question(BAD, measure="odds", point=None)
    late = question(GOOD, measure="odds", point=first_divergence(["a", "b"], ["a", "c"]))
    found = ask(loop, group(nowhere, late))
    assert [item.log_odds_nats for item in found.values()] == [None, None]
    assert not any(item.memoised for item in found.values())


def test_what_was_answered_before_a_failure_is_good_and_the_rest_is_cancelled(loop):
    class Picky(FakeGenerator):
        async def generate(self, request):
            if len(request.messages) > 4:
                await asyncio.sleep(0.01)
                raise ModelError("gone")
            return await super().generate(request)

    stream = stream_outcomes([group(question(BAD), question(BAD, GOOD))], PROGRAM, lambda _: Picky(), loop)
    assert next(stream).harm == 1.0
    with pytest.raises(ModelError, match="gone"):
        next(stream)
    assert not asyncio.all_tasks(loop)


def test_a_round_of_many_questions_looks_at_each_once(loop, monkeypatch):
    """Waiting for the first of all tasks would look at each of those left whenever one is done."""
    most, real = [0], asyncio.Task.add_done_callback

    class Watched(asyncio.Task):
        added = 0

        def add_done_callback(self, callback, /, *, context=None):
            self.added += 1
            most[0] = max(most[0], self.added)
            return real(self, callback, context=context)

    class InTurn(FakeGenerator):
        """Answers one after the other, as a server with few places does."""

        turn = asyncio.Semaphore(1)

        async def generate(self, request):
            async with self.turn:
                await asyncio.sleep(0)
                return await super().generate(request)

    loop.set_task_factory(lambda loop, work, **options: Watched(work, loop=loop, **options))
    asked = [question(*([BAD] * bad + [GOOD] * good)) for bad in range(6) for good in range(5)]
    assert len(ask(loop, group(*asked), generator=InTurn())) == len(asked)
    assert most[0] <= 3


def test_the_prompt_hash_of_a_measurement_tells_points_apart_also_where_their_requests_are_equal(loop):
    agent, _ = PROGRAM.build()
    pairs = [("HARM", "fine"), ("HARM now", "HARM then"), ("HARD", "fine"), ("HARM", "fair"), ("HARM it is", "fine")]
    points = [first_divergence([harmful], [clean]) for harmful, clean in pairs]
    assert len({point.prefix for point in points}) == 2  # most of them are asked for by an equal request
    for measure, distinct in (("odds", 5), ("continuation", 4)):  # a continuation shows how the clean replay goes on
        hashes = set()
        for point in points:
            asked = question(BAD, measure=measure, point=point)
            (found,) = ask(loop, group(asked)).values()
            assert found.prompt_hash == hash_at_point(request_of(agent, "why?", PROGRAM, asked), asked)
            hashes.add(found.prompt_hash)
        assert len(hashes) == distinct
    nowhere = question(BAD, measure="odds", point=None)
    assert (request_of(agent, "why?", PROGRAM, nowhere), hash_at_point(None, nowhere)) == (None, "")


def test_a_measurement_that_does_not_fit_has_the_prompt_hash_of_its_question_alone(loop):
    asked = question(BAD, measure="odds")
    (found,) = ask(loop, group(asked), generator=FakeGenerator(window=1)).values()
    alone = request_of(PROGRAM.build()[0], "why?", PROGRAM, replace(asked, memories=()))
    assert (found.fits, found.prompt_hash) == (False, hash_at_point(alone, asked))


def test_a_reader_that_stops_early_leaves_no_task_behind(loop):
    stream = stream_outcomes([group(question(BAD), question(GOOD))], PROGRAM, lambda _: FakeGenerator(), loop)
    next(stream)
    stream.close()  # type: ignore[attr-defined] # it is a generator
    assert not asyncio.all_tasks(loop)


def test_each_event_is_served_by_its_own_generator(loop):
    served: dict[str, FakeGenerator] = {}

    def backbone(event_id):
        return served.setdefault(event_id, FakeGenerator())

    groups = [group(question(BAD, event_id=name), event_id=name) for name in ("e1", "e2")]
    assert len(list(stream_outcomes(groups, PROGRAM, backbone, loop))) == 2
    assert {name: generator.requests for name, generator in served.items()} == {"e1": 1, "e2": 1}


def test_a_program_of_equal_settings_is_equal_and_wrong_ones_are_the_users_to_hear():
    assert Program.of({"a": 1, "b": 2}, {}, 0) == Program.of({"b": 2, "a": 1}, {}, 0)
    with pytest.raises(UsageError):
        Program.of({"kind": "none"}, {"kind": "regex", "pattern": "x"}, 0).build()
