"""A memory that its own writer contradicted later is told as stale; another writer's word makes nothing stale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.scan.worlds import fingerprints, graph_of, note, notes, scanned

if TYPE_CHECKING:
    from memory_audit.entry import Entry

OLD, NEW = "the release of the billing service is on day 5", "the release of the billing service is on day 7"


def superseded(*entries: Entry):
    return scanned("superseded", entries, graph=graph_of(entries))


def test_the_older_one_is_told_and_the_newer_one_named():
    (finding,) = superseded(*notes("cats sleep", OLD, NEW))
    assert finding.entry_ids == ("m1", "m2")
    assert finding.severity == "info"
    assert [(item.label, item.value) for item in finding.evidence[:2]] == [("older", OLD), ("newer", NEW)]


def test_the_newest_of_several_is_named():
    newest = NEW.replace("7", "9")
    first, second = superseded(*notes(OLD, NEW, newest))
    assert (first.entry_ids, second.entry_ids) == (("m0", "m2"), ("m1", "m2"))


def test_what_was_said_once_more_is_not_stale():
    (finding,) = superseded(*notes(OLD, NEW, OLD))
    assert finding.entry_ids == ("m1", "m2")


def test_neither_another_writer_nor_an_earlier_time_makes_it_stale():
    old = note("m0", OLD, created_at_ms=10)
    assert superseded(old, note("m1", NEW, created_at_ms=10))
    assert not superseded(old, note("m1", NEW, created_at_ms=10, principal="eve"))
    assert not superseded(old, note("m1", NEW, created_at_ms=10, source="tool"))
    assert not superseded(old, note("m1", NEW, created_at_ms=9))


def test_it_is_the_same_finding_under_other_ids_and_with_a_newer_contradiction():
    before = superseded(*notes(OLD, NEW))
    after = superseded(*notes("cats sleep", OLD, NEW.replace("7", "8")))
    assert fingerprints(before) == fingerprints(after)
    assert scanned("superseded", notes(OLD, NEW)) == []
