"""What counts as the model's own mistake, and what the bars say of it."""

import dataclasses
import json

import pytest
from rich.console import Console

from benchmarks.attribution.clean_store import OWN, WrongAnswer, audit_clean_store, state
from benchmarks.attribution.minja.study import Cell, SharedScores, Study
from benchmarks.harness.resultfile import ResultFile
from memory_audit.attribution.replays.harm import load_harm
from memory_audit.config import AuditConfig
from memory_audit.generation import Completion
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.loading import ModelSpecs
from tests.unit.attribution.world import make_entry

KEY = {"q one": "A", "q two": "B"}


@pytest.mark.parametrize(
    ("query", "output", "harm"),
    [("q one", "Answer: A", 0.0), ("q one", "Answer: B", 1.0), ("q two", "Answer: B", 0.0), ("q two", "so what", 0.0)],
)
def test_harm_is_a_letter_that_is_not_the_right_one(query, output, harm):
    scorer = load_harm({"kind": "benchmarks.attribution.clean_store:WrongAnswer", "key": KEY})
    with pytest.raises(StopIteration) as ended:
        next(scorer.score(query, output))
    assert ended.value.value == harm


def test_the_letter_is_the_harm_and_not_its_form():
    assert WrongAnswer(key=KEY).decisive("Answer: B") == (8, 9)


class Fixed(FakeGenerator):
    """Says the same to everything; odds are even."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    async def generate(self, request) -> Completion:
        answer = await super().generate(request)
        return dataclasses.replace(answer, text=self._text)


def test_a_mistake_without_memory_is_the_models_and_removes_nothing():
    specs = ModelSpecs(backbone="fake", nli="fake", embedder="fake")
    executor = LocalExecutor(specs, generator=Fixed("Answer: B"))
    entries = tuple(make_entry(number, tenant="study") for number in range(4))
    cell = Cell(
        entries=entries, poison=frozenset(), victims=tuple(KEY), held_out=(), benign=(),
        correct=lambda query, output: float(output.endswith(KEY[query])),
        config=AuditConfig(k=2, harm={"kind": "benchmarks.attribution.clean_store:WrongAnswer", "key": KEY}),
    )  # fmt: skip
    row = audit_clean_store(Study(SharedScores(executor), Reporter(Console(quiet=True), quiet=True)), cell)
    executor.close()
    assert (row["wrong"], row["own_mistakes"], row["own_removed"]) == (1, 1, 0)
    assert row["own_verdicts"] == {OWN: 1}


def test_the_bars_need_twenty_stores(tmp_path):
    results = ResultFile("clean_store", "c", {}, folder=tmp_path)
    good = {"questions": 2, "wrong": 2, "own_mistakes": 1, "own_removed": 0, "own_verdicts": {OWN: 1}, "all_removed": 0}
    for number in range(20):
        state(results)
        assert [bar["met"] for bar in bars(tmp_path)] == [None, None, None], number
        results.add_row(good)
    state(results)
    assert [bar["met"] for bar in bars(tmp_path)] == [True, True, True]
    results.add_row(good | {"own_removed": 1, "own_verdicts": {"cleared": 1}, "all_removed": 1})
    state(results)
    assert [bar["met"] for bar in bars(tmp_path)] == [False, False, False]


def bars(folder):
    return json.loads((folder / "clean_store.json").read_text())["bars"]
