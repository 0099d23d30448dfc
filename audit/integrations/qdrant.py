"""Qdrant in a local folder or in memory: a guard of a client.

What its client offers under many names (`upsert`, `upload_points`, `batch_update_points`, …) ends in three methods of a
local collection. A server of Qdrant takes writes of any client: guard those by `memaudit guard serve`.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.guard.decide.write import UNNAMED
from memory_audit.integrations.documents import record_of
from memory_audit.integrations.refusing import Refusing, error_of

if TYPE_CHECKING:
    from memory_audit.guard.guarded_store import GuardedStore

__all__ = ["guard_qdrant"]


def guard_qdrant(client: Any, guarded: GuardedStore, *, principal: str = UNNAMED) -> None:
    """Refuse what a store's removals keep out of a local Qdrant.

    A refused point raises `WriteRefusedError`, once the harmless rest of the call is written; a payload that is set for
    several points is refused whole.

    Args:
        client: A `QdrantClient` of a path or of `:memory:`; changed in place, with what collections it makes later.
        guarded: The guards of the store that it was imported into (`open_guard`).
        principal: Who writes.

    Raises:
        UsageError: it is the client of a server.
    """
    local = client._client  # noqa: SLF001
    if not hasattr(local, "collections"):
        raise UsageError("guard_qdrant takes a local client; writes to a server are guarded by `memaudit guard serve`")
    refusing = Refusing(guarded, "qdrant", tenant=None, principal=principal)
    create = local.create_collection

    @wraps(create)
    def guarded_create(collection_name: str, *args: Any, **named: Any) -> Any:
        made = create(collection_name, *args, **named)
        _guard(collection_name, local.collections[collection_name], refusing)
        return made

    for name, collection in local.collections.items():
        _guard(name, collection, refusing)
    local.create_collection = guarded_create


def _guard(name: str, collection: Any, refusing: Refusing) -> None:
    upsert, put, overwrite = collection.upsert, collection.set_payload, collection.overwrite_payload

    @wraps(upsert)
    def guarded_upsert(points: Any, *args: Any, **named: Any) -> Any:
        every = collection._materialize_points(points)  # noqa: SLF001 - a list, or columns
        refused = refusing.refused([record_of(name, str(point.id), point.payload or {}) for point in every])
        if not refused:
            return upsert(points, *args, **named)
        if len(refused) < len(every):
            upsert([point for number, point in enumerate(every) if number not in refused], *args, **named)
        raise error_of({str(every[number].id): why for number, why in refused.items()})

    @wraps(put)
    def guarded_put(payload: Any, *args: Any, **named: Any) -> Any:
        refusing.check([record_of(name, "payload", payload)])
        return put(payload, *args, **named)

    @wraps(overwrite)
    def guarded_overwrite(payload: Any, *args: Any, **named: Any) -> Any:
        refusing.check([record_of(name, "payload", payload)])
        return overwrite(payload, *args, **named)

    collection.upsert, collection.set_payload, collection.overwrite_payload = (
        guarded_upsert, guarded_put, guarded_overwrite,
    )  # fmt: skip
