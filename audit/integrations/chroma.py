"""Chroma: a guard of a client.

All writes of all collections pass `_add`, `_upsert` and `_update` of the client's server. Clients of one process with
the same path share it, and are guarded together; those of other processes pass by.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any

from memory_audit.guard.decide.write import UNNAMED
from memory_audit.integrations.documents import record_of
from memory_audit.integrations.refusing import Refusing, error_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_audit.guard.guarded_store import GuardedStore

__all__ = ["guard_chroma"]

COLUMNS = ("ids", "embeddings", "metadatas", "documents", "uris")
"""Arguments that have one item a document, or are None."""


def guard_chroma(client: Any, guarded: GuardedStore, *, principal: str = UNNAMED) -> None:
    """Refuse what a store's removals keep out of a Chroma.

    A refused document raises `WriteRefusedError`, once the harmless rest of the call is written.

    Args:
        client: Of any kind; its server is changed in place.
        guarded: The guards of the store that it was imported into (`open_guard`).
        principal: Who writes.
    """
    server, refusing = client._server, Refusing(guarded, "chroma", tenant=None, principal=principal)  # noqa: SLF001
    names: dict[Any, str] = {}

    def guard(call: Callable[..., Any]) -> Callable[..., Any]:
        shape = inspect.signature(call)

        @wraps(call)
        def guarded_call(*args: Any, **named: Any) -> Any:
            given = shape.bind(*args, **named).arguments
            collection = given["collection_id"]
            if collection not in names:
                where = {name: given[name] for name in ("tenant", "database") if name in given}
                names.update((model.id, model.name) for model in server.list_collections(**where))
            fields, texts = given.get("metadatas") or (), given.get("documents") or ()
            records = [
                record_of(
                    names.get(collection, str(collection)), str(name),
                    (fields[n] if fields else None) or {}, (texts[n] if texts else None) or "",
                )
                for n, name in enumerate(given["ids"])
            ]  # fmt: skip
            refused = refusing.refused(records)
            if not refused:
                return call(**given)
            kept = [number for number in range(len(records)) if number not in refused]
            if kept:
                call(**{
                    name: [value[number] for number in kept] if name in COLUMNS and value is not None else value
                    for name, value in given.items()
                })  # fmt: skip
            raise error_of({str(given["ids"][number]): why for number, why in refused.items()})

        return guarded_call

    for name in ("_add", "_upsert", "_update"):
        setattr(server, name, guard(getattr(server, name)))
