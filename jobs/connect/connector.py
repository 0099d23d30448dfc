"""What every memory system offers here: its memories, and the ways to take some out for good.

A `Source` is read. Reading imports no framework of the agent's and changes nothing: no byte of a file, no expiry, no
lock that others wait for. It holds one memory at a time, whatever the size of the source. A `Connector` is a source
that memories can be taken out of. Its caller (`memory_audit.jobs.connect.removal`) does so in this order, each step
repeatable:

1. `hold` keeps the agent out, or says what it must do.
2. `rows` yields every row of every layer, with what is to stay of it. From this come the backup, the census of all
   that must be as before, and later the evidence.
3. `delete` takes the memories out of where the agent finds them.
4. `clean` takes ids and texts out of the side tables: histories, raw messages, entities, caches.
5. `erase` overwrites or rewrites what deleted rows left behind in `files`.

What a system reports as deleted counts as nothing. A fresh process opens the source again, enumerates all of it by
`records` and `rows`, and searches `files` for raw bytes.

Everything in a record is an attacker's: an id is never a path, a text never a pattern.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - msgspec reads the annotations
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from memory_audit.integrations.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["MEMORIES", "Connector", "Export", "Facts", "Record", "Removed", "Row", "Source", "Voucher"]

MEMORIES = "memories"
"""The layer of `Row` that `Connector.delete` empties; every other one is a side table, and is `clean`'s."""

MIN_QUOTED = 12
"""Characters of a text that is looked for within others: a shorter one is said by chance."""

Voucher = Literal["system", "caller", "model", "nobody"]
"""Whose word a field of a record is: the system set it itself, whoever wrote the memory may have, a model made it up,
or it is a guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What is taken out of a source."""

    records: tuple[Record, ...]
    """As they were found, or are known of where they are gone already."""

    texts_only: tuple[str, ...] = ()
    """Texts of memories that are another one's by now: they go from side tables, and no record does."""

    context: bool = False
    """Whether what their owners said last goes, too, where the system keeps raw turns to learn from."""

    ids: frozenset[str] = field(init=False)
    texts: frozenset[str] = field(init=False)
    """Every form of every text, none empty."""

    def __post_init__(self) -> None:
        forms = (text for record in self.records for text in (record.text, *record.spellings))
        object.__setattr__(self, "ids", frozenset(record.record_id for record in self.records))
        object.__setattr__(self, "texts", frozenset(text for text in (*forms, *self.texts_only) if text.strip()))

    def is_in(self, value: object) -> bool:
        """Tell whether a value of a side table is or quotes one of the texts; a short one must be all of it."""
        return isinstance(value, str) and (
            value in self.texts or any(len(text) >= MIN_QUOTED and text in value for text in self.texts)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of one layer of a source, and what is to stay of it."""

    layer: str
    """MEMORIES or the name of a side table, for people."""

    raw: bytes
    """The whole row, vectors included, as bytes that are equal only where the row is."""

    kept: bytes | None
    """The same where none of what is removed is in it, other bytes where a part of it goes, None where all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is so of every store of a system, measured; shown in receipts."""

    written_for: str
    """Releases and schemas that the connector was written for."""

    vouched: Mapping[str, Voucher]
    """Field of a record to whose word it is."""

    unreachable: tuple[str, ...] = ()
    """Where copies may lie that no connector can reach, one sentence each."""

    restart: tuple[str, ...] = ()
    """What must be restarted after a removal, since it would go on to serve what was removed."""

    guard_point: str = ""
    """Where writes can be refused that no other way passes by."""


class Source(Protocol):
    """A place that memories are read from."""

    facts: Facts

    def schema(self) -> str:
        """Name what is there, as it was known when the connector was written.

        Raises:
            UsageError: nothing there, or a schema that the connector was not written for, by its name: half a source is
                not read.
        """

    def records(self) -> Iterator[Record]:
        """Yield all memories, expired and hidden ones too, in an order that removals do not change.

        Raises:
            UsageError: as `schema`; a row that is not what the schema says.
        """


@runtime_checkable
class Export(Source, Protocol):
    """A file that a product gave out: it is read, and nothing can be taken out of it."""

    def told(self) -> Sequence[str]:
        """Return what people are to know of it, one line each: what is not in it, what was deleted and is there still.

        Raises:
            UsageError: as `Source.records`.
        """


class Connector(Source, Protocol):
    """A source that memories can be taken out of."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep the agent out while this lasts, where it must be.

        Raises:
            HeldError: it has the source open; says what is to be stopped.
        """

    def rows(self, removed: Removed) -> Iterator[Row]:
        """Yield every row of every layer.

        Raises:
            UsageError: as `records`; a side table is missing that must be there.
        """

    def delete(self, removed: Removed) -> None:
        """Take the memories out of where the agent finds them; those that are gone are passed over."""

    def clean(self, removed: Removed) -> None:
        """Take ids and texts out of every side table."""

    def erase(self) -> None:
        """Overwrite or rewrite what deleted rows left in `files`; only while it is held."""

    def files(self) -> Iterator[Path]:
        """Yield every file of the source, for a search of raw bytes; none where they cannot be reached."""
