"""Points and documents of a vector store as records: whoever uses it says what its fields mean.

The owner is the first of OWNERS that the fields name, else the collection. A field within another is named as Qdrant
names it, `metadata.user_id`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_audit.integrations.record import Record, as_text, id_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["OWNERS", "TEXT_FIELDS", "record_of", "value_of"]

OWNERS = ("user_id", "agent_id", "run_id")

TEXT_FIELDS = ("data", "text", "content", "document", "page_content", "memory")
"""Where no text stands beside the fields: the first of these that is a string is it."""


def record_of(  # noqa: PLR0913 - what a store says of a document, and how that is read
    collection: str, record_id: str, fields: Mapping[str, Any], text: str | None = None, *,
    text_fields: Sequence[str] = TEXT_FIELDS, owners: Sequence[str] = OWNERS,
) -> Record:  # fmt: skip
    """Return a point or a document as a record.

    Args:
        collection: Where it lies.
        record_id: Unique there.
        fields: Payload or metadata.
        text: Beside the fields; None looks for it among them.
        text_fields: Where it is looked for.
        owners: Fields of whose it is, the one that isolates most first.
    """
    field = None
    if text is None:
        field = next((name for name in text_fields if isinstance(value_of(fields, name), str)), None)
    owner = tuple((name, str(value)) for name in owners if (value := value_of(fields, name)))
    hidden = {field, *(name for name, _ in owner[:1])}
    return Record(
        record_id=id_within(collection, record_id),
        text=(text or "") if field is None else value_of(fields, field), owner=owner or (("collection", collection),),
        metadata={name: as_text(value) for name, value in fields.items() if name not in hidden},
    )  # fmt: skip


def value_of(fields: Mapping[str, Any], name: str) -> Any:
    """Return a field, or what lies below it by the parts of its name; None where there is none."""
    if name in fields:
        return fields[name]
    outer, dot, inner = name.partition(".")
    below = fields.get(outer)
    return value_of(below, inner) if dot and isinstance(below, dict) else None
