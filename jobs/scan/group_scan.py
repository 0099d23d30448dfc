"""The scan of some tenants, wherever it is done: what detectors need is computed, and they look.

    SCAN/groups/NAME/    what embedder and NLI said, as of an audit's group (`memory_audit.jobs.run.run_folder`)

One tenant's error is that tenant's alone, a detector's defect included. What fails the whole scan (a model that died, a
full disk) is raised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memory_audit.errors import EntryError, VerificationError
from memory_audit.jobs.run.embeddings import embed_texts, vectors_of
from memory_audit.jobs.run.graphs import consistency_graphs
from memory_audit.jobs.run.groups.audit import of_whole_run
from memory_audit.jobs.run.run_folder import RunFolder
from memory_audit.jobs.scan.detectors import load_detector, models_of
from memory_audit.jobs.watching.progress import stage
from memory_audit.scan.finding import content_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from memory_audit.config import AuditConfig
    from memory_audit.consistency.tenant_graph import TenantGraph
    from memory_audit.entry import Entry
    from memory_audit.guard.guard import WriteGuard
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.run.groups.plan import Group
    from memory_audit.jobs.run.reuse import EarlierRun
    from memory_audit.jobs.scan.memories import Memories
    from memory_audit.models.loading import Part
    from memory_audit.scan.detector import Detector, Need, ScannedMemory
    from memory_audit.scan.finding import Finding
    from memory_audit.scan.severity import SeverityRules

__all__ = ["GroupFindings", "GroupScan", "TenantFindings"]

MAX_LINE = 300
"""Characters of why a tenant could not be scanned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFindings:
    """What detectors say of one tenant."""

    tenant: str
    memories: int = 0
    findings: tuple[Finding, ...] = ()
    failure: str | None = None
    """One line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFindings:
    """What detectors say of a group."""

    tenants: tuple[TenantFindings, ...]
    models: Mapping[str, str]
    """Role to model id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScan:
    """Implements `memory_audit.jobs.executors.executor.Work`."""

    group: Group
    memories: Memories
    detectors: tuple[str, ...]
    config: AuditConfig
    """Which models and which graph."""

    folder: Path
    identity: Mapping[str, str]
    """Of the folder."""

    now_ms: int
    severity: SeverityRules
    elsewhere: Mapping[str, int]
    """Content digest to how many tenants hold it, of those that several do."""

    unchanged: frozenset[str] = frozenset()
    """Tenants whose findings are known but for those of detectors that look outside."""

    earlier: EarlierRun | None = None
    keep: dict[str, TenantGraph] | None = None
    """Takes the tenants' graphs, in this process; None where nobody draws them."""

    guard_of: Callable[[str], WriteGuard] | None = None
    """Opens a tenant's guard in this process; None judges nothing."""

    @property
    def memory_bytes(self) -> int:
        """See `memory_audit.jobs.executors.executor.Work`."""
        return self.group.memory_bytes

    @property
    def parts(self) -> frozenset[Part]:
        """See `memory_audit.jobs.executors.executor.Work`."""
        return models_of(self.detectors)

    def __call__(self, executor: Executor) -> GroupFindings:
        """Scan the group.

        Raises:
            AuditError: what fails the whole scan; what models said is kept.
        """
        earlier = None if self.earlier is None else self.earlier.of(self.group.name)
        run = RunFolder(self.folder, self.identity, earlier=earlier)
        detectors = [load_detector(name) for name in self.detectors]
        needs = {need for detector in detectors for need in detector.needs}
        read, failed = self._read(needs)
        changed = {tenant: memory for tenant, memory in read.items() if tenant not in self.unchanged}
        graphs = self._graphs(changed, needs, executor, run)
        if self.keep is not None:
            self.keep.update(graphs)
        found = {}
        with stage("looking at tenants", len(read), label="tenant") as progress:
            for tenant, memory in read.items():
                judged = self.guard_of is not None and "guard" in needs and tenant in changed
                guard = self.guard_of(tenant) if self.guard_of is not None and judged else None
                asked = detectors if tenant in changed else [one for one in detectors if "outside" in one.needs]
                found[tenant] = self._looked(replace(memory, graph=graphs.get(tenant), guard=guard), asked)
                progress.advance()
        of_each = found | failed
        return GroupFindings(
            tenants=tuple(of_each[tenant] for tenant in self.group.tenants), models=dict(run.models)
        )  # fmt: skip

    def failed(self, error: Exception) -> GroupFindings:
        """See `memory_audit.jobs.executors.executor.Work`."""
        line = _line(error)
        tenants = (TenantFindings(tenant=tenant, failure=line) for tenant in self.group.tenants)
        return GroupFindings(tenants=tuple(tenants), models={})

    def _read(self, needs: Collection[Need]) -> tuple[dict[str, ScannedMemory], dict[str, TenantFindings]]:
        """Return tenants' memories, and what is said of those that do not verify."""
        read, failed = {}, {}
        for tenant in self.group.tenants:
            try:
                memory = self.memories.of(tenant, needs, self.now_ms)
            except (VerificationError, EntryError) as error:
                failed[tenant] = TenantFindings(tenant=tenant, failure=_line(error))
            else:
                read[tenant] = replace(memory, elsewhere=self._others(memory.entries))
        return read, failed

    def _others(self, entries: Sequence[Entry]) -> dict[str, int]:
        digests = map(content_digest, entries if self.elsewhere else ())
        return {digest: self.elsewhere[digest] - 1 for digest in digests if digest in self.elsewhere}

    def _looked(self, memory: ScannedMemory, detectors: Iterable[Detector]) -> TenantFindings:
        """Ask each detector; a detector that fails, fails the tenant and says its name."""
        by_id = {entry.entry_id: entry for entry in memory.entries}
        found: list[Finding] = []
        for detector in detectors:
            try:
                for finding in detector.scan(memory, memory.entries):
                    taxonomy = detector.kinds[finding.kind].taxonomy
                    found.append(self.severity.rate(finding, by_id[finding.entry_ids[0]], taxonomy))
            except Exception as error:
                if of_whole_run(error):
                    raise
                failure = f"detector {detector.name}: {type(error).__name__}: {_line(error)}"
                return TenantFindings(tenant=memory.tenant, memories=len(memory.entries), failure=failure[:MAX_LINE])
        return TenantFindings(tenant=memory.tenant, memories=len(memory.entries), findings=tuple(found))

    def _graphs(
        self, read: Mapping[str, ScannedMemory], needs: Collection[Need], executor: Executor, run: RunFolder
    ) -> dict[str, TenantGraph]:
        """Return the tenants' graphs, all asked together: whole, only embedded, or none, as detectors need them."""
        if not {"vectors", "graph"} & set(needs):
            return {}
        entries = {tenant: memory.entries for tenant, memory in read.items() if memory.entries}
        config = replace(self.config, graph="full" if "graph" in needs else "local")
        graphs = consistency_graphs(entries, config, executor, run)
        if "graph" not in needs:
            texts = {
                tenant: (graph.texts, [entry.response for entry in graph.entries]) for tenant, graph in graphs.items()
            }
            embed_texts((text for both in texts.values() for part in both for text in part), executor, run)
            for tenant, graph in graphs.items():
                graph.embed(*(vectors_of(part, run) for part in texts[tenant]))
        return graphs


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_LINE] or type(error).__name__
