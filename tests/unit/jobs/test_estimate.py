"""What an audit will take is between the least and the most, and what is known is taken off."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.jobs.plan.estimate import Bounds, Known, estimate
from memory_audit.jobs.run.shards import text_key
from memory_audit.request import TenantEvents
from tests.audit_world import CONFIG, entries_of, entry, event, make_snapshot, request_of, run_local

CONFIGS = st.builds(
    lambda **settings: replace(CONFIG, **settings),
    graph=st.sampled_from(["local", "full"]), neighbours=st.integers(1, 20), k=st.integers(1, 9),
    all_pairs_below=st.sampled_from([0, 30]), max_replays=st.none() | st.integers(0, 500),
    retrieval=st.sampled_from(["dense", "levenshtein"]),
)  # fmt: skip
NUMBERS = st.integers(0, 5)


@given(CONFIGS, st.lists(NUMBERS, min_size=1, max_size=60), st.integers(1, 5), NUMBERS, st.booleans())
def test_the_least_is_at_most_the_typical_and_that_the_most(config, texts, harmful, probes, known):
    entries = [entry("acme", f"m{place}", f"request {text}", f"answer {text}") for place, text in enumerate(texts)]
    events = TenantEvents(
        harmful=tuple(event(f"e{number}", "acme", "what is it") for number in range(harmful)),
        probes=tuple(event(f"p{number}", "acme", "what is that", "benign") for number in range(probes)),
    )
    told = Known(texts=frozenset({text_key("request 1")}), replays={"e0": 7}, compared=True) if known else Known()
    found = estimate("acme", entries, events, config, told)
    for bounds in (found.replays, found.tokens, found.pairs, found.texts):
        assert 0 <= bounds.least <= bounds.typical
        assert bounds.most is None or bounds.typical <= bounds.most
    assert (found.replays.most is None) == (config.max_replays is None)


@pytest.mark.parametrize("graph", ["local", "full"])
def test_an_audit_compares_and_embeds_what_was_estimated(tmp_path, graph):
    config, snapshot = replace(CONFIG, graph=graph), make_snapshot(tmp_path / "memory")
    asked = [event("e2", "globex", "What is the refund window for order 18?")]
    result = run_local(snapshot, tmp_path / "run", events=asked, config=config)
    events = request_of(snapshot, asked, config).by_tenant["globex"]
    found = estimate("globex", entries_of("globex"), events, config)
    assert found.replays.least <= result.counters["replays"] <= 2 * found.replays.typical
    assert found.pairs.least <= result.counters["nli_pairs"] <= found.pairs.most
    texts = {text_key(text) for item in entries_of("globex") for text in (item.request, item.response, item.text)}
    assert found.texts.most == len(texts | {text_key(asked[0].query)})


def test_bounds_without_a_limit_stay_so_until_one_is_given():
    unbounded = Bounds(least=1, typical=5, most=None)
    assert (unbounded + Bounds(least=1, typical=1, most=9)).most is None
    assert unbounded.up_to(3) == Bounds(least=1, typical=3, most=3)
    assert unbounded.without(4) == Bounds(least=0, typical=1, most=None)
