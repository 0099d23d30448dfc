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
import sys
import unicodedata
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.entry import MAX_NAME_BYTES, PARTS_PER_MILLION
from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_at_most

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["EdgesFile", "EstimatedEdge", "check_edges", "parse_edges", "read_edges"]

MAX_EDGES_BYTES = 1 << 28
"""A million edges with their evidence."""

MAX_LINE_BYTES = 1 << 14
_FIELDS = {"tenant", "child", "parent", "weight", "evidence"}


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
    record = outside_json.decode(raw, where)
    if not isinstance(record, dict) or not record.keys() <= _FIELDS or not record.keys() >= _FIELDS - {"evidence"}:
        raise UsageError(f"{where}: expected an object with tenant, child, parent, weight, and evidence if any")
    evidence = record.get("evidence", {})
    if not isinstance(evidence, dict) or not all(_is_number(value) for value in evidence.values()):
        raise UsageError(f"{where}: evidence must map method names to numbers")
    if not _is_number(record["weight"]) or not 0.0 <= record["weight"] <= 1.0:
        raise UsageError(f"{where}: weight is {record['weight']!r:.40}, expected a number from 0 to 1")
    return EstimatedEdge(
        tenant=_name(record, "tenant", where), child=_name(record, "child", where),
        parent=_name(record, "parent", where), weight_ppm=round(record["weight"] * PARTS_PER_MILLION),
        evidence=MappingProxyType(evidence),
    )  # fmt: skip


def _name(record: Mapping[str, object], name: str, where: str) -> str:
    value = record[name]
    if not isinstance(value, str) or not value or len(value.encode(errors="replace")) > MAX_NAME_BYTES:
        raise UsageError(f"{where}: {name} is {value!r:.40}, expected the name of one")
    return unicodedata.normalize("NFC", value)  # as the store spells it


def _is_number(value: object) -> bool:
    """Tell whether a JSON value is a number that a float can hold: `math.isfinite` fails on larger whole ones."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # NaN is not


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
