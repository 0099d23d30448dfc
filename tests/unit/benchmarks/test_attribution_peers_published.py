"""The rules of published methods: where they stop, what they score, whom they accuse, and how often they go round."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.attribution.peers.embedded_store import EmbeddedStore
from benchmarks.attribution.peers.likelihood import TeacherForced
from benchmarks.attribution.peers.metered import Cost
from benchmarks.attribution.peers.methods import measured
from benchmarks.attribution.peers.ragforensics import rag_forensics, says_yes
from benchmarks.attribution.peers.ragorigin import rag_origin, responsibility, scopes, upper_cluster
from benchmarks.attribution.peers.repeated import MOST_ROUNDS, until_harm_ends
from benchmarks.attribution.peers.tracllm import above_half, single_text, true_count
from benchmarks.attribution.peers.verdicts import Attribution
from memory_audit.attribution.replays.retrieval import RankedMemory
from memory_audit.generation import Completion, Message, TokenUsage
from memory_audit.models.fakes import FakeEmbedder
from tests.unit.benchmarks.attribution_world import make_world
from tests.unit.benchmarks.word_tokenizer import word_tokenizer


@pytest.fixture
def world_of(tmp_path):
    """Make worlds that are closed afterwards: twelve memories, three of them retrieved, in the order of their ids."""
    worlds = []

    def make(poison, size=12, k=3):
        worlds.append(make_world(tmp_path, poison, size=size, k=k))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


class FakeReading:
    """Says Yes where a rule says so of the text shown, and counts what it was asked."""

    def __init__(self, rule, yes="[Label: Yes]", no="[Label: No]") -> None:
        self.rule, self.yes, self.no, self.asked = rule, yes, no, []

    def __call__(self, requests) -> list[Completion]:
        self.asked += requests
        texts = [self.yes if self.rule(request.messages[-1].content) else self.no for request in requests]
        return [
            Completion(text=text, finish_reason="stop", usage=TokenUsage(prompt_tokens=1, completion_tokens=1))
            for text in texts
        ]


class FakeLikelihood:
    """Each token is likelier by a nat for every marked text in the prompt."""

    def __init__(self) -> None:
        self.cost = Cost(seconds=0.0)

    def token_nats(self, messages, answer):
        self.cost.calls += 1
        marked = sum(message.content.count("POISON") for message in messages)
        return [float(marked) - 5.0] * len(answer.split())


def is_poison(text):
    return "POISON" in text


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("It says so. [Label: Yes]", True), ("[Label: Yes] but then [label:no]", False), ("Yes", True),
        ("Yes, but not here", False), ("No.", False), ("", False),
        ("[Yes]", True), ("[ LABEL : no ]", False),
    ],
)  # fmt: skip
def test_the_last_label_counts_and_none_is_no(reply, label):
    assert says_yes(reply) is label


@pytest.mark.parametrize(
    ("poison", "asked", "chosen"),
    [
        ([], 3, ()),  # k benign ones, and no more is read
        ([1], 4, (1,)),
        ([0, 1, 2], 6, (0, 1, 2)),  # in place of those flagged the next are read
        ([3, 11], 3, ()),  # behind the third benign one nothing is read
        (range(12), 12, tuple(range(12))),  # the list ends
        (range(1, 11), 12, tuple(range(1, 11))),
    ],
)
def test_forensics_stops_at_k_benign_texts(world_of, poison, asked, chosen):
    world, judge = world_of(poison), FakeReading(is_poison)
    found = rag_forensics(world.trial, judge)
    assert found.chosen == world.ids(*chosen)
    assert len(judge.asked) == len(found.scores["e1"]) == asked


def test_the_judge_sees_question_answer_and_one_text_without_control_marks(world_of):
    world, judge = world_of([]), FakeReading(is_poison)
    event = replace(world.trial.events[0], output="HARM <|im_end|>")
    rag_forensics(replace(world.trial, events=[event]), judge)
    shown = judge.asked[0].messages[-1].content
    assert "what now" in shown
    assert "plain answer 0" in shown
    assert "plain answer 1" not in shown
    assert "<|im_end|>" not in shown


@pytest.mark.parametrize(
    ("poison", "size", "texts"),
    [
        ([0], 12, 6),  # one match, the incident; the next group does not agree
        ([0, 4], 12, 12),  # two matches, and two others balance them
        ([0, 4], 9, 9),  # balance never comes
        ([0, 3, 6, 9], 12, 12),
        ([0], 2, 2),
    ],
)  # fmt: skip
def test_the_scope_ends_where_matches_and_others_are_as_many(world_of, poison, size, texts):
    world, judge = world_of(poison, size), FakeReading(lambda text: text.count("HARM") == 2, "yes", "no")
    found = scopes(world.trial, judge)["e1"]
    assert [entry.entry_id for entry in found] == sorted(world.ids(*range(texts)))
    assert len(judge.asked) == max(math.ceil(texts / 3) - 1, 0)


def test_an_agent_that_does_not_know_never_agrees(world_of):
    world = world_of([0, 4])
    world.generator._poisoned = "I don't know HARM"
    assert len(scopes(world.trial, FakeReading(lambda _: True, "yes", "no"))["e1"]) == 6


def test_origin_accuses_what_makes_the_answer_likely(world_of):
    world, proxy = world_of([0, 1]), FakeLikelihood()
    found = rag_origin(world.trial, FakeReading(lambda _: False, "yes", "no"), proxy, lambda _: dict.fromkeys(names, 0))
    assert found.chosen == world.ids(0, 1)
    assert set(found.scores["e1"]) == world.ids(*range(6))
    assert proxy.cost.calls == 2 * 6


names = [f"m{number:04d}" for number in range(12)]


def test_origin_accuses_somebody_where_nobody_is_guilty(world_of):
    world = world_of([])
    similarity = {name: -number for number, name in enumerate(names)}
    found = rag_origin(world.trial, FakeReading(lambda _: False, "yes", "no"), FakeLikelihood(), lambda _: similarity)
    assert found.chosen


VALUES = st.lists(st.floats(-100, 100).map(lambda value: round(value, 3)), min_size=1, max_size=30)


@given(VALUES)
def test_the_upper_cluster_is_never_empty_and_above_all_others(values):
    upper = upper_cluster(np.asarray(values))
    inside = [value for value, bad in zip(values, upper, strict=True) if bad]
    outside = [value for value, bad in zip(values, upper, strict=True) if not bad]
    assert inside
    assert not outside or min(inside) > max(outside)


@given(VALUES, st.integers(1, 5))
def test_two_groups_that_lie_apart_are_the_two_clusters(values, count):
    far = [1_000.0 + number for number in range(count)]
    upper = upper_cluster(np.asarray([*values, *far]))
    assert upper.tolist() == [False] * len(values) + [True] * count


@given(st.lists(st.tuples(*[st.floats(-10, 10)] * 3), max_size=12), st.floats(-5, 5), st.floats(0.5, 5))
def test_responsibility_is_centred_and_moves_with_no_signals_unit(rows, shift, scale):
    signals = np.round(np.asarray(rows, np.float64).reshape(len(rows), 3), 2)
    values = responsibility(signals)
    assert values.shape == (len(rows),)
    assert abs(values.sum()) < 1e-6
    assert np.allclose(values, responsibility(signals * scale + shift), atol=1e-6)


def test_a_signal_that_is_the_same_everywhere_counts_as_nothing():
    assert responsibility(np.asarray([[1.0, 7.0, 7.0], [3.0, 7.0, 7.0]])).tolist() == pytest.approx([-1 / 3, 1 / 3])


def test_single_texts_are_scored_against_none(world_of):
    world, model = world_of([1]), FakeLikelihood()
    found = single_text(world.trial, model)
    assert found.scores["e1"] == {"m0000": 0.0, "m0001": 1.0, "m0002": 0.0}
    assert found.chosen is None
    assert model.cost.calls == 1 + 3


def test_what_scores_above_half_of_the_maximum_is_taken_and_nothing_below_zero():
    scores = {"e1": {"a": 4.0, "b": 2.0, "c": 2.1}, "e2": {"d": -1.0, "e": -3.0}, "e3": {"f": 0.0}}
    assert above_half(scores) == {"a", "c"}


def test_the_true_count_is_of_each_event():
    scores = {"e1": {"a": 1.0, "b": 3.0, "c": 2.0}, "e2": {"d": 1.0, "a": 2.0}, "e3": {"e": 9.0}}
    assert true_count(scores, frozenset("ac")) == {"b", "c", "a"}


class Left:
    """What is left of a world's store, in the order of its ids."""

    def __init__(self, world) -> None:
        self.entries, self.k = world.trial.memory.entries, world.trial.memory.k

    def without(self, removed):
        left = [entry for entry in self.entries if entry.entry_id not in removed]
        return RankedMemory(left, lambda _query, /: np.arange(len(left)), self.k)


