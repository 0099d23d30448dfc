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
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, OutOfMemoryError, RayError, RayTaskError

from memory_audit.errors import ModelError, ModelLostError, PromptTooLongError, UsageError
from memory_audit.generation import GenerationRequest, Message
from memory_audit.models.backbone.generator_http import OutageError
from memory_audit.models.fakes import FakeEmbedder, FakeEntailment, FakeGenerator
from memory_audit.models.loading import ModelSpecs
from memory_audit.models.services.actors import ROWS, EmbedderActor, EntailmentActor, GeneratorActor
from memory_audit.models.services.keeper import RESTARTS
from memory_audit.models.services.losses import as_model_error
from memory_audit.models.services.remote import RemoteEmbedder, RemoteEntailment, RemoteGenerator
from memory_audit.models.services.replicas import ActorPool, Replica, Replicas
from tests.unit.models.kept_here import Here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FAKES = ModelSpecs(backbone="fake", nli="fake", embedder="fake")


@pytest.fixture
def keep(local_ray: None) -> Iterator[Callable[..., Here]]:
    started: list[Here] = []

    def start(actor: type, specs: ModelSpecs = FAKES, replicas: int = 1) -> Here:
        started.append(Here(actor, specs, replicas))
        return started[-1]

    yield start
    for here in started:
        here.close()


def request(number: int) -> GenerationRequest:
    content = "POISON" if number % 2 else "benign"
    return GenerationRequest(messages=(Message(role="user", content=f"{content} {number}"),), max_tokens=5)


pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # ray leaves its log sockets to the collector
]


def test_replicas_answer_as_one_model_and_a_group_stays_on_one_replica(keep: Callable[..., Here]):
    here = keep(GeneratorActor, replicas=2)
    assert here.pool.model_id == FakeGenerator().model_id
    assert len(here.all_there()) == 2

    async def ask_all() -> list[str]:
        answers = await asyncio.gather(
            *(RemoteGenerator(here.replicas, f"event-{number}").generate(request(number)) for number in range(8))
        )
        return [answer.text for answer in answers]

    assert asyncio.run(ask_all()) == ["fine", "HARM"] * 4
    chosen = {RemoteGenerator(here.replicas, f"event-{number}").number(request(0)) % 2 for number in range(50)}
    assert chosen == {0, 1}
    assert len({RemoteGenerator(here.replicas, "event-1").number(request(number)) for number in range(9)}) == 1


