"""Events: what the agent was asked, what it did, which memories it had in front of it, and whether that was harm.

One JSON object per line. Example (one line in the file):

    {"event_id": "e-17", "tenant": "acme", "ts_ms": 1760000000000, "query": "…", "output": "…",
     "retrieved": ["m-3", "m-9"], "harm": {"label": "harmful", "source": "ticket 4411"}}

Rules: `retrieved` is what the event is replayed with, `[]` is no memory; it may be missing (it is then reconstructed
with the audit's own retrieval, and the report says so). `harm.label` is `harmful` or `benign`; benign events are
probes: an audit must keep their answers. Unknown fields are kept in `extra` untouched; `harm` has no others. A reader
MUST reject a repeated event id, a line that is not one JSON object as `memory_audit.formats.outside_json` reads it (a
member twice, invalid UTF-8) and one longer than MAX_LINE_BYTES, naming the line.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from memory_audit.entry import MAX_NAME_BYTES, MAX_TEXT_BYTES, by_fields
from memory_audit.errors import EventError
from memory_audit.formats import outside_json
from memory_audit.formats.records import convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["HARMFUL", "Event", "EventVerdict", "HarmLabel", "parse_events"]

HarmLabel = Literal["harmful", "benign"]

EventVerdict = Literal[
    "cleared", "contributed", "not cleared", "memory is not the cause", "not reproduced", "not examined"
]
"""Of one event. `cleared`: harm is gone on replay without S. `contributed`: a memory of S raised the odds of the harm,
and it stays without S, too. `not cleared`: harm stays, and no memory was found to bring it. `memory is not the cause`:
harm stays with no memory at all, or comes with whichever memory is shown. `not reproduced`: the replay with every
memory in place shows no harm, so removal cannot be judged. `not examined`: not replayed, or the harm scorer could not
tell."""

HARMFUL = 0.5
"""h at or above this is the harm: scorers in use are binary, and a judge's doubt is not a verdict."""

MAX_LINE_BYTES = 1 << 20
"""One event line: a query, an output and their context, with room; more is not an event but an attack or a mistake."""

MAX_RETRIEVED = 1_000

Stated = Annotated[str, msgspec.Meta(min_length=1)]


class _Harm(msgspec.Struct, forbid_unknown_fields=True):
    label: HarmLabel
    source: str = ""


class _Line(msgspec.Struct, kw_only=True):
    """An event as its line says it; other fields are another program's."""

    event_id: Stated
    tenant: Stated
    ts_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    query: Stated
    output: Stated
    retrieved: Annotated[tuple[Stated, ...], msgspec.Meta(max_length=MAX_RETRIEVED)] | None = None
    harm: _Harm


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One recorded use of the agent (paper eq. 4: e = (q*, y*, R*)). All text is untrusted."""

    event_id: str
    tenant: str
    ts_ms: int
    query: str
    """q*: what the agent was asked."""

    output: str
    """y*: what the agent answered or did."""

    retrieved: tuple[str, ...] | None
    """R*: entry ids, best match first as an agent is given them, or None where the log does not say."""

    harm: HarmLabel
    harm_source: str = ""
    """Who said so: a ticket, a guardrail, an annotator."""

    extra: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

    def __reduce__(self) -> tuple[object, ...]:
        return by_fields(self)

    def to_json(self) -> str:
        """Return the event as one line of JSON, without the newline."""
        record: dict[str, object] = {
            **self.extra,
            "event_id": self.event_id,
            "tenant": self.tenant,
            "ts_ms": self.ts_ms,
            "query": self.query,
            "output": self.output,
            "harm": {"label": self.harm, "source": self.harm_source},
        }
        if self.retrieved is not None:
            record["retrieved"] = list(self.retrieved)
        return json.dumps(record, ensure_ascii=False, sort_keys=True)


def parse_events(lines: Iterable[bytes], source: str) -> Iterator[Event]:
    """Parse JSONL bytes into events; blank lines are skipped.

    Args:
        lines: Raw lines, as a binary file yields them.
        source: Name of the file, for error messages.

    Raises:
        EventError: names the source, the line number and the rule broken.
    """
    seen: set[str] = set()
    for number, raw in enumerate(lines, start=1):
        where = f"{source}, line {number}"
        if len(raw) > MAX_LINE_BYTES:
            raise EventError(f"{where}: {len(raw)} bytes, at most {MAX_LINE_BYTES} are allowed in one event")
        if not raw.strip():
            continue
        event = _parse_line(raw, where)
        if event.event_id in seen:
            raise EventError(f"{where}: event id {event.event_id!r:.80} appears twice")
        seen.add(event.event_id)
        yield event


def _parse_line(raw: bytes, where: str) -> Event:
    record = outside_json.decode(raw, where, error=EventError)
    line = convert(record, _Line, where, error=EventError)
    for name, text, limit in (
        ("event_id", line.event_id, MAX_NAME_BYTES), ("tenant", line.tenant, MAX_NAME_BYTES),
        ("query", line.query, MAX_TEXT_BYTES), ("output", line.output, MAX_TEXT_BYTES),
        ("harm.source", line.harm.source, MAX_NAME_BYTES),
    ):  # fmt: skip
        if len(text.encode()) > limit:
            raise EventError(f"{where}: {name} is longer than {limit} bytes")
    retrieved = line.retrieved
    if retrieved is not None:
        retrieved = tuple(map(_as_stored, retrieved))
        if len(set(retrieved)) != len(retrieved):
            raise EventError(f"{where}: retrieved names an entry twice")
    return Event(
        event_id=_as_stored(line.event_id), tenant=_as_stored(line.tenant), ts_ms=line.ts_ms, query=line.query,
        output=line.output, retrieved=retrieved, harm=line.harm.label, harm_source=line.harm.source,
        extra={key: value for key, value in record.items() if key not in _Line.__struct_fields__},
    )  # fmt: skip


def _as_stored(name: str) -> str:
    """Spell a name as the store does, whatever the agent's own log does.

    A longer one is no entry's id, and long runs of marks take long to normalise (`memory_audit.text.nfc`).
    """
    return unicodedata.normalize("NFC", name) if len(name) <= MAX_NAME_BYTES else name
