"""A scan: groups of tenants are looked at where there is room, and what is found is held against the scan before.

SCAN/run.json    what it is of: a second start with the same continues, another is refused
SCAN/groups/     what embedder and NLI said (`memory_audit.jobs.scan.group_scan`)
SCAN/scan.json   what was found (`memory_audit.scan.forms.json`)
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory_audit.errors import AuditError, UsageError
from memory_audit.jobs.run.groups.plan import cut
from memory_audit.jobs.run.reuse import EarlierRun
from memory_audit.jobs.run.run_files import GROUPS
from memory_audit.jobs.run.run_folder import open_marker, resumable
from memory_audit.jobs.scan.detectors import load_detector, models_of
from memory_audit.jobs.scan.group_scan import GroupScan
from memory_audit.jobs.scan.memories import elsewhere
from memory_audit.jobs.scan.read_scan import SCAN_FILE, read_scan
from memory_audit.provenance import durable
from memory_audit.request import RUN_FORMAT
from memory_audit.scan.forms.json import to_json
from memory_audit.scan.life import track
from memory_audit.scan.result import ScannedTenant, ScanResult
from memory_audit.scan.severity import SeverityRules
from memory_audit.scan.verdicts import AUDIT, KINDS
from memory_audit.snapshot.layout import by_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from memory_audit.config import AuditConfig
    from memory_audit.consistency.tenant_graph import TenantGraph
    from memory_audit.guard.guard import WriteGuard
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.scan.memories import Memories
    from memory_audit.scan.acceptances import Acceptances
    from memory_audit.scan.finding import Finding
    from memory_audit.scan.result import KnownFinding
    from memory_audit.scan.verdicts import Verdicts

__all__ = ["ScanRequest", "last_scan", "scan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """One scan, checked."""

    version: str
    """Of this program: another one may find more."""

    source: str
    """Store id, or `SYSTEM:PLACE`."""

    memories: Memories
    detectors: tuple[str, ...]
    config: AuditConfig
    snapshot_version: int | None = None
    snapshot_digest: str | None = None
    tenants: tuple[str, ...] = ()
    """Whom to scan; none is all."""

    severity: SeverityRules = field(default_factory=SeverityRules)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Tenants to scan, and about how many memories they have.

        Raises:
            UsageError: a tenant that is not there.
        """
        sizes = self.memories.sizes
        for tenant in self.tenants:
            if tenant not in sizes:
                raise UsageError(f"no tenant {tenant!r:.80} in {self.source}")
        return {tenant: size for tenant, size in sizes.items() if not self.tenants or tenant in self.tenants}

    def identity(self) -> dict[str, str]:
        """Return what the answers in a run folder depend on."""
        settings = {
            "version": self.version, "severity": dict(self.severity.fixed), "detectors": self.detectors,
            "tenants": self.tenants, "nli": self.config.nli, "embedder": self.config.embedder,
            "neighbours": self.config.neighbours, "seed": self.config.seed,
        }  # fmt: skip
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        return {"format": RUN_FORMAT, "scan": self.source, "snapshot": self.snapshot_digest or "", "settings": digest}


