"""Nesting is refused at one depth, wherever in the stack a value is read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import EntryError, EventError, UsageError
from memory_audit.events import parse_events
from memory_audit.formats.import_jsonl import parse_entries
from memory_audit.formats.nesting import MAX_DEPTH, too_deep
from memory_audit.gate.call import parse_question
from memory_audit.lineage.edges_file import parse_edges
from memory_audit.report.json import from_json, to_json
from tests.unit.report.sample import sample_result
from tests.whole import summed


def nested(depth):
    return "[" * depth + "]" * depth


@given(st.integers(1, 3 * MAX_DEPTH), st.integers(0, 5))
def test_the_depth_of_the_deepest_branch_counts(depth, others):
    raw = f"[{nested(depth)}{', {}' * others}]".encode()
    assert too_deep(raw, json.loads(raw)) == (depth + 1 > MAX_DEPTH + 1)


@pytest.mark.parametrize("depth", [102, 500, *range(930, 1_000, 3), 5_000])
def test_deep_values_are_refused_with_our_own_errors(depth):
    deep = nested(depth)
    event = (
        f'{{"event_id": "e", "tenant": "t", "query": "q", "output": "o", "harm": {{"label": "benign"}}, "x": {deep}}}'
    )
    edge = f'{{"tenant": "t", "child": "b", "parent": "a", "weight": {deep}}}'
    entry = f'{{"tenant": "t", "entry_id": "e", "principal": "p", "request": "", "response": "", "source": {deep}}}'
    result = to_json(summed(sample_result())[0]).replace('"seconds":', f'"seconds":{deep},"x":', 1).encode()
    for read, error in (
        (lambda: list(parse_events([event.encode()], "f")), EventError),
        (lambda: parse_edges([edge.encode()], "f"), UsageError),
        (lambda: list(parse_entries([entry.encode()], "f", {"created_at_ms": 1})), EntryError),
        (lambda: parse_question(f'{{"tool": "t", "arguments": {{"a": {deep}}}}}'.encode(), "f"), UsageError),
        (lambda: from_json(result), UsageError),
    ):
        with pytest.raises(error):
            read()
