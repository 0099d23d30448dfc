"""One record of a trace file, whatever tool wrote it: told apart by its members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_audit.traces import openinference
from memory_audit.traces.langfuse import read_langfuse
from memory_audit.traces.otlp import read_otlp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.traces.records import Reading, Score, Span

__all__ = ["read_record"]


def read_record(record: Any, reading: Reading) -> Iterator[Span | Score]:
    """Yield the spans and scores of one object of OTLP/JSON, Phoenix or Langfuse, or of a page (`data`) of them.

    Args:
        record: As decoded from JSON, or a row of a table. Untrusted: what has no sense is passed over.
        reading: What the user says of the traces.
    """
    if not isinstance(record, dict):
        return
    if "resourceSpans" in record or "resourceLogs" in record:
        yield from read_otlp(record, reading)
    elif openinference.is_span(record):
        yield from openinference.read_span(record, reading)
    elif openinference.is_annotation(record):
        yield from openinference.read_annotation(record)
    elif isinstance(page := record.get("data"), list):
        for item in page:
            if isinstance(item, dict) and "data" not in item:
                yield from read_record(item, reading)
    else:
        yield from read_langfuse(record, reading)