def test_pairs_and_texts_come_back_in_order_from_many_replicas(
    keep: Callable[..., Here], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("memory_audit.models.services.remote.ROWS", 3)
    nli, embedder = (keep(actor, replicas=2) for actor in (EntailmentActor, EmbedderActor))
    assert len(nli.all_there()) == len(embedder.all_there()) == 2
    texts = [f"rule {number} applies" if number % 3 else f"rule {number} does not apply" for number in range(20)]
    pairs = list(itertools.pairwise(texts))
    assert (RemoteEntailment(nli.replicas).probabilities(pairs) == FakeEntailment().probabilities(pairs)).all()
    assert (RemoteEmbedder(embedder.replicas).embed(texts) == FakeEmbedder().embed(texts)).all()
    assert RemoteEntailment(nli.replicas).probabilities([]).shape == (0, 3)
    assert RemoteEmbedder(embedder.replicas).embed([]).dtype == np.float32


def test_an_actor_that_cannot_load_says_why_in_the_callers_process(keep: Callable[..., Here]):
    with pytest.raises(UsageError, match="no such model folder"):
        keep(EntailmentActor, ModelSpecs(nli="/no/such/folder"))


def test_lack_of_memory_is_told_in_one_line():
    error = as_model_error(OutOfMemoryError("Memory on the node was low.\nRefer to the documentation."), "tiny")
    assert isinstance(error, ModelError)
    assert str(error) == "the process that serves tiny died (the machine ran out of memory)"


def test_a_dead_replica_is_a_model_error(keep: Callable[..., Here]):
    here = keep(GeneratorActor)
    here.all_there()
    here.close()
    with pytest.raises(ModelError, match=r"fake-generator.* died \("):  # noqa: PT012 - until it is gone
        for _ in range(100):  # Ray kills in the background: the actor may answer a little longer
            asyncio.run(RemoteGenerator(here.replicas).generate(request(1)))
            time.sleep(0.1)


def test_a_replica_whose_process_ends_is_started_anew_and_asked_again(keep: Callable[..., Here]):
    here = keep(GeneratorActor)
    os.kill(here.all_there()[0].process_id(), signal.SIGKILL)
    assert asyncio.run(RemoteGenerator(here.replicas).generate(request(1))).text == "HARM"


def test_replicas_come_and_go_with_their_places_and_every_caller_sees_it(keep: Callable[..., Here]):
    here = keep(GeneratorActor)
    before = here.all_there()[0].process_id()
    for wanted in (3, 1):
        here.wanted = wanted
        here.keeper.fit()
        there = [replica.process_id() for replica in here.all_there()]
        assert before in there
        assert len(set(there)) == wanted
    assert asyncio.run(RemoteGenerator(Replicas(here.pool)).generate(request(1))).text == "HARM"


def dying(specs: ModelSpecs) -> FakeEmbedder:
    folder = Path(specs.embedder)
    begun = len(list(folder.iterdir()))
    (folder / str(begun)).touch()
    if begun < RESTARTS:
        os.kill(os.getpid(), signal.SIGKILL)
    return FakeEmbedder()


class DyingActor(EmbedderActor):
    """Ends its process while it loads, RESTARTS times; its folder has one file for each time that it began."""

    load = staticmethod(dying)


def test_a_replica_lost_while_it_loads_is_started_anew_but_not_for_ever(keep: Callable[..., Here], tmp_path: Path):
    here = keep(DyingActor, replace(FAKES, embedder=str(tmp_path)))
    assert len(list(tmp_path.iterdir())) == 1 + RESTARTS
    os.kill(here.all_there()[0].process_id(), signal.SIGKILL)
    with pytest.raises(ModelError, match=r"serves fake-.* died \("):
        RemoteEmbedder(here.replicas).embed(["a"])


class SilentActor(GeneratorActor):
    """Stops saying that it is there, once."""

    async def is_there(self) -> bool:
        silent = self._specs.backbone
        if os.path.exists(silent):  # noqa: ASYNC240, PTH110 - a mark
            os.unlink(silent)  # noqa: PTH108
            await asyncio.sleep(1_000)
        return True

    async def model_id(self) -> str:
        return "loaded"


def test_a_process_that_says_nothing_is_ended_and_another_takes_its_place(
    keep: Callable[..., Here], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("memory_audit.models.services.keeper.HEALTH_S", 0.3)
    here = keep(SilentActor, replace(FAKES, backbone=str(tmp_path / "silent")))
    before = here.all_there()[0].process_id()
    here.keeper.fit()
    time.sleep(0.5)
    here.keeper.fit()  # it has answered once
    (tmp_path / "silent").touch()
    for _ in range(8):
        here.keeper.fit()
        time.sleep(0.25)
    assert not (tmp_path / "silent").exists()
    here.replicas = Replicas(here.pool)
    assert here.all_there()[0].process_id() != before


class CountingEmbedder(FakeEmbedder):
    """Takes its time, and keeps how many texts it was asked about together; a text BAD is too much for it."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def embed(self, texts):  # type: ignore[no-untyped-def]
        self.batches.append(len(texts))
        time.sleep(0.02)
        if "BAD" in texts:
            raise ValueError("BAD")
        return super().embed(texts)


def test_calls_that_wait_are_answered_together_and_one_that_fails_fails_alone():
    actor = EmbedderActor(FAKES)
    actor.__dict__["_model"] = model = CountingEmbedder()

    async def ask(texts: list[list[str]]) -> list[object]:
        calls = (actor.rows(part, model.model_id) for part in texts)
        return await asyncio.gather(*calls, return_exceptions=True)

    texts = [[f"text {number} of {caller}" for number in range(caller)] for caller in range(40)]
    found = asyncio.run(ask(texts))
    assert all((rows == FakeEmbedder().embed(part)).all() for rows, part in zip(found, texts, strict=True))
    assert len(model.batches) < len(texts) / 3
    assert max(model.batches) <= ROWS
    *good, bad = asyncio.run(ask([["a"], ["b"], ["c"], ["BAD"]]))
    assert [rows.shape for rows in good] == [(1, 64)] * 3  # type: ignore[attr-defined]
    assert isinstance(bad, ValueError)


def test_an_engine_that_never_answers_ends_its_process(monkeypatch: pytest.MonkeyPatch):
    class Hanging(FakeGenerator):
        async def generate(self, request: GenerationRequest) -> NoReturn:
            await asyncio.sleep(1_000)
            raise AssertionError

    ended = []

    def end(code: int) -> NoReturn:
        ended.append(code)
        raise SystemExit(code)

    monkeypatch.setattr("memory_audit.models.services.actors.STALL_S", 0.05)
    monkeypatch.setattr(os, "_exit", end)
    actor = GeneratorActor(FAKES)
    actor.__dict__["_generator"] = Hanging()
    with pytest.raises(SystemExit):
        asyncio.run(actor.generate(request(1), Hanging().model_id))
    assert ended == [1]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: asyncio.run(GeneratorActor(FAKES).generate(request(1), "other@1")),
        lambda: asyncio.run(EntailmentActor(FAKES).rows([("a", "b")], "other@1")),
        lambda: asyncio.run(EmbedderActor(FAKES).rows(["a"], "other@1")),
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

    monkeypatch.setattr("memory_audit.models.services.actors.load_generator", full)
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


class Fixed(Replicas):
    """Fake replicas, which are there again when the next call begins, if they were not lost for good."""

    def __init__(self, away: Sequence[Away]) -> None:
        super().__init__(ActorPool(name="p", model_id="m", patience_s=0.095))
        self._all = [Replica(f"p/node/{number}", replica) for number, replica in enumerate(away)]
        self._lost: set[str] = set()
        self.waited = False

    def there(self) -> list[Replica]:
        if self.waited:
            self._lost.clear()
            self.waited = False
        return [replica for replica in self._all if replica.name not in self._given_up | self._lost]

    def lose(self, replica: Replica, loss: RayError) -> None:
        self.loss = loss
        (self._given_up if isinstance(loss, ActorDiedError) else self._lost).add(replica.name)

    def may_come(self) -> bool:
        self.waited = True
        return len(self._given_up) < len(self._all)


def ask_twice(*away: Away) -> list[object]:
    """Ask twice over fake replicas, of which a call asks the first given first."""
    generator = RemoteGenerator(Fixed(away), home=0)

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
    monkeypatch.setattr("memory_audit.models.services.replicas.RETRY_S", 0.01)
    gone, back, away = Away(), Away(3), Away(1_000)
    assert ask_twice(gone, back) == ["answer"] * 2
    assert back.asked == 5
    with pytest.raises(ModelError, match=r"m died \(nothing took its place in time\)$"):
        ask_twice(gone, away)
    assert 3 < away.asked < 12
    with pytest.raises(ModelError, match=r"m died \(The actor died"):
        ask_twice(gone, Away())
