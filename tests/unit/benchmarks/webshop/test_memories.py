"""Real episodes become records of bounded length, and a store's ids, writers and times tell nothing."""

from __future__ import annotations

import pytest

from benchmarks.attribution.webshop.memories import (
    MAX_RESPONSE_TOKENS,
    Record,
    convert,
    estimated_tokens,
    load_benign_records,
    store_of,
)
from benchmarks.attribution.webshop.trajectory import parse

RESULTS = "[Back to Search] \nPage 1 (Total results: 50) \n[Next >] \n[B08CSNSY95] \nSoft Brush \n$11.99"
ITEM = "[Back to Search] \n[< Prev] \nSoft Brush \nPrice: $11.99 \nRating: N.A. \n[Description] \n[Buy Now]"
START = {"action": "reset", "observation": "Webshop \nInstruction:  \na brush \n[Search]"}
SEARCH = {"action": "search[brush]", "observation": RESULTS}
OPEN = {"action": "click[B08CSNSY95]", "observation": ITEM}
BUY = {"action": "click[Buy Now]", "observation": "Your score (min 0.0, max 1.0): 1.0\n\n2 0.5 0.5 0.0"}


def episode(*steps: dict[str, str]):
    return {"episode": 0, "instruction": "a brush ", "score": 1.0, "trajectory": list(steps)}


def test_episode_becomes_request_and_text_without_its_score():
    record = convert(episode(START, SEARCH, OPEN, BUY))
    assert record == Record(
        request="a brush",
        response=(
            "Action: search[brush]\nObservation: Results: [B08CSNSY95] Soft Brush $11.99\n"
            "Action: click[B08CSNSY95]\nObservation: Item: Soft Brush $11.99\n"
            "Action: click[Buy Now]\nObservation: You have bought [B08CSNSY95] Soft Brush $11.99"
        ),
    )


def test_refused_actions_are_left_out_and_cut_thoughts_closed():
    refused = {"action": "click[Soft Brush]", "observation": "Invalid action!"}
    thought = {"action": "think[" + "very " * 60, "observation": "OK."}
    record = convert(episode(START, SEARCH, refused, thought, OPEN, BUY))
    assert record is not None
    actions = [step.action for step in parse(record.response)]
    assert len(actions) == 4
    assert actions[1].startswith("think[very very")
    assert actions[1].endswith("very]")
    assert len(actions[1]) < 180


@pytest.mark.parametrize("steps", [(START, SEARCH, OPEN), (START, SEARCH, BUY), (START,)])
def test_episode_without_a_purchase_is_left_out(steps):
    assert convert(episode(*steps)) is None


def test_episode_that_stays_too_long_is_left_out():
    assert convert(episode(START, *[SEARCH] * 40, OPEN, BUY)) is None


def test_store_gives_every_record_its_own_writer_and_no_metadata():
    records = [Record(request=f"q{number}", response="r") for number in range(30)]
    store = store_of(records, tenant="shop", seed=7)
    assert [entry.request for entry in store] == [record.request for record in records]
    assert len({entry.principal for entry in store}) == len({entry.entry_id for entry in store}) == 30
    assert {entry.source for entry in store} == {"agent"}
    assert all(not entry.metadata and not entry.parents for entry in store)
    times = [entry.created_at_ms for entry in store]
    assert times != sorted(times)
    assert store == store_of(records, tenant="shop", seed=7)
    assert store != store_of(records, tenant="shop", seed=8)


@pytest.mark.tool("data")
def test_real_episodes_are_many_bounded_and_finished(data):
    records = load_benign_records(data / "webshop")
    assert len(records) > 200
    for record in records:
        assert estimated_tokens(record.response) <= MAX_RESPONSE_TOKENS
        steps = parse(record.response)
        assert steps[-1].action == "click[Buy Now]"
        assert steps[-1].observation.startswith("You have bought [")
        assert all(step.observation and "Invalid" not in step.observation for step in steps)
        assert "score" not in record.response.lower()
