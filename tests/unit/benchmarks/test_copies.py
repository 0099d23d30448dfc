"""Poison that is stored several times over."""

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.attribution.minja.copies import copies_of, repeated


@given(
    st.lists(st.integers(), min_size=1, max_size=8, unique=True),
    st.integers(min_value=0, max_value=40),
    st.integers(min_value=1, max_value=12),
)
def test_each_item_comes_copies_times_in_order_until_there_are_enough(items: list[int], count: int, copies: int):
    found = repeated(items, count, copies)

    assert found == [items[place // copies % len(items)] for place in range(count)]


def test_one_copy_each_is_what_studies_did_before():
    assert repeated(["a", "b", "c"], 2, 1) == ["a", "b"]
    assert repeated(["a", "b"], 5, 1) == ["a", "b", "a", "b", "a"]
    assert copies_of(1) == {}


def test_copies_are_part_of_a_results_configuration():
    assert copies_of(10) == {"copies": 10}
