"""A memory that stands against its neighbours is told with the pairs; several that do so together are one finding."""

from __future__ import annotations

from memory_audit.scan.finding import content_digest
from tests.unit.scan.worlds import fingerprints, graph_of, note, notes, scanned

FACT = "the nightly export of table {} writes to the archive"


def store(*against: str, size: int = 24):
    """A memory of facts about as many tables, and what stands against the first of them."""
    return notes(*(FACT.format(chr(97 + place)) for place in range(size)), *against)


def contradictions(entries):
    return scanned("contradictions", entries, graph=graph_of(entries))


def test_one_that_denies_what_its_neighbours_say_is_told_with_pairs():
    entries = store("the nightly export of table x never writes to the archive")
    (finding,) = contradictions(entries)
    assert finding.entry_ids == ("m24",)
    assert finding.severity == "low"
    assert finding.message == "contradicts 10 neighbours: more than is usual here"
    labels = [item.label for item in finding.evidence]
    assert labels == ["CAS", "unusual above", *["says", "contradicts", "NLI"] * 5]
    says, contradicts, nli = finding.evidence[2:5]
    assert says.value == entries[24].response
    assert contradicts.value == FACT.format("x")
    assert 0.5 <= float(nli.value) <= 1
    assert finding.key == content_digest(entries[24])


def test_those_that_contradict_each_other_are_one_finding_and_another_that_joins_them_changes_no_fingerprint():
    codes = [note(f"c{code}", f"the door code of the north gate is {code}") for code in (11, 12, 13, 14)]
    (before,) = contradictions([*store(size=40), *codes[:3]])
    assert before.entry_ids == ("c11", "c12", "c13")
    assert before.message == "3 memories contradict each other, and 0 neighbours: more than is usual here"
    assert before.key == content_digest(codes[0])
    assert sum(item.label == "NLI" for item in before.evidence) == 3
    (after,) = contradictions([*store(size=40), *codes])
    assert after.entry_ids == ("c11", "c12", "c13", "c14")
    assert fingerprints([before]) == fingerprints([after])


def test_a_store_without_contradictions_has_none_and_one_that_was_not_compared_says_nothing():
    entries = store()
    assert contradictions(entries) == []
    assert scanned("contradictions", entries, graph=graph_of(entries, compared=False)) == []
    assert scanned("contradictions", entries) == []
    assert contradictions([]) == []


def test_copies_of_one_that_stands_against_its_neighbours_are_counted():
    against = "the nightly export of table x never writes to the archive"
    (finding,) = contradictions([*store(against), note("copy", against)])
    assert (finding.entry_ids, finding.affected) == (("m24",), 2)


def test_the_fingerprint_stays_under_other_ids_and_when_others_come():
    against = "the nightly export of table x never writes to the archive"
    before = contradictions(store(against))
    after = contradictions(notes("A cat sleeps", *(FACT.format(chr(97 + place)) for place in range(22)), against))
    assert fingerprints(before) == fingerprints(after)
