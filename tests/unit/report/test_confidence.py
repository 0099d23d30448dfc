"""p of events and memories, and the words for what it rests on."""

import pytest

from memory_audit.attribution.calibration import Calibration
from memory_audit.attribution.leave_one_out import LeaveOneOut
from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.settings import SearchSettings
from memory_audit.report.confidence import NOT_CALIBRATED, confidence_note, p_of_event, p_of_memories
from memory_audit.result import Calibrated
from tests.unit.attribution.world import World, make_event

CLEAN = Calibration(largest_nats=(0.5,) * 99)


def searched(queries: list[str], calibration: Calibration | None = CLEAN) -> SetSearch:
    """One memory, m000, is retrieved by every event and brings the harm; the others do nothing."""
    world = World(
        6, {query: [0, 1, 2, 3, 4, 5] for query in queries}, lambda _, shown: 4.0 if 0 in shown else -2.0, k=2
    )
    events = [make_event(number, query=query) for number, query in enumerate(queries)]
    search = SetSearch(world.memory, events, SearchSettings(attribution_nats=2.0, calibration=calibration))
    world.run(search)
    return search


def test_each_unlike_query_that_a_memory_was_tried_at_counts():
    for queries, times in ((["q"], 1), (["q", "q"], 1), (["q", "r"], 2), (["q", "r", "s"], 3)):
        search = searched(queries)
        p_values = p_of_memories(search)
        assert p_values["m000"] == pytest.approx(times * 0.01)
        assert p_values["m001"] == 1.0
        assert [p_of_event(search, state) for state in search.states.values()] == [0.01] * len(queries)
        assert search.removal.attributed.keys() == {"m000"}


def test_without_a_calibration_nothing_has_a_p():
    search = searched(["q"], None)
    assert p_of_memories(search) == {}
    assert p_of_event(search, search.states["e000"]) is None


def test_the_plain_method_measures_nothing_that_a_calibration_is_of():
    world = World(3, {"q": [0, 1, 2]}, lambda _, shown: 4.0 if 0 in shown else -2.0, k=2)
    loo = LeaveOneOut(world.memory, [make_event(0, query="q")], flip_nats=2.5)
    assert p_of_memories(loo) == {}
    assert p_of_event(loo, loo.states["e000"]) is None


@pytest.mark.parametrize(
    ("known", "note"),
    [
        (None, f"{NOT_CALIBRATED}: memaudit calibrate tells how sure its findings are"),
        (
            Calibrated(incidents=12, significance=0.02, threshold_nats=None, made_ms=1),
            f"{NOT_CALIBRATED}: 12 clean incidents, and 2 % needs 49; the fixed threshold holds",
        ),
        (
            Calibrated(incidents=99, significance=0.01, threshold_nats=1.44, made_ms=1),
            (
                "calibrated on 99 clean incidents: evidence above 1.4 nats names a memory, which at most 1 % of "
                "incidents without a cause show"
            ),
        ),
    ],
)
def test_the_note_says_what_p_and_threshold_rest_on(known, note):
    assert confidence_note(known) == note
