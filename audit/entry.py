"""A memory entry: what one principal stored for one tenant's agent.

The record and its limits live here; the signed bytes live in `memory_audit.provenance.leaf`.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from memory_audit.errors import EntryError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "MAX_NAME_BYTES", "MAX_TEXT_BYTES", "MAX_TIME_MS", "Entry", "Parent", "Source", "by_fields", "check_int",
    "check_text",
]  # fmt: skip

Source = Literal["user", "agent", "tool", "external"]

MAX_TEXT_BYTES = 65_536
"""Bound on `request` and on `response` in UTF-8 bytes: 16k tokens, more than any agent puts in one memory slot."""

MAX_NAME_BYTES = 256
"""Bound on tenant, entry id, principal and metadata keys in UTF-8 bytes."""

MAX_METADATA_VALUE_BYTES = 4_096
MAX_METADATA_ITEMS = 64
MAX_PARENTS = 256
MAX_TIME_MS = 253_402_300_800_000
"""The year 10000 in Unix milliseconds: later times are fast-forward attacks or mistakes."""

PARTS_PER_MILLION = 1_000_000

TEXTS = (
    ("tenant", MAX_NAME_BYTES, False),
    ("entry_id", MAX_NAME_BYTES, False),
    ("principal", MAX_NAME_BYTES, False),
    ("request", MAX_TEXT_BYTES, True),
    ("response", MAX_TEXT_BYTES, True),
)
"""An entry's texts: field, most UTF-8 bytes, and whether it may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A derivation edge: this entry draws on an earlier one."""

    entry_id: str
    weight_ppm: int
    """Share of the entry that its writer says it draws on this parent, in parts per million, 0 … 1 000 000 (integers,
    so that the signed bytes hold no floats). Those of several parents may overlap: they need not add up to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One memory. All text is untrusted: an attacker may have written any of it.

    Raises:
        EntryError: a field is empty, too long, of the wrong type, or not NFC-normalised Unicode.
    """

    tenant: str
    entry_id: str
    principal: str
    """Name of the writer whose key signs the entry."""

    source: Source
    request: str
    """What retrieval matches: a question or a task."""

    response: str
    """What the agent imitates."""

    created_at_ms: int
    """Unix milliseconds, as the writer states it: a claim, not evidence."""

    parents: tuple[Parent, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        where = f"entry {self.entry_id!r:.80}"
        for name, limit, may_be_empty in TEXTS:
            check_text(getattr(self, name), f"{where}: {name}", limit, may_be_empty=may_be_empty)
        if self.source not in get_args(Source):
            raise EntryError(f"{where}: source is {self.source!r:.40}, expected one of {', '.join(get_args(Source))}")
        check_int(self.created_at_ms, f"{where}: created_at_ms", MAX_TIME_MS)
        if len(self.parents) > MAX_PARENTS:
            raise EntryError(f"{where}: {len(self.parents)} parents, at most {MAX_PARENTS}")
        seen: set[str] = set()
        for parent in self.parents:
            check_text(parent.entry_id, f"{where}: parent id", MAX_NAME_BYTES, may_be_empty=False)
            check_int(parent.weight_ppm, f"{where}: parent weight_ppm", PARTS_PER_MILLION)
            if parent.entry_id in seen or parent.entry_id == self.entry_id:
                raise EntryError(f"{where}: parent {parent.entry_id!r:.80} is named twice or is the entry itself")
            seen.add(parent.entry_id)
        if len(self.metadata) > MAX_METADATA_ITEMS:
            raise EntryError(f"{where}: {len(self.metadata)} metadata items, at most {MAX_METADATA_ITEMS}")
        for key, value in self.metadata.items():
            check_text(key, f"{where}: metadata key", MAX_NAME_BYTES, may_be_empty=False)
            check_text(value, f"{where}: metadata value", MAX_METADATA_VALUE_BYTES, may_be_empty=True)
        object.__setattr__(self, "metadata", MappingProxyType(dict(self.metadata)))

    def __reduce__(self) -> tuple[object, ...]:
        return by_fields(self)

    @classmethod
    def judged(cls, *values: object) -> Entry:
        """Make an entry of the values of its fields, in their order, whose limits somebody judged already."""
        entry = object.__new__(cls)
        for put, value in zip(_PUTS, values, strict=True):
            put(entry, value)
        return entry

    @property
    def text(self) -> str:
        """Request and response as one passage, as the consistency graph and the embedder read it."""
        return f"{self.request}\n{self.response}"

    @property
    def matched(self) -> str:
        """What retrieval compares with a query: the request; of a text that is not cut in two, all of it."""
        return self.request or self.response

    @property
    def shown(self) -> tuple[str, str, frozenset[tuple[str, str]]]:
        """What an agent shows its model of an entry: those with the same are copies, and make the same prompt."""
        return self.request, self.response, frozenset(self.metadata.items())


_PUTS = tuple(getattr(Entry, name).__set__ for name in Entry.__slots__)


def by_fields(record: Any) -> tuple[object, ...]:
    """Say how to pickle a record: a mapping proxy cannot be pickled, and Ray ships records between processes."""
    values = {name: getattr(record, name) for name in record.__slots__}
    plain = {name: dict(value) if isinstance(value, MappingProxyType) else value for name, value in values.items()}
    return _made, (type(record), plain)


def _made(kind: type, values: dict[str, object]) -> object:
    return kind(**values)


def check_text(value: object, where: str, limit_bytes: int, *, may_be_empty: bool) -> None:
    """Raise EntryError unless `value` is NFC text of at most `limit_bytes` UTF-8 bytes."""
    if not isinstance(value, str):
        raise EntryError(f"{where} is {type(value).__name__}, expected text")
    if not value and not may_be_empty:
        raise EntryError(f"{where} is empty")
    if len(value) > limit_bytes:  # before encoding: a 10 MB text must cost nothing
        raise EntryError(f"{where} has {len(value)} characters, at most {limit_bytes} bytes are allowed")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise EntryError(f"{where} is not valid Unicode at character {error.start} (lone surrogate)") from None
    if size > limit_bytes:
        raise EntryError(f"{where} has {size} bytes, at most {limit_bytes} are allowed")
    if not unicodedata.is_normalized("NFC", value):
        raise EntryError(f"{where} is not in Unicode normal form NFC")


def check_int(value: object, where: str, maximum: int) -> None:
    """Raise EntryError unless `value` is a whole number from 0 to `maximum`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise EntryError(f"{where} is {value!r:.40}, expected a whole number from 0 to {maximum}")
