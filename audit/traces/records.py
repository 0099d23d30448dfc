"""What is kept of a trace: spans with what was asked, answered and retrieved, and scores that somebody gave.

The formats differ in names and nesting alone. All text is untrusted, and none is longer than MAX_TEXT_BYTES + 1
characters: what is longer is no event's text, and is seen to be too long.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
import unicodedata
from typing import Literal

import msgspec

from memory_audit.entry import MAX_NAME_BYTES, MAX_TEXT_BYTES, MAX_TIME_MS

__all__ = ["Document", "Kind", "Reading", "Score", "Span", "as_id", "bounded", "name_of", "time_us"]

Kind = Literal["retrieval", "rerank", "other"]
"""Whether a span brought documents, chose among them, or neither."""

MAX_ID = 128
"""Characters of a trace's or a span's id: OpenTelemetry's has 32, Langfuse takes names of a user's own."""

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_NANOSECONDS = 10**15
"""A number of this size or more counts nanoseconds; a smaller one milliseconds."""

_HEX = re.compile(r"(?:0x)?([0-9a-f]{16}|[0-9a-f]{32})", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/]{22}==|[A-Za-z0-9+/]{11}=")


class Document(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One retrieved memory as its trace shows it; each part may be empty."""

    entry_id: str = ""
    keys: tuple[str, ...] = ()
    """Ids among its metadata."""

    text: str = ""


class Span(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One step of a trace."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    """Empty for the root."""

    start_us: int = 0
    """Unix microseconds: spans of one millisecond have an order."""

    kind: Kind = "other"
    asked: str = ""
    answered: str = ""
    owner: str = ""
    """Value of the attribute that names the tenant."""

    documents: tuple[Document, ...] | None = None
    """Of a retrieval or a reranking: best match first, as far as the trace has them. None where it says nothing of
    them, as where the capture of content is off."""

    lost: int = 0
    """Documents that the span had and the trace has not: at least so many."""


class Score(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A score, annotation or evaluation of a trace or of one of its spans."""

    name: str
    trace_id: str = ""
    """Empty where only the span is named."""

    span_id: str = ""
    value: float | None = None
    label: str = ""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What its user says of a trace."""

    tenant_from: str = ""
    """Attribute, of span or resource, that names the tenant."""

    retrievers: tuple[str, ...] = ()
    """Names of spans that are retrievals, and say so nowhere."""


def bounded(text: str) -> str:
    """Return a text that UTF-8 can hold; one that is too long to be used is cut so that it is still seen to be."""
    return text[: MAX_TEXT_BYTES + 1].encode(errors="replace").decode()


def name_of(value: object) -> str:
    """Return a name or an id as text; empty for what is none, or too long for one."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return bounded(value) if isinstance(value, str) and len(value) <= MAX_NAME_BYTES else ""


def as_id(value: object) -> str:
    """Return a trace's or span's id as OpenTelemetry writes it, in small hex digits; others as they are.

    `0x` before it (Python's console exporter) goes. Base64, which the general JSON form of protobuf has and OTLP's has
    not, becomes hex.
    """
    if not isinstance(value, str) or len(value) > MAX_ID:
        return ""
    if found := _HEX.fullmatch(value):
        return found[1].lower()
    if _BASE64.fullmatch(value):
        try:
            return base64.b64decode(value, validate=True).hex()
        except binascii.Error:
            return ""
    return bounded(unicodedata.normalize("NFC", value))


def time_us(value: object) -> int:
    """Return a time as Unix microseconds: of a number or its digits, of ISO 8601, or of a datetime; 0 for no time.

    A number counts nanoseconds, as OTLP's, or milliseconds. A time without a zone is UTC, as Langfuse's are.
    """
    if isinstance(value, str):
        if value.isdecimal() and len(value) <= len(str(MAX_TIME_MS)) + 6:
            value = int(value)
        else:
            try:
                value = dt.datetime.fromisoformat(value[:40])
            except ValueError:
                return 0
    if isinstance(value, dt.datetime):
        try:
            value = ((value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH) // dt.timedelta(microseconds=1)
        except OverflowError:
            return 0
    elif isinstance(value, bool):
        return 0
    elif isinstance(value, int):
        value = value // 1_000 if value >= _NANOSECONDS else value * 1_000
    return value if isinstance(value, int) and 0 <= value < MAX_TIME_MS * 1_000 else 0