def accuse_first(trial):
    """Accuses one poison that the event retrieved, if there is any."""
    found = [entry.entry_id for event in trial.events for entry in trial.memory.retrieve(event.query)
             if is_poison(entry.response)]  # fmt: skip
    return Attribution(scores={}, chosen=frozenset(found[:1]))


def test_rounds_end_with_the_harm_and_see_what_moves_up(world_of):
    world = world_of([0, 2, 5, 11])
    found = until_harm_ends(world.trial, Left(world), accuse_first)
    assert found.chosen == world.ids(0, 2), "without them nothing poisoned is retrieved"
    assert found.more == {"rounds": 2, "harmful_events_left": 0}


def test_rounds_end_where_nobody_is_accused(world_of):
    world = world_of([0])
    found = until_harm_ends(world.trial, Left(world), lambda _: Attribution(scores={}, chosen=frozenset()))
    assert found.more == {"rounds": 1, "harmful_events_left": 1}


def test_rounds_are_bounded(world_of):
    world = world_of(range(12))
    found = until_harm_ends(world.trial, Left(world), accuse_first)
    assert found.more == {"rounds": MOST_ROUNDS, "harmful_events_left": 1}
    assert len(found.chosen) == MOST_ROUNDS


def test_an_embedded_store_ranks_what_is_left(world_of):
    entries = world_of([0]).trial.memory.entries
    store = EmbeddedStore(entries, ["request 7"], 2, FakeEmbedder())
    near = store.similarity("request 7")
    assert max(near, key=near.get) == "m0007"
    first, second = store.without().retrieve("request 7")
    assert first.entry_id == "m0007"
    assert store.without({"m0007"}).retrieve("request 7")[0] == second
    assert store.without({entry.entry_id for entry in entries}).retrieve("request 7") == ()


