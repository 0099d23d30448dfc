"""What the attributes of a span mean: OpenTelemetry's GenAI conventions, OpenInference, and Langfuse's SDK.

A retrieval may be said twice, each time in part: LangChain's instrumentation writes flat `retrieval.documents.…`
without ids, and the ids inside `output.value`. Both are read; of equal length, each fills what the other lacks.

A span keeps 128 attributes by default, and Python's SDK drops the oldest: of flat documents the best-ranked ones. Gaps
in their numbers are counted; other SDKs drop the newest, which leaves no gap, and only the count of dropped attributes
tells. Documents that the span still has whole in one attribute are not lost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from memory_audit.traces.records import Document, Kind, Score, Span, name_of
from memory_audit.traces.values import MAX_DOCUMENTS, as_document, decoded, documents_in, said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memory_audit.traces.records import Reading
    from memory_audit.traces.values import Role

__all__ = ["EVALUATION", "flattened", "read_attributes", "score_of", "words_of"]

EVALUATION = "gen_ai.evaluation.result"
"""Event or log record with the result of an evaluation."""

_RETRIEVALS = frozenset({"RETRIEVER", "retriever", "retrieval", "search_memory"})
_RERANKS = frozenset({"RERANKER", "reranker"})
_KINDS = ("openinference.span.kind", "gen_ai.operation.name", "langfuse.observation.type")

_FLAT: dict[Kind, str] = {"retrieval": "retrieval.documents", "rerank": "reranker.output_documents"}
_WHOLE = ("gen_ai.memory.records", "gen_ai.retrieval.documents", "output.value", "langfuse.observation.output")
"""Attributes that hold all documents at once."""

_SPOKEN: dict[Role, tuple[str, ...]] = {
    "user": (
        "input.value", "gen_ai.input.messages", "langfuse.observation.input", "llm.input_messages",
        "gen_ai.memory.query.text", "gen_ai.retrieval.query.text",
    ),
    "assistant": ("output.value", "gen_ai.output.messages", "langfuse.observation.output", "llm.output_messages"),
}  # fmt: skip
"""Attributes with what a role said, the likeliest first."""

_NUMBER = re.compile(r"([0-9]{1,4})\.(.+)")


def read_attributes(
    span: Span, attributes: Mapping[str, Any], reading: Reading, *, name: str, dropped: int = 0
) -> Span:
    """Fill in a span what its attributes say.

    Args:
        span: With ids and time.
        attributes: By dotted names; a list of objects may stand whole under its name, or flat with numbers.
        reading: What the user says of the trace.
        name: Of the span.
        dropped: Attributes that the span had and lost.
    """
    kind = _kind(attributes, name, reading)
    documents, lost = (None, 0) if kind == "other" else _documents(attributes, kind, dropped)
    return msgspec.structs.replace(
        span, kind=kind, owner=name_of(attributes.get(reading.tenant_from)), documents=documents, lost=lost,
        asked=words_of(attributes, "user"), answered="" if kind != "other" else words_of(attributes, "assistant"),
    )  # fmt: skip


def words_of(attributes: Mapping[str, Any], role: Role) -> str:
    """Return what a role says in the attributes of a span, an event or a log record."""
    for key in _SPOKEN[role]:
        value = attributes.get(key)
        if value is None and key.startswith("llm."):
            value = list(_numbered(attributes, key).values()) or None
        if value is not None and (found := said(value, role)):
            return found
    return ""


def score_of(attributes: Mapping[str, Any], trace_id: str, span_id: str) -> Score | None:
    """Return the evaluation that an event or a log record states; None where it names nothing."""
    name = name_of(attributes.get("gen_ai.evaluation.name"))
    value = attributes.get("gen_ai.evaluation.score.value")
    if not name:
        return None
    number = float(value) if isinstance(value, int | float) else None
    label = name_of(attributes.get("gen_ai.evaluation.score.label"))
    return Score(name=name, trace_id=trace_id, span_id=span_id, value=number, label=label)


def _kind(attributes: Mapping[str, Any], name: str, reading: Reading) -> Kind:
    said_to_be = {str(attributes.get(key)) for key in _KINDS}
    if said_to_be & _RETRIEVALS or name in reading.retrievers:
        return "retrieval"
    return "rerank" if said_to_be & _RERANKS else "other"


def _documents(attributes: Mapping[str, Any], kind: Kind, dropped: int) -> tuple[tuple[Document, ...] | None, int]:
    """Return the documents of a span, and how many it had besides; None where it says nothing of any."""
    whole = [found for key in _WHOLE if (found := documents_in(attributes.get(key))) is not None]
    listed = decoded(attributes.get(_FLAT[kind]))
    if isinstance(listed, list):
        whole.insert(0, [as_document(item) for item in listed[:MAX_DOCUMENTS]])
    flat = {number: as_document(item) for number, item in _numbered(attributes, _FLAT[kind]).items()}
    length, most = max(flat, default=-1) + 1, max(map(len, whole), default=-1)
    if most < 0 and not flat:
        return None, int(dropped > 0)
    if most < length:
        gaps = length - len(flat)
        return tuple(flat.values()), max(gaps, 1) if dropped else gaps
    best = [flat.get(number, Document()) for number in range(most)]
    for other in whole:
        if len(other) == most:
            best = [_filled(*pair) for pair in zip(best, other, strict=True)]
    return tuple(best), 0


def _filled(document: Document, other: Document) -> Document:
    return Document(
        entry_id=document.entry_id or other.entry_id,
        keys=tuple(dict.fromkeys((*document.keys, *other.keys))),
        text=document.text or other.text,
    )


def _numbered(attributes: Mapping[str, Any], before: str) -> dict[int, dict[str, Any]]:
    """Collect flat members (`BEFORE.3.document.id`) by their number, without what stands around them."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if key.startswith(before) and (match := _NUMBER.fullmatch(key, len(before) + 1)):
            _, _, last = match[2].partition(".")
            found.setdefault(int(match[1]), {})[last or match[2]] = value
    return dict(sorted(found.items())[:MAX_DOCUMENTS])


def flattened(value: Mapping[str, Any], before: str = "", depth: int = 6) -> Iterator[tuple[str, Any]]:
    """Yield the members of nested objects by dotted names; lists stay as they are."""
    for key, item in value.items():
        if isinstance(item, dict) and depth:
            yield from flattened(item, f"{before}{key}.", depth - 1)
        else:
            yield f"{before}{key}", item
