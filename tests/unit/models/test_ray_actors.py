"""Actors and their clients on a real local Ray, with the fakes inside."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import ray
from ray.exceptions import OutOfMemoryError

from audit.errors import ModelError, UsageError
from audit.generation import GenerationRequest, Message
from models.fakes import FakeEmbedder, FakeEntailment, FakeGenerator
from models.loading import ModelSpecs
from models.ray_actors import (
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
    from collections.abc import Iterator

FAKES = ModelSpecs(backbone="fake", nli="fake", embedder="fake")


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture
def pools(local_ray: None) -> Iterator[list[ActorPool]]:
    started: list[ActorPool] = []
    yield started
    for pool in started:
        pool.stop()


def request(number: int) -> GenerationRequest:
    content = "POISON" if number % 2 else "benign"
    return GenerationRequest(messages=(Message(role="user", content=f"{content} {number}"),), max_tokens=5)


pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # ray leaves its log sockets to the collector


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
    monkeypatch.setattr("models.ray_actors.CHUNK_PAIRS", 3)
    monkeypatch.setattr("models.ray_actors.CHUNK_TEXTS", 3)
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
    assert str(error).startswith("the process that serves tiny died (the machine ran out of memory); ")
    assert "\n" not in str(error)


def test_a_dead_replica_is_a_model_error_that_says_how_to_go_on(pools: list[ActorPool]):
    pool = start_actors(GeneratorActor, FAKES)
    pool.stop()
    with pytest.raises(ModelError, match=r"fake-generator.* died .*same command"):  # noqa: PT012 - until it is gone
        for _ in range(100):  # Ray kills in the background: the actor may answer a little longer
            asyncio.run(RemoteGenerator(pool).generate(request(1)))
            time.sleep(0.1)
