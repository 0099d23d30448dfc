"""Whether harm reproduces is looked at before memories are compared, and then as few as the search examines."""

from __future__ import annotations

import dataclasses

import pytest

from memory_audit.consistency.distribution import SAMPLE
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.models.fakes import FakeEmbedder, FakeEntailment, FakeGenerator
from memory_audit.report.summary import compared_note
from tests.audit_world import (
    CONFIG,
    FAKES,
    TOPICS,
    entries_of,
    entry,
    event,
    make_snapshot,
    removed,
    run_with,
    verdicts,
)
from tests.whole import page_of

QUERY = "What is the refund window for order 17?"


class Heard(LocalExecutor):
    """Keeps which texts are embedded and which pairs compared."""

    def __init__(self, generator: FakeGenerator | None = None) -> None:
        super().__init__(FAKES, generator or FakeGenerator())
        self.texts: list[str] = []
        self.pairs: list[tuple[str, str]] = []
        heard = self

        class Embedder(FakeEmbedder):
            def embed(self, texts):
                heard.texts += texts
                return super().embed(texts)

        class Entailment(FakeEntailment):
            def probabilities(self, pairs):
                heard.pairs += pairs
                return super().probabilities(pairs)

        self.embedder, self.entailment = Embedder(), Entailment()


def heard(snapshot, out, events, config=CONFIG, generator=None):
    executor = Heard(generator)
    return run_with(executor, snapshot, out, events=events, config=config), executor


def harmful_anyway() -> FakeGenerator:
    return FakeGenerator(threshold=0)


@pytest.mark.parametrize(
    ("tenant", "generator", "verdict"),
    [("initech", None, "not reproduced"), ("acme", harmful_anyway, "memory is not the cause")],
)
@pytest.mark.parametrize("retrieval", ["dense", "levenshtein"])
def test_a_tenant_without_harm_that_memory_causes_pays_for_retrieval_alone(
    tmp_path, tenant, generator, verdict, retrieval
):
    snapshot = make_snapshot(tmp_path / "memory")
    config = dataclasses.replace(CONFIG, retrieval=retrieval)
    result, models = heard(
        snapshot, tmp_path / "run", [event("e1", tenant, QUERY)], config, generator and generator()
    )  # fmt: skip
    assert verdicts(result) == {"e1": verdict}
    assert models.pairs == []
    retrieved = {item.request for item in entries_of(tenant)} | {QUERY}
    assert set(models.texts) == (retrieved if retrieval == "dense" else set())
    (found,) = result.tenants
    assert (found.scores, found.edges, found.usual_cas, found.not_compared) == ((), (), None, found.entries)
    assert result.counters["nli_pairs"] == 0
    page_of(result)


def test_only_the_tenant_with_harm_is_compared(tmp_path):
    snapshot = make_snapshot(tmp_path / "memory")
    events = [event("e1", "acme", QUERY), event("e2", "initech", "What is the gift voucher for case 5?")]
    result, models = heard(snapshot, tmp_path / "run", events)
    acme = {item.text for item in entries_of("acme")}
    assert models.pairs
    assert {text for pair in models.pairs for text in pair} <= acme
    assert [bool(tenant.scores) for tenant in result.tenants] == [True, False]


def crowded(entries: int):
    """A tenant of many memories, all unlike, with one poison."""
    others = [
        entry(
            "acme",
            f"n{number:04d}",
            f"What is the {TOPICS[number % 6]} for case {number} of {number % 97}?",
            f"{number}.",
        )
        for number in range(entries)
    ]
    return [*others, *entries_of("acme")]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """One poison among three samples of memories, audited both ways."""
    folder = tmp_path_factory.mktemp("large")
    snapshot, events = make_snapshot(folder / "memory", crowded(3 * SAMPLE)), [event("e1", "acme", QUERY)]
    return {
        graph: heard(snapshot, folder / graph, events, dataclasses.replace(CONFIG, graph=graph))
        for graph in ("local", "full")
    }


def test_in_a_large_store_the_same_is_removed_as_with_the_whole_graph_for_fewer_pairs(large):
    (local, few), (full, many) = large["local"], large["full"]
    assert removed(local) == removed(full) == {"acme": {"bad0"}}
    assert verdicts(local) == verdicts(full) == {"e1": "cleared"}
    assert len(few.pairs) < len(many.pairs) / 2
    assert local.counters["nli_pairs"] == len(local.tenants[0].edges)


def test_what_was_compared_is_scored_as_in_the_whole_graph_and_nothing_else_is_listed(large):
    (local,), (full,) = large["local"][0].tenants, large["full"][0].tenants
    whole = {score.entry_id: score for score in full.scores}
    assert len(whole) == full.entries
    assert SAMPLE <= len(local.scores) < local.entries
    assert local.not_compared == local.entries - len(local.scores) > 0
    assert all(score.cas == whole[score.entry_id].cas for score in local.scores)
    assert all(score.density == whole[score.entry_id].density for score in local.scores)
    assert {"bad0"} <= {score.entry_id for score in local.scores}
    assert [score.rank for score in local.scores] == list(range(1, len(local.scores) + 1))


def test_the_report_says_how_much_was_compared_and_how_sure_the_usual_inconsistency_is(large):
    (local,), (full,) = large["local"][0].tenants, large["full"][0].tenants
    assert local.usual_cas.sampled == SAMPLE
    assert abs(local.usual_cas.median.value - full.usual_cas.median.value) <= local.usual_cas.median.error
    assert compared_note(local).startswith(f"{len(local.scores):,} of {local.entries:,} memories were compared")
    assert f"± {local.usual_cas.mean.error:.2g}" in compared_note(local)
    assert "±" not in compared_note(full)
    page = page_of(large["local"][0])
    assert compared_note(local) in page
    assert "memories that nothing led to are not listed" in page


@pytest.mark.parametrize("choice", [{"attribution": "loo"}, {"budget": 1}, {"graph": "full"}])
def test_what_ranks_all_memories_compares_all(tmp_path, choice):
    snapshot = make_snapshot(tmp_path / "memory")
    config = dataclasses.replace(CONFIG, **choice)
    result, _ = heard(snapshot, tmp_path / "run", [event("e1", "initech", QUERY)], config)
    (found,) = result.tenants
    assert len(found.scores) == found.entries
    assert found.usual_cas.sampled == found.entries


def test_a_flood_of_copies_does_not_hide_what_a_poison_contradicts(tmp_path):
    """In the paper's graph each copy's neighbours are its copies, which contradict nothing."""
    flood = [
        dataclasses.replace(item, entry_id=f"{item.entry_id}-{number}")
        for item in entries_of("acme") for number in range(10) if item.entry_id == "bad0"
    ]  # fmt: skip
    snapshot = make_snapshot(tmp_path / "memory", [*entries_of("acme"), *flood])
    result, _ = heard(snapshot, tmp_path / "run", [event("e1", "acme", QUERY)])
    alone, _ = heard(make_snapshot(tmp_path / "alone"), tmp_path / "run2", [event("e1", "acme", QUERY)])
    assert removed(result) == {"acme": {"bad0", *(item.entry_id for item in flood)}}
    of_poison = {score.cas for score in result.tenants[0].scores if score.entry_id.startswith("bad0")}
    assert of_poison == {score.cas for score in alone.tenants[0].scores if score.entry_id == "bad0"}
