"""A whole run: the groups of its tenants through the executor, past those that an earlier start finished.

    RUN/run.json             what this run is of: `AuditRequest.identity` (`memory_audit.request`)
    RUN/groups/*/            what is known of each group (`memory_audit.jobs.run.groups.audit`)
    RUN/result.json          the finding, written when all is known; block records and the purge add theirs
    RUN/seal.dsse.json       the auditor's word for all of these, written last (`memory_audit.jobs.run.run_seal`)

This process holds what is of the size of the tenants, not of their stores: which groups there are, and which files each
of them has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.counted import counted
from memory_audit.errors import AuditError, IncompleteError
from memory_audit.jobs.graph.whole_graphs import FEWEST_ENTRIES, GRAPH, leaves_of, store_graphs
from memory_audit.jobs.progress import Reporter, say, stage
from memory_audit.jobs.run.audit_memory import search_settings
from memory_audit.jobs.run.groups.audit import GroupAudit, merged
from memory_audit.jobs.run.groups.plan import group_folders, groups_of
from memory_audit.jobs.run.run_files import GROUPS, MARKER_FILE, read_identity, read_models
from memory_audit.jobs.run.run_folder import open_marker
from memory_audit.jobs.run.run_seal import Sealer
from memory_audit.report.confidence import calibrated
from memory_audit.report.untrusted import as_line
from memory_audit.result import AuditResult, Tally, TenantSummary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.run.groups.audit import GroupFound
    from memory_audit.jobs.run.groups.plan import Group
    from memory_audit.jobs.run.reuse import EarlierRun
    from memory_audit.jobs.run.run_seal import Codes
    from memory_audit.request import AuditRequest, TenantEvents

__all__ = ["GroupedRun", "one_line"]

MAX_REASON = 300
"""Characters of why a tenant could not be audited."""


class GroupedRun:
    """An open run.

    Args:
        path: The folder; made if absent.
        request: What is asked.
        earlier: A run whose comparisons and embeddings are taken over.
        sealer: Learns what the run holds; None is one without keys.

    Raises:
        UsageError: the folder holds another run, or something that is no run.
        IncompleteError: the disk is full or refuses.
    """

    def __init__(
        self, path: Path, request: AuditRequest, *, earlier: EarlierRun | None = None, sealer: Sealer | None = None
    ) -> None:
        self.path = path
        self.sealer = Sealer() if sealer is None else sealer
        self.asked = 0
        """Answers of models that came in this start."""

        self.failed: dict[str, Exception] = {}
        """Tenants that could not be audited, and why."""

        self._request, self._earlier = request, earlier
        self.sealer.note(MARKER_FILE, open_marker(path, request.identity))
        self.sealer.look(path)
        self._models = {role: name for folder in group_folders(path) for role, name in read_models(folder).items()}

    def audit(self, executor: Executor, *, started_ms: int) -> AuditResult:
        """Audit every tenant.

        Args:
            executor: Where models answer.
            started_ms: When the run was first started, Unix milliseconds.

        Raises:
            AuditError: what fails the whole run, or every tenant of it; what models said is kept.
        """
        groups = [self._audit_of(group, started_ms) for group in groups_of(self._request)]
        known = [group.finished() for group in groups]
        open_groups = [group for group, found in zip(groups, known, strict=True) if found is None]
        founds = {found.group: found for found in known if found is not None}
        if founds:
            say(f"resuming, with {len(founds)} of {counted(len(groups), 'group')} of tenants finished")
        if open_groups:
            self.sealer.open(self.path)
            open_groups = self._with_graphs(open_groups, executor)
        for found in self._each(open_groups, executor):
            founds[found.group] = found
            self.asked += found.asked
            self.failed |= found.failed
        if self.failed.keys() == self._request.by_tenant.keys() != set():
            raise self.failed[min(self.failed)]
        for found in founds.values():
            self.sealer.take(f"{GROUPS}/{found.group}", found.files)
        results = [result for group in groups if (result := group.result(founds[group.group.name])) is not None]
        return self._whole(results, started_ms)

    def _each(self, groups: Sequence[GroupAudit], executor: Executor) -> Iterator[GroupFound]:
        """Audit groups; one alone tells its own progress, of several is told how many tenants are done."""
        if len(groups) <= 1:
            yield from executor.each(groups)
            return
        of_all = sum(len(group.group.tenants) for group in groups)
        sizes = {group.group.name: len(group.group.tenants) for group in groups}
        with stage("auditing tenants", of_all, announced=True) as progress, Reporter(None):
            for found in executor.each(groups):
                progress.advance(sizes[found.group])
                yield found

    def _with_graphs(self, groups: Sequence[GroupAudit], executor: Executor) -> list[GroupAudit]:
        """Make the whole graphs of groups beforehand, where a cluster makes them quicker than each group its own."""
        request = self._request
        if not (request.config.whole_graph and executor.on_cluster and leaves_of(request) >= FEWEST_ENTRIES):
            return list(groups)
        before = None if self._earlier is None else self._earlier.path
        stored, asked = store_graphs(
            request, [group.group.tenants for group in groups], executor,
            self._graphs(self.path, request.identity),
            None if before is None else self._graphs(before, read_identity(before)),
        )  # fmt: skip
        self.asked += asked
        return [replace(group, stored=stored) for group in groups]

    def _graphs(self, run: Path, identity: Mapping[str, str]) -> tuple[Path, Codes]:
        """Return where a run keeps whole graphs, and the codes of these."""
        return run.absolute() / GRAPH, self.sealer.codes({**identity, "part": GRAPH})

    def _audit_of(self, group: Group, started_ms: int) -> GroupAudit:
        identity = {**self._request.identity, "group": group.name}
        return GroupAudit(
            request=self._request.of(frozenset(group.tenants)), group=group, identity=identity,
            folder=self.path.absolute() / GROUPS / group.name, codes=self.sealer.codes(identity),
            earlier=None if self._earlier is None else self._earlier.of(group.name), started_ms=started_ms,
            models=self._models,
        )  # fmt: skip

    def _whole(self, results: Sequence[AuditResult], started_ms: int) -> AuditResult:
        """Return the result of the run, with every tenant."""
        request, failed = self._request, self.failed
        none = AuditResult(
            run_id=request.run_id, store=request.snapshot.store_id, snapshot_version=request.snapshot.version,
            snapshot_digest=request.snapshot.digest, started_ms=started_ms, seconds=0.0,
            config={name: str(value) for name, value in request.config.canonical().items()}, models={},
            counters={"nli_pairs": 0}, calibration=calibrated(request.calibration, search_settings(request)),
            tenants=tuple(
                _not_examined(tenant, request.by_tenant[tenant], one_line(error)) for tenant, error in failed.items()
            ),
        )  # fmt: skip
        return merged([none, *results])

    def write(self, name: str, data: bytes) -> None:
        """Put a finished file into the run, whole or not at all.

        Raises:
            IncompleteError: the disk is full or refuses.
        """
        try:
            self.sealer.write(self.path, name, data)
        except IncompleteError as error:
            raise IncompleteError(f"{self.path}: {error}; free space and start the same command again") from None


def one_line(error: Exception) -> str:
    """Return why a tenant could not be audited; what is no error of ours is named by its kind."""
    text = as_line(" ".join(str(error).split()), MAX_REASON)
    return text if isinstance(error, AuditError) else f"{type(error).__name__}: {text}"


def _not_examined(tenant: str, events: TenantEvents, why: str) -> TenantSummary:
    """Return what is said of a tenant that could not be audited."""
    number = len(events.harmful)
    return TenantSummary(
        tenant=tenant, entries=0, removal=RemovalSet(), not_examined=(), cost={}, part="", failure=why,
        tally=Tally(
            verdicts={"not examined": number}, judged=0, harmful_before=0, harmful_after=0, harm_before=0.0,
            harm_after=0.0, harmful_without_memory=0, unsettled=number, probes=len(events.probes), probes_kept=0,
            probes_unknown=len(events.probes),
        ),
    )  # fmt: skip
