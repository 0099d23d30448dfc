"""Actors and their clients on a real local Ray, with the fakes inside."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, OutOfMemoryError, RayTaskError

from memory_audit.errors import ModelError, ModelLostError, PromptTooLongError, UsageError
from memory_audit.generation import GenerationRequest, Message
from memory_audit.models.backbone.generator_http import OutageError
from memory_audit.models.fakes import FakeEmbedder, FakeEntailment, FakeGenerator
from memory_audit.models.loading import ModelSpecs
from memory_audit.models.ray_actors import (
    RESTARTS,
    ActorPool,
    EmbedderActor,
    EntailmentActor,
    GeneratorActor,
    RemoteEmbedder,
    RemoteEntailment,
    RemoteGenerator,
    _as_model_error,
    start_actors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAKES = ModelSpecs(backbone="fake", nli="fake", embedder="fake")


@pytest.fixture
def pools(local_ray: None) -> Iterator[list[ActorPool]]:
    started: list[ActorPool] = []
    yield started
    for pool in started:
        pool.stop()


def request(number: int) -> GenerationRequest:
    content = "POISON" if number % 2 else "benign"
    return GenerationRequest(messages=(Message(role="user", content=f"{content} {number}"),), max_tokens=5)


pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # ray leaves its log sockets to the collector
]


def test_replicas_answer_as_one_model_and_a_group_stays_on_one_replica(pools: list[ActorPool]):
    pool = start_actors(GeneratorActor, FAKES, replicas=2)
    pools.append(pool)
    assert pool.model_id == FakeGenerator().model_id

    async def ask_all() -> list[str]:
        answers = await asyncio.gather(
            *(RemoteGenerator(pool, f"event-{number}").generate(request(number)) for number in range(8))
        )
        return [answer.text for answer in answers]

    assert asyncio.run(ask_all()) == ["fine", "HARM"] * 4
    chosen = {RemoteGenerator(pool, f"event-{number}").replica(request(0)) for number in range(50)}
    assert chosen == {0, 1}
    assert {RemoteGenerator(pool, "event-1").replica(request(number)) for number in range(9)} != {0, 1}


def test_pairs_and_texts_come_back_in_order_from_many_replicas(pools: list[ActorPool], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("memory_audit.models.ray_actors.CHUNK", 3)
    nli, embedder = (start_actors(actor, FAKES, replicas=2) for actor in (EntailmentActor, EmbedderActor))
    pools += [nli, embedder]
    texts = [f"rule {number} applies" if number % 3 else f"rule {number} does not apply" for number in range(10)]
    pairs = list(itertools.pairwise(texts))
    assert (RemoteEntailment(nli).probabilities(pairs) == FakeEntailment().probabilities(pairs)).all()
    assert (RemoteEmbedder(embedder).embed(texts) == FakeEmbedder().embed(texts)).all()
    assert RemoteEntailment(nli).probabilities([]).shape == (0, 3)
    assert RemoteEmbedder(embedder).embed([]).dtype == np.float32


def test_an_actor_that_cannot_load_says_why_in_the_callers_process(pools: list[ActorPool]):
    with pytest.raises(UsageError, match="no such model folder"):
        start_actors(EntailmentActor, ModelSpecs(nli="/no/such/folder"))


def test_lack_of_memory_is_told_in_one_line():
    error = _as_model_error(OutOfMemoryError("Memory on the node was low.\nRefer to the documentation."), "tiny")
    assert isinstance(error, ModelError)
    assert str(error) == "the process that serves tiny died (the machine ran out of memory)"


def test_a_dead_replica_is_a_model_error(pools: list[ActorPool]):
    pool = start_actors(GeneratorActor, FAKES)
    pool.stop()
    with pytest.raises(ModelError, match=r"fake-generator.* died \("):  # noqa: PT012 - until it is gone
        for _ in range(100):  # Ray kills in the background: the actor may answer a little longer
            asyncio.run(RemoteGenerator(pool).generate(request(1)))
            time.sleep(0.1)


def test_a_replica_whose_process_ends_is_started_anew_and_asked_again(pools: list[ActorPool]):
    pool = start_actors(GeneratorActor, FAKES)
    pools.append(pool)
    os.kill(ray.get(pool.handles[0].__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
    assert asyncio.run(RemoteGenerator(pool).generate(request(1))).text == "HARM"


class DyingActor(EmbedderActor):
    """Ends its process while it loads, RESTARTS times; its folder has one file for each time that it began."""

    def model_id(self) -> str:
        folder = Path(self._specs.embedder)
        begun = len(list(folder.iterdir()))
        (folder / str(begun)).touch()
        if begun < RESTARTS:
            os.kill(os.getpid(), signal.SIGKILL)
        return "loaded"


def test_a_replica_lost_while_it_loads_is_started_anew_but_not_for_ever(pools: list[ActorPool], tmp_path: Path):
    pool = start_actors(DyingActor, replace(FAKES, embedder=str(tmp_path)))
    pools.append(pool)
    assert pool.model_id == "loaded"
    assert len(list(tmp_path.iterdir())) == 1 + RESTARTS
    os.kill(ray.get(pool.handles[0].__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
    with pytest.raises(ModelError, match=r"serves loaded died \("):
        RemoteEmbedder(pool).embed(["a"])


@pytest.mark.parametrize(
    "ask",
    [
        lambda: asyncio.run(GeneratorActor(FAKES).generate(request(1), "other@1")),
        lambda: EntailmentActor(FAKES).rows("probabilities", [("a", "b")], "other@1"),
        lambda: EmbedderActor(FAKES).rows("embed", ["a"], "other@1"),
    ],
)
def test_a_replica_that_finds_other_weights_on_its_new_machine_refuses(ask: Callable[[], object]):
    with pytest.raises(ModelError, match=r"took over serves fake-.*, the run was started with other@1: "):
        ask()


def test_a_replica_that_cannot_load_its_model_again_is_lost_and_tries_once(monkeypatch: pytest.MonkeyPatch):
    tries = []

    def full(_specs: ModelSpecs) -> FakeGenerator:
        tries.append(1)
        raise ModelError("no room on the device")

    monkeypatch.setattr("memory_audit.models.ray_actors.load_generator", full)
    actor = GeneratorActor(FAKES)
    for _ in range(2):
        with pytest.raises(ModelLostError, match=r"^no room on the device$"):
            asyncio.run(actor.generate(request(1), "m"))
    assert len(tries) == 1


@dataclass(eq=False)
class Away:
    """A replica that is away: for good, or for so many calls; or that raises something itself."""

    calls: int | None = None
    raises: ModelError | None = None
    asked: int = 0

    @property
    def generate(self) -> SimpleNamespace:
        return SimpleNamespace(remote=self._generate)

    async def _generate(self, *_: object) -> str:
        self.asked += 1
        if self.raises is not None:
            raise RayTaskError("generate", "traceback", self.raises).as_instanceof_cause()
        if self.calls is None:
            raise ActorDiedError
        if self.asked <= self.calls:
            raise ActorUnavailableError("its machine is gone", None)
        return "answer"


def ask_twice(*replicas: Away) -> list[object]:
    """Ask twice over fake replicas, of which a call asks the first given first."""
    generator = RemoteGenerator(ActorPool(model_id="m", handles=replicas, patience_s=0.095))
    first = generator.replica(request(1))
    generator._pool = replace(generator._pool, handles=replicas[-first:] + replicas[:-first])

    async def ask() -> list[object]:
        return [await generator.generate(request(1)) for _ in range(2)]

    return asyncio.run(ask())


def test_other_replicas_answer_for_one_that_is_away_and_are_asked_first_from_then_on():
    gone, away, there = Away(), Away(1_000), Away(0)
    assert ask_twice(gone, away, there) == ["answer"] * 2
    assert (gone.asked, away.asked, there.asked) == (1, 1, 2)


@pytest.mark.parametrize("lost", [OutageError("connection refused"), ModelLostError("no room on the device")])
def test_another_replica_answers_for_one_that_reaches_no_server_or_cannot_load(lost: ModelLostError):
    first, there = Away(raises=lost), Away(0)
    assert ask_twice(first, there) == ["answer"] * 2
    assert (first.asked, there.asked) == (1, 2)
    alone = Away(raises=lost)
    with pytest.raises(type(lost), match=f"^{lost}$"):  # at once, and with its own words
        ask_twice(alone)
    assert alone.asked == 1


def test_what_one_replica_refuses_no_other_is_asked():
    first, there = Away(raises=PromptTooLongError("9 tokens, and 8 fit")), Away(0)
    with pytest.raises(PromptTooLongError, match=r"^9 tokens, and 8 fit$"):
        ask_twice(first, there)
    assert there.asked == 0


def test_where_all_replicas_are_away_a_call_waits_for_one_but_not_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("memory_audit.models.ray_actors.RETRY_S", 0.01)
    gone, back, away = Away(), Away(3), Away(1_000)
    assert ask_twice(gone, back) == ["answer"] * 2
    assert back.asked == 5
    with pytest.raises(ModelError, match=r"m died \(nothing took its place in time\)$"):
        ask_twice(gone, away)
    assert 3 < away.asked < 12
    with pytest.raises(ModelError, match=r"m died \(The actor died"):
        ask_twice(gone, Away())
