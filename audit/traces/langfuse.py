"""Observations, traces and scores as Langfuse exports them: from its blob storage, its interface, or its API.

    {"id": "…", "trace_id": "…", "parent_observation_id": null, "type": "RETRIEVER", "start_time": "…", "output": "[…]"}
    {"id": "…", "trace_id": "…", "observation_id": null, "name": "harm", "value": 0.93, "string_value": null}

Names come in snake case from blob storage, in camel case from the API. Each value of `metadata` may be JSON in a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_audit.traces.conventions import flattened, read_attributes
from memory_audit.traces.records import Score, Span, as_id, name_of, time_us
from memory_audit.traces.values import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memory_audit.traces.records import Reading

__all__ = ["read_langfuse"]

_TENANT = {"user.id": ("user_id", "userId"), "session.id": ("session_id", "sessionId")}


def read_langfuse(record: Mapping[str, Any], reading: Reading) -> Iterator[Span | Score]:
    """Yield what an observation, a score or a trace says, and what lies in a trace of the API; nothing for others."""
    trace_id, own = as_id(_either(record, "trace_id", "traceId")), as_id(record.get("id"))
    started = _either(record, "start_time", "startTime")
    if trace_id and started is not None:
        parent_id = as_id(_either(record, "parent_observation_id", "parentObservationId"))
        yield _observation(record, trace_id, own, parent_id, started, reading)
    elif trace_id and name_of(record.get("name")) and ("value" in record or "string_value" in record):
        yield _score(record, trace_id)
    elif own and not trace_id and "timestamp" in record:
        yield _observation(record, own, f"trace {own}", "", record["timestamp"], reading)
        for key in ("observations", "scores"):
            inner = record.get(key)
            for item in inner if isinstance(inner, list) else ():
                if isinstance(item, dict):
                    yield from read_langfuse({"traceId": own, **item}, reading)


def _observation(  # noqa: PLR0913, PLR0917 - what identifies a span, and what it is made of
    record: Mapping[str, Any], trace_id: str, span_id: str, parent_id: str, started: object, reading: Reading
) -> Span:
    metadata = decoded(record.get("metadata"))
    attributes = {
        key: value
        for key, value in flattened({"metadata": metadata if isinstance(metadata, dict) else {}, **_plain(record)})
        if value is not None
    }
    attributes |= {name: value for name, keys in _TENANT.items() if (value := _either(record, *keys)) is not None}
    attributes["langfuse.observation.type"] = str(record.get("type")).lower()
    attributes["langfuse.observation.input"] = record.get("input")
    attributes["langfuse.observation.output"] = record.get("output")
    span = Span(trace_id=trace_id, span_id=span_id, parent_id=parent_id, start_us=time_us(started))
    return read_attributes(span, attributes, reading, name=name_of(record.get("name")))


def _score(record: Mapping[str, Any], trace_id: str) -> Score:
    value, label = record.get("value"), name_of(_either(record, "string_value", "stringValue"))
    if isinstance(value, str):
        label, value = label or name_of(value), None
    return Score(
        name=name_of(record.get("name")), trace_id=trace_id,
        span_id=as_id(_either(record, "observation_id", "observationId")),
        value=None if value is None or not isinstance(value, int | float) else float(value), label=label,
    )  # fmt: skip


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that are texts: any of them may name the tenant."""
    return {key: value for key, value in record.items() if isinstance(value, str)}


def _either(record: Mapping[str, Any], *keys: str) -> Any:
    return next((record[key] for key in keys if record.get(key) is not None), None)
