"""Copies and restatements are one finding a group, the first in the log is kept, and another fact is not joined."""

from __future__ import annotations

from memory_audit.scan.finding import content_digest
from tests.unit.scan.worlds import fingerprints, graph_of, note, notes, scanned

TEA = "Anna Keller likes green tea in the morning"
AGAIN = "In the morning Anna Keller likes green tea"


def copies(entries):
    return scanned("copies", entries, graph=graph_of(entries))


def test_a_group_is_one_finding_with_the_first_in_front():
    entries = notes("The port is 8080", TEA, "Berlin is large", TEA, AGAIN, "The port is 8081", TEA)
    (finding,) = copies(entries)
    assert finding.entry_ids == ("m1", "m3", "m4", "m6")
    assert finding.message == "4 memories say the same: the first is kept; 2 word for word, 1 in other words"
    assert finding.severity == "info"
    assert finding.affected == 0
    assert finding.key == content_digest(entries[1])
    assert [(item.label, item.entry_id) for item in finding.evidence] == [
        ("kept", "m1"), ("restated", "m4"), ("writers", None)
    ]  # fmt: skip


def test_other_numbers_are_other_memories():
    assert copies(notes("A is 5", "A is 6", "A is 7")) == []
    (five, six) = copies(notes("A is 5", "A is 6", "A is 5", "A is 6"))
    assert (five.entry_ids, six.entry_ids) == (("m0", "m2"), ("m1", "m3"))


def test_what_is_compared_and_contradicts_is_not_joined():
    said = "the backup job of the night must never be stopped by hand before it ends, the team said again today"
    entries = notes(said, said.replace("never ", "").replace("team", "group").replace("job", "task"))
    assert len(scanned("copies", entries, graph=graph_of(entries, compared=False))) == 1
    assert copies(entries) == []


def test_a_flood_names_fifty_and_tells_how_many():
    entries = [note(f"m{place}", TEA, principal=f"w{place % 3}") for place in range(120)]
    (finding,) = copies(entries)
    assert (len(finding.entry_ids), finding.affected, finding.severity) == (50, 120, "low")
    assert finding.evidence[-1].value == "3"


def test_it_stays_the_same_finding_when_copies_come_go_and_get_other_ids():
    (before,) = copies(notes(TEA, AGAIN, TEA, "Berlin is large"))
    (more,) = copies(notes("The sky is grey", TEA, "Berlin is larger", TEA, AGAIN, TEA))
    (fewer,) = copies(notes(TEA, AGAIN))
    assert fingerprints([before]) == fingerprints([more]) == fingerprints([fewer])


def test_nothing_is_said_of_memories_that_say_different_things_or_of_none():
    assert copies(notes("The sky is grey", "Berlin is large", "Tea is drunk hot")) == []
    assert copies([]) == []
    assert scanned("copies", notes(TEA, TEA)) == []
