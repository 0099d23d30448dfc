"""Retrieval that returns labels: in its order, with the path, and never a memory that the lineage does not know."""

from __future__ import annotations

import pytest

from benchmarks.gate.lineage.recall import labelled
from memory_audit.attribution.replays.retrieval import RankedMemory, levenshtein_ranker
from memory_audit.errors import UsageError
from memory_audit.lineage.dag import PATH_STEPS, Lineage
from tests.unit.lineage.worlds import RULES, entry

ENTRIES = [
    entry("page", source="external"),
    entry("note", ("page", 900_000)),
    entry("diary", source="user"),
]


def test_retrieved_memories_come_with_their_labels_and_paths_best_match_first():
    memory = RankedMemory(ENTRIES, levenshtein_ranker([item.request for item in ENTRIES]), k=2)
    lineage = Lineage.of("acme", ENTRIES, RULES)
    found = labelled(memory.retrieve("about note", k=3), lineage)
    assert found[0].entry.entry_id == "note"
    assert {item.entry.entry_id: item.label for item in found} == {
        "page": "external", "note": "derived-untrusted", "diary": "trusted",
    }  # fmt: skip
    assert [step.entry_id for step in found[0].path] == ["page", "note"]
    assert {item.entry.entry_id: len(item.path) for item in found}["diary"] == 0


@pytest.mark.parametrize("strange", [entry("new"), entry("note", tenant="globex")])
def test_a_memory_that_the_lineage_does_not_know_gets_no_label(strange):
    with pytest.raises(UsageError, match="not live in the lineage"):
        labelled([strange], Lineage.of("acme", ENTRIES, RULES))


def test_a_memory_removed_since_gets_no_label():
    lineage = Lineage.of("acme", ENTRIES, RULES)
    lineage.remove("note")
    with pytest.raises(UsageError, match="one version of the store"):
        labelled([ENTRIES[1]], lineage)


@pytest.mark.parametrize("length", [PATH_STEPS, 300])
def test_a_long_path_is_told_by_its_ends_and_what_is_left_out(length):
    chain = [entry("e0", source="external"), *(entry(f"e{n}", (f"e{n - 1}", 900_000)) for n in range(1, length))]
    path = labelled([chain[-1]], Lineage.of("acme", chain, RULES))[0].path
    assert len(path) == PATH_STEPS
    assert (path[0].entry_id, path[-1].entry_id) == ("e0", f"e{length - 1}")
    assert [step.left_out for step in path] == [0, length - PATH_STEPS, *[0] * (PATH_STEPS - 2)]
