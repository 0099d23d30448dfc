"""Groups: which tenants are audited together, and where what is known of them lies.

    RUN/groups/6d-a1/               the tenants of buckets 6d to a1 of the store (`memory_audit.snapshot.layout`)
    RUN/groups/6d3f09c2a4e81b57/    one large tenant alone: the first digits of the SHA-256 of its name

A group is the unit of work. Its tenants lie side by side in the store, so it reads few files of it; small ones are
joined until a backbone is kept busy by their events, and a large tenant keeps no other one waiting. Which they are
follows from the store and the events alone, wherever they are audited.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.jobs.run.run_files import GROUPS, MARKER_FILE
from memory_audit.snapshot.layout import bucket_of, by_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from memory_audit.request import AuditRequest

__all__ = ["Group", "cut", "group_folders", "groups_of", "may_share_tenants"]

EVENTS = 48
"""Events of a group, from which it is not joined with others: each asks a dozen questions at once, as many in all as an
engine decodes together."""

LARGE = 20_000
"""Leaves of a tenant's log, from which it is a group of its own; and of a group's logs, as `EVENTS`."""

BASE_BYTES, LEAF_BYTES = 300 << 20, 25_000
"""Memory of a group's audit: of the process, and for each leaf (`benchmarks/attribution/large_tenant.py`)."""

_NAME = re.compile(r"[0-9a-f]{2}-[0-9a-f]{2}|[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Tenants that are audited together."""

    name: str
    tenants: tuple[str, ...]
    leaves: int
    """Of their logs."""

    @property
    def memory_bytes(self) -> int:
        """Estimate what its audit takes in main memory."""
        return BASE_BYTES + LEAF_BYTES * self.leaves


def groups_of(request: AuditRequest) -> list[Group]:
    """Return all tenants of a request in groups, those with most to read first: what is long is begun early."""
    events = {tenant: len(told) for tenant, told in request.by_tenant.items()}
    return cut({tenant: request.snapshot.log_refs[tenant].size for tenant in events}, events)


def cut(leaves: Mapping[str, int], events: Mapping[str, int] = MappingProxyType({})) -> list[Group]:
    """Return tenants in groups by what there is of each to read, and to ask a backbone about; as `groups_of`."""
    return sorted(_groups(leaves, events), key=lambda group: (-group.leaves, group.name))


def _groups(size: Mapping[str, int], asked: Mapping[str, int]) -> Iterator[Group]:
    small = [tenant for tenant in by_bucket(size) if size[tenant] < LARGE]
    for tenant in size.keys() - set(small):
        yield Group(name=hashlib.sha256(tenant.encode()).hexdigest()[:16], tenants=(tenant,), leaves=size[tenant])
    joined: list[str] = []
    events = leaves = 0
    for _, bucket in groupby(small, key=bucket_of):  # whole buckets: the same tenants lie side by side every night
        if events >= EVENTS or leaves >= LARGE:
            yield _joined(joined, leaves)
            joined, events, leaves = [], 0, 0
        for tenant in bucket:
            joined.append(tenant)
            events += asked.get(tenant, 0)
            leaves += size[tenant]
    if joined:
        yield _joined(joined, leaves)


def _joined(tenants: list[str], leaves: int) -> Group:
    name = f"{bucket_of(tenants[0]):02x}-{bucket_of(tenants[-1]):02x}"
    return Group(name=name, tenants=tuple(tenants), leaves=leaves)


def group_folders(run: Path) -> list[Path]:
    """Return the folders of the groups that a run has begun."""
    folder = run / GROUPS
    found = (path for path in folder.iterdir() if _NAME.fullmatch(path.name)) if folder.is_dir() else ()
    return sorted(path for path in found if (path / MARKER_FILE).is_file())


def may_share_tenants(folder: Path, group: str) -> bool:
    """Tell whether the group of a folder, which another run may have cut otherwise, can have a tenant of this one.

    A folder that is no group's may have any.
    """
    if not _NAME.fullmatch(folder.name) or folder.parent.name != GROUPS:
        return True
    low, high = _range(folder.name)
    least, most = _range(group)
    return low <= most and least <= high


def _range(name: str) -> tuple[str, str]:
    """Return the least and the greatest digest, 16 digits each, that a tenant of a group can have."""
    first, dash, last = name.partition("-")
    return first.ljust(16, "0"), last.ljust(16, "f") if dash else first
