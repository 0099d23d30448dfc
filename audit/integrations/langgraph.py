"""LangGraph's stores: their items as records, and a store that wraps another and guards it.

Every call of a store ends in `batch` or `abatch`. Whoever writes to the inner store passes by.
"""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.guard.decide.write import UNNAMED
from memory_audit.integrations.record import Record, as_text, id_within
from memory_audit.integrations.refusing import Refusing, error_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.guard.guarded_store import GuardedStore

__all__ = ["guard_langgraph", "record_of"]

TEXT_FIELDS = ("text", "content", "memory", "data")
"""Of a value that is an object: the first of these that is a string is the text, and the rest is metadata."""


_spelled = json.JSONEncoder(ensure_ascii=False).encode


def record_of(
    prefix: str, key: str, value: Any, *, text: str | None = None, created_at_ms: int | None = None
) -> Record:  # fmt: skip
    """Return an item as a record.

    Args:
        prefix: Its namespace, whose parts dots join.
        key: In the namespace.
        value: What JSON can say.
        text: Field of the value that is the text; None takes the first of TEXT_FIELDS, else the value as JSON.
        created_at_ms: Unix milliseconds, where it is known.

    Raises:
        UsageError: that field is no string.
    """
    fields = value if isinstance(value, dict) else {}
    wanted = TEXT_FIELDS if text is None else (text,)
    field = next((name for name in wanted if isinstance(fields.get(name), str)), None)
    if field is None and text is not None:
        raise UsageError(f"{prefix!r:.80}, {key!r:.80}: no string in the field {text!r:.80}")
    shown = as_text(value) if field is None else fields[field]
    spelled = _spelled(shown)[1:-1]
    return Record(
        record_id=id_within(prefix, key), text=shown, owner=(("namespace", prefix),),
        metadata={} if field is None else {name: as_text(item) for name, item in fields.items() if name != field},
        spellings=(spelled,) if spelled != shown else (), created_at_ms=created_at_ms,
    )  # fmt: skip


def guard_langgraph(
    store: Any, guarded: GuardedStore, *, text: str | None = None, principal: str = UNNAMED
) -> Any:  # fmt: skip
    """Return a store that refuses what the removals of a signed store keep out, and is else the one that it wraps.

    A refused `put` raises `WriteRefusedError`; the harmless rest of a batch is done before.

    Args:
        store: Any `BaseStore`.
        guarded: The guards of the store that it was imported into (`open_guard`).
        text: As `record_of` says; a value without that field is judged as if none were named.
        principal: Who writes.
    """
    library: Any = import_module("langgraph.store.base")
    refusing = Refusing(guarded, "langgraph", tenant=None, principal=principal)

    def judged(ops: Iterable[Any]) -> tuple[list[Any], dict[str, str]]:
        """Return what may be done, and what may not, and why."""
        ops = list(ops)
        puts = [number for number, op in enumerate(ops) if isinstance(op, library.PutOp) and op.value is not None]
        records = [
            record_of(".".join(op.namespace), op.key, op.value, text=text if _has(op.value, text) else None)
            for op in (ops[number] for number in puts)
        ]
        found = refusing.refused(records)
        out = {puts[number] for number in found}
        return [op for number, op in enumerate(ops) if number not in out], {
            records[number].record_id: why for number, why in found.items()
        }

    class GuardedBaseStore(library.BaseStore):  # type: ignore[misc] # LangGraph need not be installed here
        """A store behind a guard."""

        supports_ttl, ttl_config = store.supports_ttl, getattr(store, "ttl_config", None)

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def batch(self, ops: Iterable[Any]) -> list[Any]:
            """Do what may be done."""
            kept, refused = judged(ops)
            done: list[Any] = store.batch(kept) if kept else []
            if refused:
                raise error_of(refused)
            return done

        async def abatch(self, ops: Iterable[Any]) -> list[Any]:
            """Do what may be done; the models are asked beside the loop."""
            kept, refused = await asyncio.to_thread(judged, ops)
            done: list[Any] = await store.abatch(kept) if kept else []
            if refused:
                raise error_of(refused)
            return done

    return GuardedBaseStore()


def _has(value: Any, field: str | None) -> bool:
    return isinstance(value, dict) and isinstance(value.get(field), str)
