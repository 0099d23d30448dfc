"""mem0: its memories as records, and a guard of a `Memory` or an `AsyncMemory`.

Every memory passes `vector_store.insert` or `update`; the raw turns that the extractor is shown next time pass
`db.save_messages`, where refused ones are left out. Guarded is this object, also after `reset`. Whoever writes to the
vector store beside mem0 passes by.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from memory_audit.errors import UsageError, WriteRefusedError
from memory_audit.guard.decide.write import UNNAMED
from memory_audit.integrations.record import Record, as_text, utc_ms
from memory_audit.integrations.refusing import Refusing, error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from memory_audit.entry import Source as Writer
    from memory_audit.guard.guarded_store import GuardedStore

__all__ = ["guard_mem0", "record_of"]

OWNERS = ("user_id", "agent_id", "run_id")
"""In the order in which mem0 isolates."""

BOOKKEEPING = frozenset({
    "data", "hash", "text_lemmatized", "created_at", "updated_at", "actor_id", "role", "attributed_to",
})  # fmt: skip
"""Payload that is not metadata of the memory's own."""

WROTE: Mapping[str, Writer] = MappingProxyType({"user": "user", "assistant": "agent", "tool": "tool"})

_REFUSED: ContextVar[dict[str, str] | None] = ContextVar("_REFUSED", default=None)
"""What was refused in the call of `add` that is under way."""


def record_of(memory_id: str, payload: Mapping[str, Any], where: str) -> Record:
    """Return a memory as a record.

    Args:
        memory_id: Of mem0.
        payload: Of the vector store.
        where: For messages.

    Raises:
        UsageError: there is no text.
    """
    text = payload.get("data")
    if not isinstance(text, str):
        raise UsageError(f"{where} has no text in `data`: no memory of mem0")
    owner = tuple((name, str(payload[name])) for name in OWNERS if payload.get(name))
    named, hidden = dict(owner), {*BOOKKEEPING, *(name for name, _ in owner[:1])}
    role = payload.get("role") or payload.get("attributed_to")
    writer = None
    if payload.get("actor_id"):
        writer = "actor_id", str(payload["actor_id"])
    elif role == "user" and "user_id" in named:
        writer = "user_id", named["user_id"]
    elif role == "assistant":
        writer = "agent_id", named.get("agent_id", "assistant")
    lemmas = payload.get("text_lemmatized")
    return Record(
        record_id=memory_id, text=text, owner=owner, writer=writer, source=WROTE.get(str(role), "external"),
        created_at_ms=utc_ms(payload.get("created_at")),
        metadata={name: as_text(value) for name, value in payload.items() if name not in hidden},
        spellings=(lemmas,) if isinstance(lemmas, str) and lemmas != text else (),
    )  # fmt: skip


def guard_mem0(memory: Any, guarded: GuardedStore, *, tenant: str | None = None, principal: str = UNNAMED) -> None:
    """Refuse what a store's removals keep out of a mem0.

    A refused write raises `WriteRefusedError` in the agent's call, once the harmless rest of it is written.

    Args:
        memory: A `Memory` or an `AsyncMemory`; it is changed in place.
        guarded: The guards of the store that it was imported into (`open_guard`).
        tenant: Of memories that name no owner, as at the import.
        principal: Of memories that name no writer.
    """
    refusing = Refusing(guarded, "mem0", tenant=tenant, principal=principal)
    _guard_parts(memory, refusing)
    memory.add = _telling(memory.add)
    memory.reset = _again(memory.reset, lambda: _guard_parts(memory, refusing))


def _guard_parts(memory: Any, refusing: Refusing) -> None:
    """Guard the parts that `reset` replaces."""
    store, db = memory.vector_store, memory.db
    insert, update, save = store.insert, store.update, db.save_messages

    @wraps(insert)
    def guarded_insert(vectors: Any, payloads: Any = None, ids: Any = None) -> Any:
        names = ids or range(len(payloads or ()))
        _check(refusing, {str(name): payload or {} for name, payload in zip(names, payloads or (), strict=False)})
        return insert(vectors=vectors, payloads=payloads, ids=ids)  # of a refused batch mem0 inserts one by one

    @wraps(update)
    def guarded_update(vector_id: Any, vector: Any = None, payload: Any = None) -> Any:
        _check(refusing, {str(vector_id): payload} if payload and "data" in payload else {})
        return update(vector_id=vector_id, vector=vector, payload=payload)

    @wraps(save)
    def guarded_save(messages: Any, session_scope: str) -> Any:
        found = refusing.refused([_turn(message, session_scope) for message in messages])
        return save([message for number, message in enumerate(messages) if number not in found], session_scope)

    store.insert, store.update, db.save_messages = guarded_insert, guarded_update, guarded_save


def _check(refusing: Refusing, payloads: Mapping[str, Mapping[str, Any]]) -> None:
    try:
        records = [record_of(name, payload, f"mem0: {name!r:.80}") for name, payload in payloads.items()]
    except UsageError as error:
        raise error_of(dict.fromkeys(payloads, str(error))) from None
    try:
        refusing.check(records)
    except WriteRefusedError as error:
        noted = _REFUSED.get()
        if noted is not None:
            noted.update(error.refused)
        raise


def _turn(message: Mapping[str, Any], scope: str) -> Record:
    """Return a raw message, of the owners that its scope names, as a record."""
    named = dict(part.partition("=")[::2] for part in scope.split("&"))
    return Record(
        record_id="message", text=as_text(message.get("content") or ""),
        owner=tuple((name, unquote(named[name])) for name in OWNERS if named.get(name)),
    )  # fmt: skip


@contextmanager
def _noted() -> Iterator[None]:
    """Raise at the end what was refused meanwhile; mem0 logs it, and goes on or raises an error of its own."""
    noted: dict[str, str] = {}
    token = _REFUSED.set(noted)
    try:
        yield
    except Exception as error:
        if noted and not isinstance(error, WriteRefusedError):
            raise error_of(noted) from error
        raise
    finally:
        _REFUSED.reset(token)
    if noted:
        raise error_of(noted)


def _telling(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def told(*args: Any, **named: Any) -> Any:
        with _noted():
            return call(*args, **named)

    @wraps(call)
    async def told_later(*args: Any, **named: Any) -> Any:
        with _noted():
            return await call(*args, **named)

    return told_later if inspect.iscoroutinefunction(call) else told


def _again(call: Callable[..., Any], then: Callable[[], None]) -> Callable[..., Any]:
    @wraps(call)
    def done() -> None:
        call()
        then()

    @wraps(call)
    async def done_later() -> None:
        await call()
        then()

    return done_later if inspect.iscoroutinefunction(call) else done
