"""OTLP/JSON: values come back as they were, however a span is packed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.jobs.traces.trace_files import records_of
from memory_audit.traces.otlp import attributes_of, read_otlp
from memory_audit.traces.read import read_record
from memory_audit.traces.records import Reading
from tests.unit.traces import SAMPLES

VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


def encoded(value):
    """Return a value as OTLP's mapping to JSON writes it: 64 bits as text, and nothing for what is empty."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [encoded(item) for item in value]} if value else {}}
    return {"kvlistValue": {"values": pairs(value)} if value else {}}


def pairs(values):
    return [{"key": key, "value": encoded(value)} for key, value in values.items()]


@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=5))
def test_attributes_come_back_as_they_were(values):
    assert attributes_of({"attributes": json.loads(json.dumps(pairs(values)))}) == values


@pytest.mark.parametrize("holder", [{}, {"attributes": None}, {"attributes": [None, {"key": 1}]}, None, [], "x"])
def test_what_has_no_attributes_has_none(holder):
    assert attributes_of(holder) == {}


def test_a_span_without_ids_is_passed_over():
    span = {"spanId": "1" * 16, "attributes": []}
    assert list(read_otlp({"resourceSpans": [{"scopeSpans": [{"spans": [span, None, 7]}]}]}, Reading())) == []


@pytest.mark.parametrize("name", ["langchain.jsonl", "genai_logs.jsonl"])
def test_lines_that_are_too_long_to_decode_at_once_are_streamed(name, monkeypatch):
    at_once = [
        item for record in records_of(SAMPLES / name) for item in read_record(record, Reading(tenant_from="tenant"))
    ]
    monkeypatch.setattr("memory_audit.jobs.traces.trace_files.MAX_FIRST_BYTES", 100)
    streamed = [
        item for record in records_of(SAMPLES / name) for item in read_record(record, Reading(tenant_from="tenant"))
    ]
    assert streamed == at_once
    assert len(at_once) >= 2


def test_a_value_that_is_nested_beyond_all_use_is_cut_off():
    value: object = "deep"
    for _ in range(40):
        value = [value]
    found = attributes_of({"attributes": pairs({"a": value})})
    assert "deep" not in json.dumps(found)