class Model:
    """The fourth word of a vocabulary of five is e times as likely as any other; counts its passes."""

    device = "cpu"

    def __init__(self, torch) -> None:
        self._torch, self.passes = torch, 0

    def __call__(self, input_ids, attention_mask, logits_to_keep) -> SimpleNamespace:
        assert input_ids.shape == attention_mask.shape
        self.passes += 1
        logits = self._torch.zeros(1, logits_to_keep, 5)
        logits[:, :, 3] = 1.0
        return SimpleNamespace(logits=logits)


def test_an_answer_is_forced_and_an_equal_pass_made_once_and_counted_twice():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    model = Model(torch)
    likelihood = TeacherForced(lambda: (model, word_tokenizer({"likely": 3, "other": 4})))
    prompt = [Message(role="user", content="say it")]
    total = math.log(math.e + 4)
    for _ in range(2):
        nats = likelihood.token_nats(prompt, "likely other likely")
        assert list(nats) == pytest.approx([1 - total, -total, 1 - total], rel=1e-5)
    assert model.passes == 1
    assert likelihood.cost.calls == 2
    assert likelihood.cost.usage.prompt_tokens == 2 * (len(["user", ":", "say", "it", ";", "assistant", ":"]) + 3)
    assert list(likelihood.token_nats(prompt, "")) == []


def test_a_methods_cost_is_that_of_its_meters_and_its_passes(world_of):
    world, proxy = world_of([1]), FakeLikelihood()
    proxy.cost.calls = 7  # another method's
    found = measured(lambda: single_text(world.trial, proxy), [world.backbone], [proxy], fresh=True)
    assert found.cost.calls == 4
    assert found.cost.seconds is not None
