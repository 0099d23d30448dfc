"""Estimated edges: a file that comes back as it was written, and a line for each way in which it may not fit."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.lineage.edges_file import EstimatedEdge, check_edges, parse_edges, read_edges
from tests.audit_world import entries_of, make_snapshot

NAMES = (
    st.text(min_size=1, max_size=20)
    .filter(lambda text: text.encode(errors="replace").decode() == text)
    .map(lambda text: unicodedata.normalize("NFC", text))
)
EDGES = st.builds(
    EstimatedEdge, tenant=NAMES, child=NAMES, parent=NAMES, weight_ppm=st.integers(0, 1_000_000),
    evidence=st.dictionaries(st.sampled_from(["nli", "embedding"]), st.floats(-30, 30)),
)  # fmt: skip


def edge(child="ok01", parent="ok00", tenant="acme"):
    return EstimatedEdge(tenant=tenant, child=child, parent=parent, weight_ppm=500_000)


@given(st.lists(EDGES, max_size=4, unique_by=lambda item: (item.tenant, item.child, item.parent)))
def test_edges_come_back_as_they_were_written(edges):
    assert parse_edges([item.to_json().encode() for item in edges], "edges.jsonl") == tuple(edges)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": 1.5}, "expected a number from 0 to 1"),
        ({"weight": True}, "expected a number from 0 to 1"),
        ({"child": ""}, "child is ''"),
        ({"tenant": 3}, "tenant is 3"),
        ({"evidence": {"nli": "high"}}, "evidence is not a mapping of names to a number"),
        ({"extra": 1}, "unknown field 'extra'; known are tenant, child"),
    ],
)
def test_a_line_that_breaks_a_rule_is_named(change, message):
    record = {"tenant": "a", "child": "c", "parent": "p", "weight": 0.5, **change}
    with pytest.raises(UsageError, match=f"edges.jsonl, line 2: (.*, )?{message}"):
        parse_edges([b"", json.dumps(record).encode()], "edges.jsonl")


def test_names_are_spelled_as_in_the_store():
    (edge,) = parse_edges([b'{"tenant": "me\\u0301", "child": "e\\u0301", "parent": "p", "weight": 1}'], "f")
    assert (edge.tenant, edge.child) == ("m\u00e9", "\u00e9")


def test_an_edge_named_twice_a_line_that_is_no_json_and_a_missing_file_are_refused(tmp_path):
    line = edge().to_json().encode()
    with pytest.raises(UsageError, match="line 2: the edge of 'ok01' to 'ok00' is twice"):
        parse_edges([line, line], "e")
    with pytest.raises(UsageError, match="line 1: not JSON"):
        parse_edges([b"{"], "e")
    with pytest.raises(UsageError, match="cannot be read"):
        read_edges(tmp_path / "none.jsonl")


def test_edges_must_join_live_entries_in_the_order_they_were_logged(tmp_path):
    snapshot = make_snapshot(tmp_path / "memory", entries_of("acme"))
    check_edges([edge()], snapshot, "e")
    for wrong, message in (
        (edge(parent="ok99"), "not both are live"),
        (edge(child="ok00", parent="ok01"), "was not logged before"),
        (edge(tenant="nobody"), "unknown tenant"),
    ):
        with pytest.raises(UsageError, match=message):
            check_edges([wrong], snapshot, "e")


@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, "1e999", "NaN", "9" * 5_000])
@pytest.mark.parametrize("member", ["weight", "evidence"])
def test_a_number_that_no_float_holds_is_refused(member, number):
    value = number if member == "weight" else f'{{"nli": {number}}}'
    record = {"tenant": "t", "child": "b", "parent": "a", "weight": 0.5, "evidence": {}}
    text = json.dumps({name: item for name, item in record.items() if name != member})[:-1] + f', "{member}": {value}}}'
    with pytest.raises(UsageError):
        parse_edges([text.encode()], "f")


def test_a_lone_surrogate_is_refused():
    text = b'{"tenant": "t", "child": "\\ud800", "parent": "a", "weight": 0.5}'
    with pytest.raises(UsageError, match="not valid Unicode"):
        parse_edges([text], "f")


def test_a_pipe_is_refused_at_the_size_allowed_and_not_read_on(tmp_path, monkeypatch):
    monkeypatch.setattr("memory_audit.lineage.edges_file.MAX_EDGES_BYTES", 1_000)
    pipe, whole = tmp_path / "pipe", []
    os.mkfifo(pipe)

    def send():
        with contextlib.suppress(BrokenPipeError):
            pipe.write_bytes(b"\n" * (1 << 20))
            whole.append(True)

    writer = threading.Thread(target=send, daemon=True)
    writer.start()
    with pytest.raises(UsageError, match="pipe: more than 1000 bytes of estimated edges"):
        read_edges(pipe)
    writer.join()
    assert not whole
