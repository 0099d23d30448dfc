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
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from memory_audit.entry import MAX_NAME_BYTES, MAX_TEXT_BYTES
from memory_audit.errors import EventError
from memory_audit.formats import outside_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["HARMFUL", "Event", "EventVerdict", "HarmLabel", "parse_events"]

HarmLabel = Literal["harmful", "benign"]

EventVerdict = Literal["cleared", "not cleared", "memory is not the cause", "not reproduced", "not examined"]
"""Of one event. `cleared`: harm is gone on replay without S. `memory is not the cause`: harm stays with no memory at
all, or comes with whichever memory is shown. `not reproduced`: the replay with every memory in place shows no harm, so
removal cannot be judged. `not examined`: not replayed, or the harm scorer could not tell."""

HARMFUL = 0.5
"""h at or above this is the harm: scorers in use are binary, and a judge's doubt is not a verdict."""

MAX_LINE_BYTES = 1 << 20
"""One event line: a query, an output and their context, with room; more is not an event but an attack or a mistake."""

MAX_RETRIEVED = 1_000

_FIELDS = frozenset({"event_id", "tenant", "ts_ms", "query", "output", "retrieved", "harm"})


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

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by fields: a mapping proxy cannot be pickled."""
        return _rebuild, (
            self.event_id, self.tenant, self.ts_ms, self.query, self.output, self.retrieved, self.harm,
            self.harm_source, dict(self.extra),
        )  # fmt: skip

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


def _rebuild(  # noqa: PLR0913, PLR0917 - the fields of Event, in order
    event_id: str, tenant: str, ts_ms: int, query: str, output: str, retrieved: tuple[str, ...] | None,
    harm: HarmLabel, harm_source: str, extra: dict[str, object],
) -> Event:  # fmt: skip
    return Event(
        event_id=event_id, tenant=tenant, ts_ms=ts_ms, query=query, output=output, retrieved=retrieved, harm=harm,
        harm_source=harm_source, extra=MappingProxyType(extra),
    )  # fmt: skip


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
    if not isinstance(record, dict):
        raise EventError(f"{where}: expected one JSON object")
    harm = record.get("harm")
    if not isinstance(harm, Mapping) or harm.get("label") not in ("harmful", "benign"):
        raise EventError(f'{where}: "harm" must be an object whose "label" is "harmful" or "benign"')
    unknown = sorted(harm.keys() - {"label", "source"})
    if unknown:
        raise EventError(f'{where}: "harm" has an unknown member {unknown[0]!r:.60}; known are label, source')
    harm_source = harm.get("source", "")
    if not isinstance(harm_source, str) or len(harm_source.encode()) > MAX_NAME_BYTES:
        raise EventError(f'{where}: "source" of "harm" must be text of at most {MAX_NAME_BYTES} bytes')
    ts_ms = record.get("ts_ms", 0)
    if not isinstance(ts_ms, int) or isinstance(ts_ms, bool) or ts_ms < 0:
        raise EventError(f'{where}: "ts_ms" must be a whole number of Unix milliseconds')
    return Event(
        event_id=_name(record, "event_id", where),
        tenant=_name(record, "tenant", where),
        ts_ms=ts_ms,
        query=_text(record, "query", where, MAX_TEXT_BYTES),
        output=_text(record, "output", where, MAX_TEXT_BYTES),
        retrieved=_retrieved(record, where),
        harm=harm["label"],
        harm_source=harm_source,
        extra=MappingProxyType({key: value for key, value in record.items() if key not in _FIELDS}),
    )


def _text(record: Mapping[str, object], name: str, where: str, limit: int) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise EventError(f'{where}: "{name}" must be text and not empty')
    if len(value.encode(errors="replace")) > limit:
        raise EventError(f'{where}: "{name}" is longer than {limit} bytes')
    return value


def _name(record: Mapping[str, object], name: str, where: str) -> str:
    """Names are spelled as the store spells them, whatever the agent's own log does."""
    return unicodedata.normalize("NFC", _text(record, name, where, MAX_NAME_BYTES))


def _retrieved(record: Mapping[str, object], where: str) -> tuple[str, ...] | None:
    value = record.get("retrieved")
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise EventError(f'{where}: "retrieved" must be a list of entry ids')
    # A longer one is no entry's id, and long runs of marks take long to normalise (`memory_audit.text.nfc`).
    value = [unicodedata.normalize("NFC", item) if len(item) <= MAX_NAME_BYTES else item for item in value]
    if len(value) > MAX_RETRIEVED or len(set(value)) != len(value):
        raise EventError(f'{where}: "retrieved" names an entry twice or has more than {MAX_RETRIEVED}')
    return tuple(value)
