"""The removed set is one record: what goes and what may go, each with its reason."""

from __future__ import annotations

import dataclasses

import pytest

from memory_audit.attribution.removal_set import RemovalSet

FOUND = RemovalSet(attributed={"a": "alone"}, derived={"b": "from a"}, quarantined={"c": "from a, estimated"})


def test_what_is_quarantined_stays_unless_it_is_asked_for():
    assert FOUND.removed == {"a": "alone", "b": "from a"}
    assert FOUND.ids == {"a", "b"}
    assert FOUND.with_quarantined().removed == {"a": "alone", "b": "from a", "c": "from a, estimated"}
    assert FOUND.quarantined == {"c": "from a, estimated"}


def test_what_is_suspected_stays_unless_a_quarantine_takes_it():
    found = dataclasses.replace(FOUND, suspected={"d": "weak"})
    assert "d" not in found.with_quarantined().removed
    assert found.with_suspected().removed == {"a": "alone", "b": "from a", "d": "weak"}
    assert found.with_suspected().with_suspected() == found.with_suspected()


def test_asking_twice_changes_nothing():
    assert FOUND.with_quarantined().with_quarantined() == FOUND.with_quarantined()


def test_it_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(FOUND, "attributed", {})  # noqa: B010 - types forbid it, too
