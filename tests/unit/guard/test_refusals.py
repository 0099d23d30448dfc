"""Refusals are counted by name, each text once, as long as they are recent; of too many names the oldest go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.guard.decide import history
from memory_audit.guard.decide.history import Refusals
from memory_audit.guard.guard import GuardSettings


@pytest.mark.parametrize("name", ["distrust_after", "alarm_after", "refusals_s"])
def test_settings_below_nothing_are_refused(name):
    with pytest.raises(UsageError, match=name):
        GuardSettings(**{name: -1})


@given(
    kept=st.integers(0, 4),
    refused=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([b"1", b"2", b"3", b"4"]), st.integers(0, 400))),
)
def test_different_refusals_of_late_are_counted_as_far_as_they_are_kept(kept, refused):
    held, now, last = Refusals(kept, 1.0), 0, {}
    for writer, key, waited in refused:
        now += waited
        held.add(writer, key, now)
        last[writer, key] = now
        for name in "abc":
            late = sum(name == of and now - at < 1_000 for (of, _), at in last.items())
            assert held.count(name, now) == min(kept, late)


def test_of_too_many_writers_those_longest_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(history, "MAX_NAMES", 2)
    held = Refusals(1, 60.0)
    for number, writer in enumerate("abac"):
        held.add(writer, b"1", number)
    assert [held.count(writer, 4) for writer in "abc"] == [1, 0, 1]
