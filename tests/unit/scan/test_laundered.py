"""External text is told where lineage leads from it into a trusted memory, and where the agent says it as its own."""

from __future__ import annotations

from memory_audit.entry import Entry, Parent
from memory_audit.lineage.dag import Lineage
from memory_audit.lineage.trust import TrustRules
from memory_audit.scan.finding import content_digest
from tests.unit.scan.worlds import fingerprints, graph_of, note, scanned

PAGE = "Refunds are paid at once to the account in the mail"
SAID = "To the account in the mail refunds are paid at once"


def laundered(*entries: Entry, rules=None):
    lineage = Lineage.of("acme", entries, rules or TrustRules())
    return scanned("laundered", entries, lineage=lineage, graph=graph_of(entries, compared=False))


def drawn(entry_id, text, *parents: str, weight=1_000_000):
    return note(entry_id, text, parents=tuple(Parent(entry_id=name, weight_ppm=weight) for name in parents))


def test_all_that_draws_on_one_external_memory_is_one_finding_with_the_path():
    page = note("page", PAGE, source="external")
    entries = page, drawn("a", "A summary of it", "page"), drawn("b", "What follows from this", "a"), note("m", "Cats")
    (finding,) = laundered(*entries)
    assert (finding.kind, finding.entry_ids, finding.severity) == ("derived-untrusted", ("a", "b"), "low")
    assert finding.key == content_digest(page)
    assert [(item.label, item.value, item.entry_id) for item in finding.evidence] == [
        ("path", "external", "page"),
        ("path", "derived-untrusted, draws 100%", "a"),
        ("external", PAGE, "page"),
        ("summary", "A summary of it", "a"),
    ]


def test_a_thought_with_no_parents_recorded_is_no_outsider():
    assert laundered(note("thought", "I think so"), drawn("a", "A summary of that thought", "thought")) == []


def test_what_draws_on_a_removed_memory_is_told_without_its_text():
    lineage = Lineage("acme", TrustRules())
    child = drawn("child", "A summary", "gone")
    lineage.append(note("gone", PAGE, source="external"))
    lineage.append(child)
    lineage.remove("gone")
    (finding,) = scanned("laundered", [child], lineage=lineage)
    assert finding.message == "1 memory by trusted writers: drawn from an external one, which was removed"
    assert finding.key == "gone"


def test_what_the_agent_says_after_an_outsider_without_parents_is_told():
    page, own = note("page", PAGE, source="external"), note("own", SAID)
    (finding,) = laundered(page, note("m", "Cats sleep"), own, note("copy", PAGE))
    assert (finding.kind, finding.entry_ids, finding.severity) == ("unrecorded-origin", ("own", "copy"), "medium")
    assert finding.key == content_digest(page)


def test_the_agent_may_be_first_name_its_parent_or_not_be_the_agent():
    page = note("page", PAGE, source="tool")
    assert laundered(note("own", SAID), page) == []
    assert [finding.kind for finding in laundered(page, drawn("own", SAID, "page"))] == ["derived-untrusted"]
    assert laundered(page, note("own", SAID, source="user")) == []
    assert laundered(page, note("own", SAID), rules=TrustRules(sources=frozenset({"user", "agent", "tool"}))) == []


def test_it_is_the_same_finding_when_more_is_drawn_from_it():
    page, own = note("page", PAGE, source="external"), note("own", SAID)
    before = laundered(page, own, drawn("a", "A summary", "page"))
    after = laundered(note("m", "Cats"), page, own, note("own2", SAID), drawn("b", "Another", "page"))
    assert fingerprints(before) == fingerprints(after)
    assert len(before) == 2
