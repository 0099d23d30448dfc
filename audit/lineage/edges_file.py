"""Estimated derivation edges as JSON lines: what `memaudit lineage estimate` proposes and `audit --edges` reads.

    {"tenant": "acme", "child": "m-7", "parent": "m-3", "weight": 0.83, "evidence": {"embedding": 0.71, "nli": 0.94}}

Proposals, not facts: nobody signed them. An audit lets them quarantine an entry and never remove one, and they make no
trust label better. `weight` is the estimated probability that the child draws on the parent. A reader MUST reject a
line with other fields, a member or an edge named twice, and entries that are not in the store or not in the order
parent, child.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from memory_audit.entry import MAX_NAME_BYTES, PARTS_PER_MILLION
from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_at_most
from memory_audit.formats.records import convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["EdgesFile", "EstimatedEdge", "check_edges", "parse_edges", "read_edges"]

MAX_EDGES_BYTES = 1 << 28
"""A million edges with their evidence."""

MAX_LINE_BYTES = 1 << 14

Name = Annotated[str, Meta(min_length=1)]


class _Line(Struct, forbid_unknown_fields=True, kw_only=True):
    """An edge as its line says it."""

    tenant: Name
    child: Name
    parent: Name
    weight: Annotated[float, Meta(ge=0, le=1)]
    evidence: dict[str, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedEdge:
    """One proposed edge: `child` draws on `parent`."""

    tenant: str
    child: str
    parent: str
    weight_ppm: int
    evidence: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Method to its score: for readers, an audit does not look at it."""

    def to_json(self) -> str:
        """Return the edge as one line of JSON, without the newline."""
        record = {
            "tenant": self.tenant, "child": self.child, "parent": self.parent,
            "weight": self.weight_ppm / PARTS_PER_MILLION, "evidence": dict(sorted(self.evidence.items())),
        }  # fmt: skip
        return json.dumps(record, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgesFile:
    """Estimated edges, and which file they are from."""

    edges: tuple[EstimatedEdge, ...]
    digest: str
    """SHA-256 (hex) of the file."""


def read_edges(path: Path) -> EdgesFile:
    """Read an edges file.

    Raises:
        UsageError: the file cannot be read, is too large, or a line breaks a rule.
    """
    raw = read_at_most(path, MAX_EDGES_BYTES)
    if len(raw) > MAX_EDGES_BYTES:
        raise UsageError(f"{path}: more than {MAX_EDGES_BYTES} bytes of estimated edges; split them by tenant")
    return EdgesFile(edges=parse_edges(raw.splitlines(), path.name), digest=hashlib.sha256(raw).hexdigest())


def parse_edges(lines: Iterable[bytes], source: str) -> tuple[EstimatedEdge, ...]:
    """Parse JSON lines; blank lines are skipped. Raises UsageError naming the source, the line and the rule broken."""
    edges: dict[tuple[str, str, str], EstimatedEdge] = {}
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        edge = _parse(raw, f"{source}, line {number}")
        if edges.setdefault((edge.tenant, edge.child, edge.parent), edge) is not edge:
            raise UsageError(f"{source}, line {number}: the edge of {edge.child!r:.80} to {edge.parent!r:.80} is twice")
    return tuple(edges.values())


def _parse(raw: bytes, where: str) -> EstimatedEdge:
    if len(raw) > MAX_LINE_BYTES:
        raise UsageError(f"{where}: {len(raw)} bytes, at most {MAX_LINE_BYTES} are allowed in one edge")
    line = convert(outside_json.decode(raw, where), _Line, where)
    for name in ("tenant", "child", "parent"):
        if len(getattr(line, name).encode()) > MAX_NAME_BYTES:
            raise UsageError(f"{where}: {name} is longer than {MAX_NAME_BYTES} bytes")
    tenant, child, parent = (unicodedata.normalize("NFC", name) for name in (line.tenant, line.child, line.parent))
    return EstimatedEdge(  # named as the store does
        tenant=tenant, child=child, parent=parent, weight_ppm=round(line.weight * PARTS_PER_MILLION),
        evidence=MappingProxyType(line.evidence),
    )  # fmt: skip


def check_edges(edges: Sequence[EstimatedEdge], snapshot: VerifiedSnapshot, source: str) -> None:
    """Check that every edge joins two live entries of one tenant, the parent logged first.

    Raises:
        UsageError: names the edge that does not fit the store.
    """
    known = set(snapshot.tenants)
    positions: dict[str, dict[str, int]] = {}
    for edge in edges:
        where = f"{source}: edge of {edge.child!r:.80} to {edge.parent!r:.80}"
        if edge.tenant not in known:
            raise UsageError(f"{where}: unknown tenant {edge.tenant!r:.80}")
        if edge.tenant not in positions:
            positions[edge.tenant] = {item.entry.entry_id: item.index for item in snapshot.log(edge.tenant).entries}
        child, parent = (positions[edge.tenant].get(name) for name in (edge.child, edge.parent))
        if child is None or parent is None:
            raise UsageError(f"{where}: not both are live entries of {edge.tenant!r:.80}; estimate the edges again")
        if parent >= child:
            raise UsageError(f"{where}: the parent was not logged before the child")
