"""What a recorded input or output says: the words of one role, or the documents in it.

Frameworks record whatever they were called with, mostly as JSON in a text: a plain question, `{"input": …}`, a list of
messages in the manner of OpenAI, OpenTelemetry (`parts`) or LangChain (`kwargs`), a list of documents, a result of a
vector store. Nothing here knows a framework; the keys below are those that they use.
"""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from memory_audit.entry import MAX_NAME_BYTES
from memory_audit.traces.records import Document, bounded, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Role", "as_document", "decode", "decoded", "documents_in", "said"]

Role = Literal["user", "assistant"]

MAX_DEPTH = 12
"""Levels of lists and objects that are looked into: recorded calls of LangChain have eight."""

MAX_DOCUMENTS = 2_000
"""Documents looked at in one result; an event has at most `memory_audit.events.MAX_RETRIEVED`."""

_ROLES: dict[str, Role] = {
    "user": "user", "human": "user", "assistant": "assistant", "ai": "assistant", "model": "assistant",
}  # fmt: skip
_OTHER_ROLES = frozenset({"system", "tool", "developer", "function"})
_WORDS = ("content", "text", "parts", "kwargs", "message", "data", "value")
_ASKED = ("messages", "input", "query", "question", "prompt", "user_input", "query_str", "text")
_ANSWERED = ("messages", "output", "answer", "result", "response", "generations", "choices", "completion", "reply")
_WORD_TYPES = frozenset({"text", "output_text", "input_text", "constructor"})
_HOLDERS = (
    "documents", "results", "memories", "records", "matches", "points", "nodes", "source_nodes", "items", "hits",
    "data", "output",
)  # fmt: skip
_IDS = ("id", "id_", "_id", "memory_id", "entry_id", "document_id", "doc_id", "node_id", "key")
_TEXTS = ("page_content", "content", "text", "memory", "document", "value", "fact", "data", "payload")
_INNER = ("document", "node", "kwargs", "payload")


def decode(data: str | bytes) -> Any:
    """Decode JSON as tracing tools write it: with NaN, and with half a surrogate pair where a text was cut.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return json.loads(data)
        except RecursionError:
            raise ValueError("nested too deep") from None


def decoded(value: object) -> Any:
    """Return the JSON value in a text that is an object or a list; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return decode(value)
        except ValueError:
            return value
    return value


def said(value: object, role: Role) -> str:
    """Return what a role says in a value: of messages the last one of that role; the value as it is, if in doubt."""
    found = _said(decoded(value), role, MAX_DEPTH)
    return bounded(found or (value if isinstance(value, str) else ""))


def _said(value: object, role: Role, depth: int) -> str:
    if isinstance(value, str):
        return value
    if not depth:
        return ""
    if isinstance(value, dict):
        keys = dict.fromkeys((*(_ASKED if role == "user" else _ANSWERED), *_WORDS))
        if len(value) == 1:
            keys = dict.fromkeys((*keys, *value))
        for key in keys:
            if found := _said(decoded(value.get(key)), role, depth - 1):
                return found
        return ""
    if not isinstance(value, list) or not value:
        return ""
    roles = [_role(item) for item in value]
    if any(roles):
        turns = [item for item, spoken in zip(value, roles, strict=True) if spoken == role]
        return next(filter(None, (_said(turn, role, depth - 1) for turn in reversed(turns))), "")  # a call says nothing
    if all(isinstance(item, list) for item in value):  # of a batch, the first
        return _said(value[0], role, depth - 1)
    return "\n".join(filter(None, (_said(item, role, depth - 1) for item in value if _is_words(item))))


def _role(item: object) -> str:
    """Return who speaks a message; empty for what is no message."""
    if not isinstance(item, dict):
        return ""
    inner = item.get("message", item)
    of_class = item.get("id")
    for named in (
        inner.get("role") if isinstance(inner, dict) else None, item.get("role"), item.get("type"),
        of_class[-1] if isinstance(of_class, list) and of_class else None,
    ):  # fmt: skip
        if isinstance(named, str):
            name = named.lower().removesuffix("chunk").removesuffix("message")
            if name in _ROLES:
                return _ROLES[name]
            if name in _OTHER_ROLES:
                return name
    return ""


def _is_words(item: object) -> bool:
    """Tell a part of a message that is text from a call or an image."""
    return not isinstance(item, dict) or item.get("type", "text") in _WORD_TYPES


def documents_in(value: object) -> list[Document] | None:
    """Return the documents of a result, best match first; None where it is no list of any."""
    return _documents(decoded(value), MAX_DEPTH)


def _documents(value: object, depth: int) -> list[Document] | None:
    if isinstance(value, list):
        return [as_document(item) for item in value[:MAX_DOCUMENTS]]
    if isinstance(value, dict) and depth:
        if isinstance(ids := value.get("ids"), list):
            return _columns(ids, value.get("documents"))
        for key in _HOLDERS:
            found = _documents(decoded(value.get(key)), depth - 1) if key in value else None
            if found is not None:
                return found
    return None


def _columns(ids: list[Any], texts: object) -> list[Document]:
    """Read a result of Chroma: ids and texts in lists of their own; of a query, one list for each text asked for."""
    if ids and isinstance(ids[0], list):
        ids, texts = ids[0], texts[0] if isinstance(texts, list) and texts else None
    shown = texts if isinstance(texts, list) else []
    pairs = zip_longest(ids[:MAX_DOCUMENTS], shown[: len(ids)])
    return [Document(entry_id=name_of(name), text=bounded(_text(text))) for name, text in pairs]


def as_document(value: object) -> Document:
    """Read one document, whatever its framework calls id, text and metadata."""
    if isinstance(value, list) and value:  # with its score
        value = value[0]
    if isinstance(value, str):
        return Document(text=bounded(value))
    entry_id, keys, text = "", list[str](), ""
    for item in _layers(value):
        entry_id = entry_id or next(filter(None, (name_of(item.get(key)) for key in _IDS)), "")
        text = text or next(filter(None, (_text(item.get(key)) for key in _TEXTS)), "")
        metadata = decoded(item.get("metadata"))
        if isinstance(metadata, dict):
            keys += filter(None, (_unquoted(metadata.get(key)) for key in _IDS))
    return Document(entry_id=entry_id, keys=tuple(dict.fromkeys(keys)), text=bounded(text))


def _layers(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield an object and those that frameworks put a document into, the innermost first; Phoenix has dotted names."""
    if isinstance(value, dict):
        value = {key.removeprefix("document."): item for key, item in value.items() if isinstance(key, str)}
        yield from (value[key] for key in _INNER if isinstance(value.get(key), dict))
        yield value


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return next((item for key in _TEXTS if isinstance(item := value.get(key), str)), "")
    return ""


def _unquoted(value: object) -> str:
    """Return an id of metadata: Langfuse's SDK writes each value as JSON, a text with its quotes."""
    if isinstance(value, str) and value[:1] == '"' and len(value) <= MAX_NAME_BYTES:
        try:
            return name_of(decode(value))
        except ValueError:
            return ""
    return name_of(value)
