"""Points and documents of a vector store as records: whoever uses it says what its fields mean.

The owner is the first of OWNERS that the fields name, else the collection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_audit.integrations.record import Record, as_text, id_within

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["record_of"]

OWNERS = ("user_id", "agent_id", "run_id")

TEXT_FIELDS = ("data", "text", "content", "document", "page_content", "memory")
"""Where no text stands beside the fields: the first of these that is a string is it."""


def record_of(collection: str, record_id: str, fields: Mapping[str, Any], text: str | None = None) -> Record:
    """Return a point or a document as a record.

    Args:
        collection: Where it lies.
        record_id: Unique there.
        fields: Payload or metadata.
        text: Beside the fields; None looks for it among them.
    """
    field = next((name for name in TEXT_FIELDS if isinstance(fields.get(name), str)), None) if text is None else None
    owner = tuple((name, str(fields[name])) for name in OWNERS if fields.get(name))
    hidden = {field, *(name for name, _ in owner[:1])}
    return Record(
        record_id=id_within(collection, record_id),
        text=(text or "") if field is None else fields[field], owner=owner or (("collection", collection),),
        metadata={name: as_text(value) for name, value in fields.items() if name not in hidden},
    )  # fmt: skip
