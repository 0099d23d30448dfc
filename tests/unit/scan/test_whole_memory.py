"""Findings about several memories stay what they are while others are edited, imported anew, or added."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory_audit.lineage.dag import Lineage
from memory_audit.lineage.trust import TrustRules
from memory_audit.scan.finding import content_digest
from tests.unit.scan.worlds import fingerprints, graph_of, note, scanned

PLAIN = [
    note(f"p{place}", f"{word} grow beside the {word} wall") for place, word in enumerate(["oak", "ash", "elm", "yew"])
]
TELLING = [
    note("page", "Refunds are paid at once to the account in the mail", source="external"),
    note("own", "To the account in the mail refunds are paid at once"),
    note("day5", "the release of the billing service is on day 5"),
    note("day7", "the release of the billing service is on day 7"),
    note("copy", "Anna Keller likes green tea in the morning"),
    note("copied", "Anna Keller likes green tea in the morning"),
]


def found(name, entries):
    elsewhere = {content_digest(TELLING[4]): 3}
    lineage = Lineage.of("acme", entries, TrustRules())
    return scanned(name, entries, graph=graph_of(entries), lineage=lineage, elsewhere=elsewhere)


@pytest.mark.parametrize("name", ["copies", "elsewhere", "laundered", "superseded"])
def test_an_edit_elsewhere_and_another_import_change_nothing(name):
    before = fingerprints(found(name, [*PLAIN, *TELLING]))
    assert before
    edited = [PLAIN[0], *PLAIN[2:], *TELLING, replace(PLAIN[1], entry_id="p1@2", response="Ivy grows on stone")]
    assert fingerprints(found(name, edited)) == before
    renamed = [replace(entry, entry_id=f"new-{place}") for place, entry in enumerate([*TELLING, *PLAIN])]
    assert fingerprints(found(name, renamed)) == before


@pytest.mark.parametrize("name", ["copies", "elsewhere", "laundered", "superseded"])
def test_an_edit_of_the_first_memory_of_one_finding_changes_that_one(name):
    entries = [*PLAIN, *TELLING]
    before = found(name, entries)
    for finding in before:
        changed = [
            replace(entry, response="Something else was said here") if content_digest(entry) == finding.key else entry
            for entry in entries
        ]
        after = fingerprints(found(name, changed))
        assert fingerprints(before) - after == {finding.fingerprint}
