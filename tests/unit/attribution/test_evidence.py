"""The credit rule: what it owes to memories that do nothing, everything, or the same as others."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.evidence import Influence, credit, sum_over_events

NATS = st.floats(-30, 30)
MAYBE = st.none() | NATS


def influence(sufficiency=None, necessity=None, entry_id="m", event_id="e"):
    return Influence(event_id=event_id, entry_id=entry_id, sufficiency_nats=sufficiency, necessity_nats=necessity)


def game(value, members):
    """Measure each member of a context by the two terms of the rule, from the log-odds of any subset."""
    whole = frozenset(members)
    return {
        name: influence(
            value(frozenset({name})) - value(frozenset()), value(whole) - value(whole - {name}), entry_id=name
        )
        for name in members
    }


def hijacked_by(poison, needed=1, nats=8.0):
    def value(context):
        return nats if len(context & poison) >= needed else -nats

    return value


def test_a_memory_without_effect_gets_nothing():
    found = game(hijacked_by({"p"}), ["p", "benign copy of the question", "b"])
    assert credit(found["benign copy of the question"]) == 0.0
    assert credit(found["b"]) == 0.0


def test_the_only_cause_gets_all():
    assert credit(game(hijacked_by({"p"}), ["p", "b"])["p"]) == 16.0


@given(st.integers(2, 6), st.integers(0, 4))
def test_redundant_copies_share_equally_and_none_hides_behind_the_others(copies, benign):
    poison = {f"p{number}" for number in range(copies)}
    found = game(hijacked_by(poison), [*poison, *(f"b{number}" for number in range(benign))])
    assert {credit(found[name]) for name in poison} == {8.0}
    assert all(credit(found[f"b{number}"]) == 0.0 for number in range(benign))


def test_in_a_benign_context_nobody_gets_anything():
    found = game(hijacked_by(set()), ["a", "b"])
    assert {credit(item) for item in found.values()} == {0.0}


@given(st.dictionaries(st.sampled_from("abcd"), NATS, min_size=4))
def test_with_independent_effects_credit_is_the_effect_where_it_is_harmful(effects):
    found = game(lambda context: math.fsum(effects[name] for name in sorted(context)), list(effects))
    for name, effect in effects.items():
        assert credit(found[name]) == pytest.approx(max(effect, 0.0), abs=1e-9)


@given(MAYBE, MAYBE)
def test_credit_is_unknown_only_where_nothing_is_known_and_never_negative(sufficiency, necessity):
    value = credit(influence(sufficiency, necessity))
    assert (value is None) == (sufficiency is None and necessity is None)
    assert value is None or value >= 0.0


@given(NATS)
def test_a_term_that_was_not_measured_counts_as_the_other(nats):
    assert credit(influence(nats)) == credit(influence(None, nats)) == credit(influence(nats, nats))


@given(NATS, NATS, st.floats(0, 10))
def test_more_evidence_is_never_less_credit(sufficiency, necessity, more):
    base = credit(influence(sufficiency, necessity))
    assert credit(influence(sufficiency + more, necessity)) >= base
    assert credit(influence(sufficiency, necessity + more)) >= base


def test_sums_are_by_entry_and_the_unknown_is_absent_not_zero():
    values = [("b", 1.0), ("a", None), ("b", 2.5), ("c", None), ("c", 0.0)]
    assert sum_over_events(values) == {"b": 3.5, "c": 0.0}


@given(st.lists(st.tuples(st.sampled_from("abc"), MAYBE)), st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_the_order_of_events(values, rng):
    shuffled = list(values)
    rng.shuffle(shuffled)
    assert list(sum_over_events(values).items()) == list(sum_over_events(shuffled).items())
