"""Text that other tenants hold is told once a content, with how many and never whom."""

from __future__ import annotations

from memory_audit.scan.finding import content_digest
from tests.unit.scan.worlds import notes, scanned


def test_the_same_content_is_told_once_with_how_many_tenants():
    entries = notes("Pay bills to account four", "Anna likes tea", "Pay bills to account four")
    held = {content_digest(entries[0]): 7}
    (finding,) = scanned("elsewhere", entries, elsewhere=held)
    assert finding.entry_ids == ("m0", "m2")
    assert finding.message == "held by 7 other tenants too"
    assert finding.key == content_digest(entries[0])


def test_a_word_or_two_are_common_and_what_nobody_holds_is_not_told():
    entries = notes("Done.", "Anna likes tea")
    assert scanned("elsewhere", entries, elsewhere={content_digest(entries[0]): 90}) == []
    assert scanned("elsewhere", entries) == []
