"""Traces of a store's agents made an events file: read into a spool, labelled, resolved, written in one step.

What was retrieved is looked up in the store. An event whose documents are resolved by less than a stated share is left
out, and where all of them together are, nothing is written: an audit of events that lack memories would blame others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory_audit.errors import EventError
from memory_audit.jobs.traces.spool import Spool, digest_of
from memory_audit.jobs.traces.trace_files import records_of
from memory_audit.jobs.watching.progress import stage
from memory_audit.provenance import durable
from memory_audit.traces.harm import label_of
from memory_audit.traces.read import read_record
from memory_audit.traces.resolution import Memories
from memory_audit.traces.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from memory_audit.jobs.watching.progress import Stage
    from memory_audit.snapshot.reader import VerifiedSnapshot
    from memory_audit.traces.harm import HarmRule, Label
    from memory_audit.traces.records import Reading, Score, Span

__all__ = ["Imported", "Labels", "import_traces"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """How harm is known."""

    harmful: Sequence[HarmRule] = ()
    benign: Sequence[HarmRule] = ()
    by_trace: Mapping[str, Label] = field(default_factory=dict)
    """Of a CSV file: what it says comes first."""


@dataclass(slots=True, kw_only=True)
class Imported:
    """What an import read and wrote."""

    read: Mapping[str, int] = field(default_factory=dict)
    """Files, records, spans, traces and scores, and records that were not understood."""

    events: Counter[str] = field(default_factory=Counter)
    """By label."""

    left_out: Counter[str] = field(default_factory=Counter)
    """Traces by why they are no events."""

    resolved: Counter[str] = field(default_factory=Counter)
    """Documents of the labelled traces, by the means of their resolution."""

    unresolved: int = 0
    lost: int = 0
    """Documents that spans had and lost: at least so many."""

    truncated: int = 0
    """Labelled traces with such spans."""

    without_retrieval: int = 0
    """Events whose trace does not say what was retrieved."""

    @property
    def documents(self) -> int:
        """Documents of the labelled traces."""
        return self.resolved.total() + self.unresolved + self.lost

    @property
    def share(self) -> float | None:
        """Share of them that is resolved; None where there are none."""
        return self.resolved.total() / self.documents if self.documents else None


def import_traces(  # noqa: PLR0913 - where from, where to, and how it is read, labelled and judged
    files: Sequence[Path],
    snapshot: VerifiedSnapshot,
    out: Path,
    *,
    reading: Reading,
    labels: Labels,
    tenant: str | None,
    least: float,
) -> Imported:
    """Make an events file of trace files.

    Args:
        files: Of any of the known formats, in any order; the same command continues where it was killed.
        snapshot: The store of the agents' memories.
        out: The events file; a spool lies beside it until it is written.
        reading: How the traces are read.
        labels: How harm is known.
        tenant: Whose traces all of them are; None where `reading` says which attribute names the tenant.
        least: Share of the documents that must be resolved, of each event and of all together.

    Raises:
        EventError: a file that cannot be read, no span in all of them, no labelled trace of a tenant of the store, or
            too few documents resolved; nothing is written.
        IncompleteError: the disk.
    """
    by_digest = {digest_of(file): file for file in files}
    with Spool(out.with_name(f".{out.name}.spool"), reading, by_digest) as spool:
        with stage("reading traces") as progress:
            for digest, file in by_digest.items():
                if not spool.has(digest):
                    spool.take(digest, _read(file, reading, progress))
        found = Imported(read=spool.counts())
        if not found.read["spans"]:
            spool.remove()
            raise EventError("no spans in these files; expected OTLP/JSON, or an export of Phoenix or Langfuse")
        try:
            durable.replace(out, _lines(spool, snapshot, found, labels, tenant, least))
        except EventError:
            spool.remove()
            raise
        spool.remove()
    return found


def _read(file: Path, reading: Reading, progress: Stage) -> Iterator[Iterator[Span | Score]]:
    for record in records_of(file):
        yield read_record(record, reading)
        progress.advance()


def _lines(  # noqa: PLR0913, PLR0917 - as above
    spool: Spool, snapshot: VerifiedSnapshot, found: Imported, labels: Labels, tenant: str | None, least: float
) -> Iterator[bytes]:
    """Yield the lines of the events file, and count; raise at the end where they must not be used."""
    memories: dict[str, Memories] = {}
    with stage("making events", found.read["traces"]) as progress:
        for trace_id, owner in spool.traces():
            progress.advance()
            label = labels.by_trace.get(trace_id) or label_of(spool.scores(trace_id), labels.harmful, labels.benign)
            name = owner if tenant is None else tenant
            if label is None:
                found.left_out["no label"] += 1
            elif name not in snapshot.log_refs:
                found.left_out["unknown tenant" if name else "no tenant"] += 1
            else:
                if name not in memories:
                    memories = {name: _memories(snapshot, name)}  # traces come in order of tenant
                trace = Trace(spool.spans(trace_id))
                resolution = trace.resolve(memories[name])
                if resolution is not None:
                    found.resolved.update(resolution.by)
                    found.unresolved += resolution.unresolved
                    found.lost += resolution.lost
                    found.truncated += resolution.lost > 0
                event = trace.event(trace_id, name, label, resolution, least)
                if isinstance(event, str):
                    found.left_out[event] += 1
                    continue
                found.events[event.harm] += 1
                found.without_retrieval += event.retrieved is None
                yield event.to_json().encode() + b"\n"
    if found.share is not None and found.share < least:
        lost = f"; {found.lost} were lost to a span's limit of attributes" if found.lost else ""
        raise EventError(
            f"{found.resolved.total()} of {found.documents} retrieved documents are known memories "
            f"({found.share:.1%}), {least:.0%} are needed{lost}: no cause could be named, and nothing was written"
        )
    if not found.events:
        why = ", ".join(f"{why}: {count:,}" for why, count in found.left_out.most_common())
        raise EventError(f"no trace became an event ({why}); nothing was written")


def _memories(snapshot: VerifiedSnapshot, tenant: str) -> Memories:
    return Memories(
        (*snapshot.entries(tenant), *snapshot.quarantined(tenant)),
        gone={stone.entry_id for stone in snapshot.tombstones(tenant)},
    )
