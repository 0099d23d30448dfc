"""Spans and annotations as Phoenix exports them, and spans as OpenTelemetry's console exporter for Python prints them.

    {"name": "…", "context": {"trace_id": "…", "span_id": "…"}, "parent_id": null, "start_time": "…", "attributes": {…}}

In a data frame of spans the same members are columns with dotted names, `attributes.…` and `context.…` among them.
Phoenix numbers documents anew: of documents that a span had lost no trace is left there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_audit.traces.conventions import EVALUATION, flattened, read_attributes, score_of
from memory_audit.traces.records import Score, Span, as_id, name_of, time_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memory_audit.traces.records import Reading

__all__ = ["is_annotation", "is_span", "read_annotation", "read_span"]


def is_span(record: Mapping[str, Any]) -> bool:
    """Tell whether this is a span in one of these forms."""
    return isinstance(record.get("context"), dict) or "context.trace_id" in record


def is_annotation(record: Mapping[str, Any]) -> bool:
    """Tell whether this is an annotation of a span or a trace."""
    named = "annotator_kind" in record or "annotation_name" in record
    return named and bool(record.get("span_id") or record.get("trace_id"))


def read_span(record: Mapping[str, Any], reading: Reading) -> Iterator[Span | Score]:
    """Yield a span, and the scores among its events."""
    flat = dict(flattened(record))
    trace_id, span_id = as_id(flat.get("context.trace_id")), as_id(flat.get("context.span_id"))
    if not trace_id or not span_id:
        return
    attributes = {
        key.removeprefix("attributes.").removeprefix("resource."): value
        for key, value in flat.items()
        if key.startswith(("attributes.", "resource.attributes.")) and value is not None
    }
    if isinstance(kind := flat.get("span_kind"), str):
        attributes.setdefault("openinference.span.kind", kind)
    parent_id, started = as_id(flat.get("parent_id")), time_us(flat.get("start_time"))
    span = Span(trace_id=trace_id, span_id=span_id, parent_id=parent_id, start_us=started)
    yield read_attributes(span, attributes, reading, name=name_of(flat.get("name")))
    events = flat.get("events")
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and event.get("name") == EVALUATION:
            stated = event.get("attributes")
            if isinstance(stated, dict) and (score := score_of(dict(flattened(stated)), trace_id, span_id)):
                yield score


def read_annotation(record: Mapping[str, Any]) -> Iterator[Score]:
    """Yield the score that an annotation is."""
    flat = dict(flattened(record))
    name = name_of(flat.get("annotation_name")) or name_of(flat.get("name"))
    value, label = flat.get("result.score", flat.get("score")), flat.get("result.label", flat.get("label"))
    if name:
        yield Score(
            name=name, trace_id=as_id(flat.get("trace_id")), span_id=as_id(flat.get("span_id")),
            value=float(value) if isinstance(value, int | float) else None, label=name_of(label),
        )  # fmt: skip
