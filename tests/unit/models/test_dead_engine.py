"""An engine that died, told from a request at fault: over a stand-in for vLLM's, whose process is killed in earnest."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
import ray

from memory_audit.errors import ModelError, ModelLostError
from memory_audit.generation import Completion, GenerationRequest, Message
from memory_audit.models.lazy import LazyGenerator
from memory_audit.models.loading import ModelSpecs
from memory_audit.models.services.remote import RemoteGenerator
from tests.unit.models.kept_here import Here
from tests.unit.models.stand_in_engine import StandInActor, engine_of, light_vllm, stand_in_generator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.models.backbone.generator_vllm import VllmGenerator
    from memory_audit.models.protocols import Generator

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # ray leaves its log sockets to the collector
]

FAKES = ModelSpecs(backbone="fake", nli="fake", embedder="fake")


def asking(text: str, role: str = "user") -> GenerationRequest:
    return GenerationRequest(messages=(Message(role=role, content=text),), max_tokens=5)  # type: ignore[arg-type]


def ask(generator: Generator, *texts: str) -> list[Completion | BaseException]:
    async def gather() -> list[Completion | BaseException]:
        return await asyncio.gather(*(generator.generate(asking(text)) for text in texts), return_exceptions=True)

    return asyncio.run(gather())


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    for name, module in light_vllm().items():
        monkeypatch.setitem(sys.modules, name, module)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]  # what was imported meanwhile


@pytest.fixture
def generator(light: None) -> Iterator[VllmGenerator]:
    made = stand_in_generator()
    yield made
    asyncio.run(made.close())


@pytest.mark.parametrize(
    ("text", "reason"), [("REFUSED", r"the decoder prompt cannot be that \(parameter=prompt"), ("BROKEN", "a defect")]
)
def test_a_request_at_fault_is_refused_in_one_line_and_its_batch_is_answered(
    generator: VllmGenerator, text: str, reason: str
):
    refused, answer, other = ask(generator, text, "fine", "POISON")
    assert isinstance(refused, ModelError)
    assert not isinstance(refused, ModelLostError)
    with pytest.raises(ModelError, match=f"^vLLM refused a request to fake-generator.*: {reason}"):
        raise refused
    assert [found.text for found in (answer, other) if isinstance(found, Completion)] == ["fine", "HARM"]


class Rules:
    """A chat template's own refusal."""

    def apply_chat_template(self, *_args: object, **_options: object) -> list[int]:
        from jinja2 import TemplateError  # noqa: PLC0415

        raise TemplateError("Conversation roles must alternate")


def test_what_a_chat_template_refuses_is_a_refused_request(generator: VllmGenerator):
    generator._tokenizer = Rules()
    with pytest.raises(ModelError, match=r"refused a request .*: Conversation roles must alternate$"):
        asyncio.run(generator.generate(asking("fine")))


def test_a_killed_engine_is_a_lost_model_whatever_it_is_asked(generator: VllmGenerator):
    generator._engine.process.kill()
    generator._engine.process.wait()
    for _ in range(2):
        for found in ask(generator, "fine", "POISON", "REFUSED"):
            assert isinstance(found, ModelLostError)
            assert str(found).startswith("vLLM died while serving fake-generator")


@pytest.fixture
def pool(local_ray: None) -> Iterator[Here]:
    started = Here(StandInActor, FAKES, replicas=2)
    yield started
    started.close()


def process_ids(pool: Here) -> list[int]:
    return [replica.process_id() for replica in pool.all_there()]


def test_where_the_engine_of_one_replica_dies_the_other_answers_and_the_first_comes_back(pool: Here):
    before = process_ids(pool)
    first = RemoteGenerator(pool.replicas, "event").number(asking("fine")) % 2
    os.kill(ray.get(pool.all_there()[first].handle.__ray_call__.remote(engine_of)), signal.SIGKILL)
    found = ask(RemoteGenerator(pool.replicas, "event"), *["fine", "POISON"] * 8)
    assert [answer.text for answer in found if isinstance(answer, Completion)] == ["fine", "HARM"] * 8
    after = process_ids(pool)
    assert [one != other for one, other in zip(before, after, strict=True)] == [first == 0, first == 1]


def test_a_request_at_fault_costs_no_replica(pool: Here):
    before = process_ids(pool)
    (refused, answer) = ask(RemoteGenerator(pool.replicas, "event"), "REFUSED", "fine")
    assert isinstance(refused, ModelError)
    assert isinstance(answer, Completion)
    assert process_ids(pool) == before


def test_what_ends_every_engine_ends_the_call_and_is_not_asked_for_ever(pool: Here):
    (found,) = ask(RemoteGenerator(pool.replicas, "event"), "DEADLY")
    assert isinstance(found, ModelError)
    assert "died (" in str(found)


def test_a_guards_backbone_is_loaded_again_after_its_engine_died(light: None, monkeypatch: pytest.MonkeyPatch):
    made: list[VllmGenerator] = []

    def load(_specs: ModelSpecs) -> VllmGenerator:
        made.append(stand_in_generator())
        return made[-1]

    monkeypatch.setattr("memory_audit.models.lazy.load_generator", load)
    monkeypatch.setattr("memory_audit.models.lazy.served_here", lambda _: True)
    lazy = LazyGenerator(FAKES)

    async def talk() -> list[str]:
        texts = [(await lazy.generate(asking("fine"))).text]
        os.kill(made[0]._engine.process.pid, signal.SIGKILL)
        lost = await asyncio.gather(*(lazy.generate(asking("fine")) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(found, ModelLostError) for found in lost)
        texts.append((await lazy.generate(asking("POISON"))).text)
        await lazy.close()
        return texts

    assert asyncio.run(talk()) == ["fine", "HARM"]
    assert len(made) == 2
