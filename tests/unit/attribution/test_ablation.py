"""Ablations are named by their content: equal questions have equal names, and no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.replays.ablation import Ablation, keep_only, leave_out

IDS = st.text(alphabet='ab",[]\\ é', min_size=1, max_size=4)
ABLATIONS = st.builds(
    Ablation,
    event_id=IDS,
    kind=st.sampled_from(["full", "no_memory", "removal"]),
    measure=st.sampled_from(["text", "odds", "continuation"]),
    removed=st.lists(IDS, unique=True, max_size=3).map(lambda ids: tuple(sorted(ids))),
    kept=st.none() | st.lists(IDS, max_size=3).map(tuple),
    point=st.integers(0, 3),
)


def content(ablation):
    return ablation.event_id, ablation.measure, ablation.removed, ablation.kept, ablation.point


@given(ABLATIONS, ABLATIONS)
def test_names_are_equal_exactly_where_the_questions_are(a, b):
    assert (a.pair_id == b.pair_id) == (content(a) == content(b))


@given(ABLATIONS)
def test_names_are_32_hex_digits(ablation):
    assert len(ablation.pair_id) == 32
    assert set(ablation.pair_id) <= set("0123456789abcdef")


def test_the_reason_for_asking_is_not_part_of_the_question():
    asked = leave_out("e", "full", "text", frozenset())
    assert asked.pair_id == leave_out("e", "removal", "text", frozenset()).pair_id


@given(st.lists(IDS, unique=True, max_size=5))
def test_what_is_left_out_is_a_set(ids):
    straight = leave_out("e", "removal", "text", set(ids))
    assert straight == leave_out("e", "removal", "text", frozenset(reversed(ids)))
    assert list(straight.removed) == sorted(ids)


def test_what_is_kept_is_an_order():
    assert (
        keep_only("e", "no_memory", "text", ("a", "b")).pair_id
        != keep_only("e", "no_memory", "text", ("b", "a")).pair_id
    )


def test_keeping_nothing_is_not_removing_nothing():
    assert keep_only("e", "no_memory", "text", ()).pair_id != leave_out("e", "full", "text", frozenset()).pair_id


def test_names_do_not_change_between_versions():
    # Names are on disk in RUN/replays: a change would make every stored outcome unfindable.
    assert leave_out("e1", "full", "odds", {"b", "a"}, 1).pair_id == PINNED


PINNED = "612c348c7efef246478be4bd32a05366"
