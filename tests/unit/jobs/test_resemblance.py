"""Who resembles whom, asked for one entry at a time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from memory_audit.consistency.resemblance import RESEMBLING, Resemblance
from memory_audit.consistency.tenant_graph import TenantGraph
from memory_audit.entry import Parent
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.run.graphs import consistency_graphs
from memory_audit.jobs.run.run_folder import RunFolder
from tests.audit_world import CONFIG, FAKES, entries_of, entry


def graph_of(tmp_path, entries) -> TenantGraph:
    executor, run = LocalExecutor(FAKES), RunFolder(tmp_path / "run", {"a": "b"})
    return consistency_graphs({"t": entries}, dataclasses.replace(CONFIG, graph="full"), executor, run)["t"]


def lonely(entries, responses) -> TenantGraph:
    """A graph in which nobody has a known neighbour."""
    graph = TenantGraph(entries, neighbours=4)
    graph.embed(np.tile(np.float32([1, 0]), (len(graph.texts), 1)), np.asarray(responses, np.float32))
    return graph


def test_those_that_answer_alike_are_tied_and_nobody_to_itself(tmp_path):
    entries = entries_of("globex")
    tied = Resemblance(graph_of(tmp_path, entries))
    assert set(tied) == {item.entry_id for item in entries}
    assert set(tied["bad0"][:3]) == {"bad1", "bad2", "bad3"}
    for name, others in tied.items():
        assert name not in others
        assert len(others) == len(set(others)) <= RESEMBLING


def test_a_store_of_one_entry_has_nobody_to_resemble(tmp_path):
    entries = [entry("acme", "m1", "q", "a")]
    assert Resemblance(graph_of(tmp_path, entries)) == {"m1": []}


def test_those_who_answer_alike_come_before_those_of_the_same_parent():
    family = (Parent(entry_id="root", weight_ppm=500_000),)
    entries = [entry("acme", f"m{number}", f"q{number}", "a") for number in range(5)]
    for number in (0, 1, 3):
        entries[number] = dataclasses.replace(entries[number], parents=family)
    directions = [[1, 0], [0, 1], [0.8, 0.6], [0, 1], [0.9, 0.43589]]
    assert Resemblance(lonely(entries, directions))["m0"] == ["m4", "m2", "m1", "m3"]


def test_equal_answers_are_tied_in_log_order_and_no_more_than_are_asked_about():
    entries = [entry("acme", f"m{number}", f"q{number}", "a") for number in range(40)]
    tied = Resemblance(lonely(entries, [[1.0, 0.0]] * 40))
    assert tied["m30"] == [f"m{number}" for number in range(RESEMBLING)]
    assert tied["m3"] == [f"m{number}" for number in range(RESEMBLING + 1) if number != 3]


class OneAtATime(np.ndarray):
    """Vectors that may be compared with one, never with all: that fills 14 GiB for 60,000 memories."""

    def __matmul__(self, other: np.ndarray) -> np.ndarray:  # type: ignore[override]
        assert other.ndim == 1
        return np.asarray(self) @ np.asarray(other)


def test_nobody_is_compared_but_with_who_is_asked_about():
    entries = [entry("acme", f"m{number}", f"q{number}", "a") for number in range(3)]
    responses = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]], np.float32)
    tenant = lonely(entries, responses)
    tenant.responses = responses.view(OneAtATime)
    tied = Resemblance(tenant)
    assert tied["m2"] == ["m0", "m1"]
    assert tied["m0"] == ["m2"]


def test_an_unknown_entry_resembles_nobody(tmp_path):
    entries = entries_of("acme")
    tied = Resemblance(graph_of(tmp_path, entries))
    assert tied.get("never there", []) == []
    with pytest.raises(KeyError):
        tied["never there"]


def test_copies_take_one_place_and_leave_the_others_to_variants():
    texts = ["poison"] * 30 + ["variant"] * 30 + ["other"] * 3
    entries = [entry("acme", f"m{number:02d}", "q", text) for number, text in enumerate(texts)]
    tied = Resemblance(lonely(entries, [[1.0, 0.0]] * 30 + [[0.9, 0.43589]] * 30 + [[0.0, 1.0]] * 3))
    assert tied["m00"] == tied["m17"] == ["m30"]
    assert tied["m41"] == ["m00"]
