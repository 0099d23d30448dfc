"""The search that convicts nobody measures what the search would convict by."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.calibration import Calibration
from memory_audit.attribution.search.attribution_rule import AttributionRule
from memory_audit.attribution.search.no_attribution import NoAttribution
from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.settings import WEAK_NATS, SearchSettings
from tests.unit.attribution.world import World, make_event

MEMORIES, K = 9, 3
SETTINGS = SearchSettings(attribution_nats=2.0)


@st.composite
def incidents(draw):
    """One event, and what each memory adds to the odds of its harm: control memories may add, too."""
    adds = draw(st.lists(st.floats(-1, 6).map(lambda value: round(value, 1)), min_size=MEMORIES, max_size=MEMORIES))
    return adds, draw(st.floats(-4, -0.5).map(lambda value: round(value, 1)))


def searched(incident, settings, rule, tell=None):
    adds, bare = incident
    order = {"query 1": list(range(MEMORIES))}
    world = World(MEMORIES, order, lambda _, shown: bare + sum(adds[number] for number in shown), k=K)
    search = SetSearch(world.memory, [make_event(1)], settings, rule=rule, tell=tell)
    world.run(search)
    return search


@given(incidents(), st.floats(WEAK_NATS, 5))
def test_a_threshold_attributes_just_where_the_largest_evidence_exceeds_it(incident, threshold):
    """That it may be put back again is a filter after the threshold, and lowers what is removed."""
    largest = searched(incident, SETTINGS, NoAttribution).rule.largest_nats
    known, steps = Calibration(largest_nats=(threshold,) * 49), []
    calibrated = SearchSettings(attribution_nats=2.0, calibration=known, significance=0.02)
    searched(incident, calibrated, AttributionRule, steps.append)
    blamed = any(why.startswith(("alone", "by its absence")) for step in steps for why in step.now.attributed.values())
    assert blamed == (largest > threshold)


@given(incidents())
def test_nothing_is_attributed_by_evidence(incident):
    search = searched(incident, SETTINGS, NoAttribution)
    assert not [why for why in search.removal.attributed.values() if why.startswith("alone")]
    assert 0.0 <= search.rule.largest_nats < math.inf


@given(st.integers(2, 3), st.floats(2.5, 8), st.floats(WEAK_NATS, 9))
def test_a_threshold_attributes_to_a_set_just_where_its_evidence_exceeds_it(size, nats, threshold):
    order = {"query 1": list(range(14))}

    def searched(settings, rule):
        world = World(14, order, lambda _, shown: nats * (set(range(1, size + 1)) <= shown) - nats / 2, k=6)
        search = SetSearch(world.memory, [make_event(1)], settings, rule=rule)
        world.run(search)
        return search

    largest = searched(SETTINGS, NoAttribution).rule.largest_nats
    calibrated = SearchSettings(
        attribution_nats=2.0, calibration=Calibration(largest_nats=(threshold,) * 49), significance=0.02
    )
    found = searched(calibrated, AttributionRule).removal
    assert any("together" in why for why in found.attributed.values()) == (nats > threshold)
    assert largest == pytest.approx(nats)
