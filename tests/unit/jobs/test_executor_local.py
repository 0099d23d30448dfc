"""The executor in this process: it loads what is used, when it is used, and ends only what it started."""

from __future__ import annotations

import pytest

from memory_audit.attribution.replays.ablation import keep_only
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.executors.replay_group import Program, ReplayGroup, ReplayQuestion
from memory_audit.models import lazy
from memory_audit.models.fakes import FakeGenerator
from tests.audit_world import CONFIG, FAKES


def group(event_id="e1"):
    question = ReplayQuestion(ablation=keep_only(event_id, "no_memory", "text", ()), memories=())
    return ReplayGroup(event_id=event_id, query="What is the refund window?", questions=(question,))


class Counted(FakeGenerator):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def program():
    return Program.of(CONFIG.agent, CONFIG.harm, CONFIG.seed)


@pytest.mark.parametrize(("role", "loads"), [("embedder", "load_embedder"), ("entailment", "load_entailment")])
def test_a_models_id_is_known_before_it_is_loaded(monkeypatch, role, loads):
    loaded, load = [], getattr(lazy, loads)
    monkeypatch.setattr(lazy, loads, lambda specs: loaded.append(specs) or load(specs))
    model = getattr(LocalExecutor(FAKES), role)
    assert model.model_id == load(FAKES).model_id
    assert not loaded
    ask = model.embed if role == "embedder" else model.probabilities
    assert len(ask([])) == len(ask([])) == 0
    assert len(loaded) == 1


def test_every_question_of_every_group_is_answered_once(program):
    executor = LocalExecutor(FAKES)
    outcomes = list(executor.replay([group("e1"), group("e2")], program))
    executor.close()
    assert sorted(outcome.event_id for outcome in outcomes) == ["e1", "e2"]


def test_a_backbone_that_was_lent_is_not_closed_and_one_given_away_or_its_own_is(program, monkeypatch):
    lent, own = Counted(), Counted()
    executor = LocalExecutor(FAKES, lent)
    list(executor.replay([group()], program))
    executor.close()
    assert lent.closed == 0

    executor = LocalExecutor(FAKES, lent, closes_generator=True)
    list(executor.replay([group()], program))
    executor.close()
    assert lent.closed == 1

    monkeypatch.setattr("memory_audit.jobs.executors.local.load_generator", lambda _: own)
    executor = LocalExecutor(FAKES)
    list(executor.replay([group()], program))
    executor.close()
    executor.close()
    assert own.closed == 1