def scan(  # noqa: PLR0913 - the parts of a scan
    request: ScanRequest,
    executor: Executor,
    out: Path,
    *,
    now_ms: int,
    earlier: tuple[Path, ScanResult] | None,
    accepted: Acceptances,
    verdicts: Verdicts | None = None,
    keep: dict[str, TenantGraph] | None = None,
    guard_of: Callable[[str], WriteGuard] | None = None,
) -> ScanResult:
    """Scan, and write SCAN/scan.json.

    Args:
        request: What is asked.
        executor: Where to do it; the caller closes it.
        out: The run folder.
        now_ms: Unix milliseconds.
        earlier: The scan before, with its folder: findings live on, and its models are not asked again.
        accepted: Findings that people accept.
        verdicts: Of audits, told among what detectors find.
        keep: Takes the graphs of tenants that changed, where the executor is in this process.
        guard_of: Opens a tenant's guard, in this process.

    Raises:
        UsageError: the folder holds another run.
        AuditError: it stopped; the same call continues it.
    """
    identity, sizes = request.identity(), request.sizes
    open_marker(out, identity)
    before = {} if earlier is None else {tenant.tenant: tenant for tenant in earlier[1].tenants}
    known = None
    if earlier is not None:
        with suppress(UsageError):  # one that keeps no answers
            known = EarlierRun(earlier[0])
    marks = {tenant: _mark(request.memories, tenant, identity) for tenant in sizes}
    same = frozenset(
        tenant
        for tenant, mark in marks.items()
        if guard_of is None and tenant in before and (before[tenant].content, before[tenant].failure) == (mark, None)
    )
    outside = {name for name in request.detectors if "outside" in load_detector(name).needs}
    shared = {}
    if "elsewhere" in request.detectors and len(sizes) > 1:
        shared = elsewhere(request.memories, by_bucket(sizes), now_ms)
    works = [
        GroupScan(
            group=group, memories=request.memories, detectors=request.detectors, config=request.config,
            folder=out / GROUPS / group.name, identity={**identity, "group": group.name}, now_ms=now_ms,
            elsewhere=shared, earlier=known, guard_of=guard_of, severity=request.severity,
            unchanged=same & frozenset(group.tenants), keep=keep,
        )
        for group in cut(sizes)
    ]  # fmt: skip
    models: dict[str, str] = {}
    tenants = [one for name, one in before.items() if request.tenants and name not in sizes]  # nobody looked at them
    with resumable():
        for found in executor.each(works):
            models |= found.models
            for one in found.tenants:
                last = before[one.tenant].findings if one.tenant in before else ()
                found_now = list(one.findings)
                ran = () if one.failure is not None else request.detectors
                audited = {AUDIT} if verdicts is not None and one.tenant in verdicts and ran else set()
                if one.tenant in same:
                    found_now += (item.finding for item in last if _stays(item, outside | audited))
                if verdicts is not None and audited:
                    entries = request.memories.of(one.tenant, (), now_ms).entries
                    found_now += verdicts.of(one.tenant, [entry.entry_id for entry in entries])
                tenants.append(ScannedTenant(
                    tenant=one.tenant, memories=one.memories, copies=_copies(found_now), failure=one.failure,
                    findings=track(found_now, last, now_ms=now_ms, ran={*ran, *audited}, accepted=accepted),
                    content=marks[one.tenant],
                ))  # fmt: skip
    kinds = {} if earlier is None else dict(earlier[1].kinds)  # of findings that nobody looked for now
    for each in request.detectors:
        kinds |= load_detector(each).kinds
    ran_with = {name: _with(name, models) for name in request.detectors}
    if verdicts is not None:
        kinds, ran_with = kinds | KINDS, ran_with | {AUDIT: ""}
    result = ScanResult(
        source=request.source, snapshot_version=request.snapshot_version, snapshot_digest=request.snapshot_digest,
        scanned_at_ms=now_ms, tenants=tuple(sorted(tenants, key=lambda tenant: tenant.tenant)), kinds=kinds,
        detectors=ran_with,
    )  # fmt: skip
    durable.replace(out / SCAN_FILE, to_json(result).encode())
    return result


def last_scan(out: Path, source: str) -> tuple[Path, ScanResult] | None:
    """Return the newest scan of a source beside `out`, or in it; None where there is none. What is damaged is none."""
    folder = out.absolute().parent
    files = [path for path in folder.glob(f"*/{SCAN_FILE}") if path.is_file()] if folder.is_dir() else []
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        with suppress(AuditError):
            result = read_scan(path.parent)
            if result.source == source:
                return path.parent, result
    return None


def _stays(known: KnownFinding, outside: Collection[str]) -> bool:
    """Tell whether a finding of a memory that did not change is there still, whatever happens outside of it."""
    return known.state != "fixed" and known.finding.detector not in outside


def _copies(findings: Iterable[Finding]) -> int:
    found = (finding for finding in findings if finding.kind == "copies")
    return sum(max(finding.affected, len(finding.entry_ids)) - 1 for finding in found)


def _mark(memories: Memories, tenant: str, identity: Mapping[str, str]) -> str:
    return hashlib.sha256("\0".join((memories.mark(tenant), identity["settings"])).encode()).hexdigest()


def _with(detector: str, models: Mapping[str, str]) -> str:
    """Say which models answered for a detector."""
    return ", ".join(models[role] for role in sorted(models_of([detector])) if role in models)
