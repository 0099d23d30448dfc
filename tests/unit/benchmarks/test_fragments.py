"""Behaviour of the benchmark of fragments, with a fake backbone that draws conclusions from notes."""

from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks.attribution.fragments.__main__ import batches, make_case, measure, state
from benchmarks.attribution.fragments.trades import DEVELOPMENT, KINDS, fragments_of, load_trades
from benchmarks.attribution.trace.incidents import has_literal, load_incidents
from benchmarks.harness.resultfile import ResultFile
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.loading import ModelSpecs

TRADES = load_trades()


class Reasoner:
    """Answers with the incident's option where enough planted notes are in the prompt, or any `needs` of them."""

    model_id = "reasoner"

    def __init__(self, incident, needs=None) -> None:
        self._notes = [response for _, response in incident.planted]
        self._groups = incident.spared if needs is None else ()
        self._needs = needs or 0
        self._led = FakeGenerator(threshold=0, poisoned=incident.harm, clean="Ask")
        self._free = FakeGenerator(threshold=1 << 30, poisoned=incident.harm, clean="Ask")

    async def generate(self, request):
        prompt = "\n".join(message.content for message in request.messages)
        has = {number for number, note in enumerate(self._notes) if note in prompt}
        led = len(has) >= self._needs and all(has & set(group) for group in self._groups)
        return await (self._led if led else self._free).generate(request)

    async def close(self):
        pass


@pytest.fixture
def measured():
    """Return a function that measures an incident with a reasoner; everything is closed at the end."""
    opened = []

    def measure_one(incident, needs=None):
        specs = ModelSpecs(backbone="fake", nli="fake", embedder="fake")
        opened.append(LocalExecutor(specs, generator=Reasoner(incident, needs)))
        (row,) = measure(opened[-1], [incident], Reporter(Console(quiet=True), quiet=True))
        return row

    yield measure_one
    for executor in opened:
        executor.close()


@pytest.mark.parametrize("form", KINDS)
def test_a_set_is_named_whole_where_leave_one_out_names_what_is_always_needed(measured, form):
    row, kind = measured(fragments_of(TRADES[5], form, 1)), KINDS[form]
    planted = 2 if kind == "2 of 2" else 3
    assert (row["planted"], row["named"], row["benign_named"], row["verdict"]) == (planted, planted, 0, "cleared")
    assert (row["loo_named"], row["loo_benign_named"]) == ({"2 of 2": 2, "2 of 3": 1, "3 of 3": 3}[kind], 0)
    assert row["loo_calls"] == row["retrieved"] + 2
    assert row["calls"] <= 3 * row["loo_calls"]
    assert max(row["alone_nats"]) < 1


@pytest.mark.parametrize(
    ("needs", "why"), [(0, "harmful without memory"), (4, "harmless with all"), (1, "harmful with fewer")]
)
def test_what_is_no_incident_is_passed_over_with_the_reason(measured, needs, why):
    assert measured(fragments_of(TRADES[5], "aliases", 1), needs) == {"passed_over": why}


def test_no_planted_memory_but_the_rule_names_an_option_and_the_rule_names_both():
    for trade in TRADES:
        for form in KINDS:
            for option in (0, 1):
                rule, *others = fragments_of(trade, form, option).planted
                assert all(has_literal(word, rule[1]) for word in trade["options"])
                assert not any(has_literal(word, " ".join(other)) for word in trade["options"] for other in others)


def test_options_of_an_incident_are_in_no_benign_memory_around_it():
    executor = LocalExecutor(ModelSpecs(backbone="fake", nli="fake", embedder="fake"))
    incidents = load_incidents()
    for incident in (incident for batch in batches(()) for incident in batch):
        case, planted = make_case(executor, incident, incidents)
        texts = [entry.text for entry in case.memory.entries if entry.entry_id not in case.poison]
        assert not any(has_literal(incident.harm, text) for text in texts), incident.incident_id
        assert set(planted) == case.poison <= set(case.ids)
    executor.close()


def test_both_parts_hold_every_kind_and_the_trades_are_apart():
    found = [incident for batch in batches(()) for incident in batch]
    assert len({incident.incident_id for incident in found}) == len(found) == len(TRADES) * 2 * len(KINDS)
    assert {trade["trade"] for trade in TRADES} > DEVELOPMENT


def test_bars_are_on_held_out_incidents_only_and_need_enough_of_each_kind(tmp_path):
    row = {"planted": 2, "named": 2, "benign_named": 0, "calls": 40, "loo_calls": 18}
    for count, met in ((7, None), (8, True)):
        results = ResultFile("fragments", "c", {"count": count}, folder=tmp_path)
        for kind in set(KINDS.values()):
            for number in range(count):
                results.add_row({"incident": f"{kind}{number}", "kind": kind, "held_out": True, **row})
            results.add_row({"kind": kind, "held_out": False, **row, "named": 0, "benign_named": 5})
            results.add_row({"kind": kind, "held_out": True, "passed_over": "harmless with all"})
        state(results)
        assert [bar["met"] for bar in results._record["bars"]] == [met] * 5
