"""OTLP/JSON: a line or a file of `resourceSpans` (spans) or `resourceLogs` (log records), as collectors write them.

    {"resourceSpans": [{"resource": {"attributes": […]}, "scopeSpans": [{"spans": [{"traceId": "…", …}]}]}]}

An attribute is `{"key": …, "value": {"stringValue": …}}`; an empty list is `{"arrayValue": {}}`, and what is empty may
be absent (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). Content and evaluations may lie in events
of a span, or in log records that name it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from memory_audit.traces.conventions import EVALUATION, read_attributes, score_of, words_of
from memory_audit.traces.records import Score, Span, as_id, name_of, time_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memory_audit.traces.records import Reading

__all__ = ["attributes_of", "read_log_record", "read_otlp", "read_span"]

MAX_DEPTH = 12
"""Levels of an attribute's value that are read."""

_INT64 = re.compile(r"-?[0-9]{1,19}")
_PLAIN = ("stringValue", "boolValue", "doubleValue")


def read_otlp(record: Mapping[str, Any], reading: Reading) -> Iterator[Span | Score]:
    """Yield the spans and scores of one object with `resourceSpans` or `resourceLogs`."""
    for outer, inner, items, read in (
        ("resourceSpans", "scopeSpans", "spans", read_span),
        ("resourceLogs", "scopeLogs", "logRecords", read_log_record),
    ):
        for group in _objects(record.get(outer)):
            shared = attributes_of(group.get("resource"))
            for scope in _objects(group.get(inner)):
                for item in _objects(scope.get(items)):
                    yield from read(item, shared, reading)


def read_span(span: Mapping[str, Any], shared: Mapping[str, Any], reading: Reading) -> Iterator[Span | Score]:
    """Yield a span, and the scores among its events.

    Args:
        span: As OTLP/JSON has it.
        shared: Attributes of its resource.
        reading: What the user says of the trace.
    """
    trace_id, span_id = as_id(span.get("traceId")), as_id(span.get("spanId"))
    if not trace_id or not span_id:
        return
    attributes = {**shared, **attributes_of(span)}
    dropped = span.get("droppedAttributesCount")
    parent_id, started = as_id(span.get("parentSpanId")), time_us(span.get("startTimeUnixNano"))
    yield read_attributes(
        Span(trace_id=trace_id, span_id=span_id, parent_id=parent_id, start_us=started),
        attributes, reading, name=name_of(span.get("name")), dropped=dropped if isinstance(dropped, int) else 0,
    )  # fmt: skip
    for event in _objects(span.get("events")):
        if event.get("name") == EVALUATION and (score := score_of(attributes_of(event), trace_id, span_id)):
            yield score


def read_log_record(record: Mapping[str, Any], shared: Mapping[str, Any], reading: Reading) -> Iterator[Span | Score]:
    """Yield what a log record says of the span that it names: an evaluation, or what was asked and answered."""
    trace_id, span_id = as_id(record.get("traceId")), as_id(record.get("spanId"))
    attributes = {**shared, **attributes_of(record)}
    if not trace_id:
        return
    if (record.get("eventName") or attributes.get("event.name")) == EVALUATION:
        if score := score_of(attributes, trace_id, span_id):
            yield score
        return
    asked, answered = words_of(attributes, "user"), words_of(attributes, "assistant")
    if asked or answered:
        at = record.get("timeUnixNano") or record.get("observedTimeUnixNano")
        yield Span(
            trace_id=trace_id, span_id=f"{span_id}@{at!s:.40}", parent_id=span_id or "?", start_us=time_us(at),
            asked=asked, answered=answered, owner=name_of(attributes.get(reading.tenant_from)),
        )  # fmt: skip


def attributes_of(holder: Any) -> dict[str, Any]:
    """Return the attributes of a span, an event, a log record or a resource, by name."""
    found = _pairs(holder.get("attributes"), MAX_DEPTH) if isinstance(holder, dict) else {}
    return found if isinstance(found, dict) else {}


def _pairs(pairs: Any, depth: int) -> dict[str, Any]:
    return {
        key: _value(pair.get("value"), depth - 1) for pair in _objects(pairs) if isinstance(key := pair.get("key"), str)
    }


def _value(value: Any, depth: int) -> Any:
    if not isinstance(value, dict) or not depth:
        return None
    for kind in _PLAIN:
        if kind in value:
            return value[kind]
    if "intValue" in value:  # 64 bits are a text in JSON
        number = value["intValue"]
        return int(number) if isinstance(number, str) and _INT64.fullmatch(number) else number
    if isinstance(array := value.get("arrayValue"), dict):
        return [_value(item, depth - 1) for item in _objects(array.get("values"))]
    if isinstance(members := value.get("kvlistValue"), dict):
        return _pairs(members.get("values"), depth - 1)
    return None


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())
