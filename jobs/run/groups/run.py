"""A whole run: the groups of its tenants through the executor, past those that an earlier start finished.

    RUN/run.json             what this run is of: `AuditRequest.identity` (`memory_audit.request`)
    RUN/groups/*/            what is known of each group (`memory_audit.jobs.run.groups.audit`)
    RUN/result.json          the finding, written when all is known; block records and the purge add theirs
    RUN/seal.dsse.json       the auditor's word for all of these, written last (`memory_audit.jobs.run.run_seal`)

This process holds what is of the size of the tenants, not of their stores: which groups there are, and which files each
of them has.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.counted import counted
from memory_audit.errors import AuditError, BudgetError, IncompleteError
from memory_audit.jobs.graph.whole_graphs import FEWEST_ENTRIES, GRAPH, leaves_of, store_graphs
from memory_audit.jobs.run.audit_memory import search_settings
from memory_audit.jobs.run.groups.audit import GroupAudit, merged
from memory_audit.jobs.run.groups.budget import Turns
from memory_audit.jobs.run.groups.plan import group_folders, groups_of
from memory_audit.jobs.run.run_files import AT_WORK, GROUPS, MARKER_FILE, PROGRAM, read_identity, read_models
from memory_audit.jobs.run.run_folder import open_marker
from memory_audit.jobs.run.run_seal import Sealer
from memory_audit.jobs.watching.progress import say, stage, steps, tally
from memory_audit.jobs.watching.status import EVERY_S, groups_at_work
from memory_audit.provenance import durable
from memory_audit.report.confidence import calibrated
from memory_audit.report.untrusted import as_line
from memory_audit.result import AuditResult, Tally, TenantSummary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.executors.measured import WorkDone
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

        self.done: list[Mapping[str, WorkDone]] = []
        """What models did in this start, by role, in each group."""

        self.failed: dict[str, Exception] = {}
        """Tenants that could not be audited, and why."""

        self.beyond_budget: dict[str, BudgetError] = {}
        """Tenants that the run's budget left out, whole or in part, and what of them; first those that come next."""

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
        founds: dict[str, GroupFound] = {}
        results: dict[str, AuditResult] = {}
        for served in self._served(groups, results):
            done = self._done(served, executor)
            founds |= done
            for group in served:
                results.pop(group.group.name, None)
                if (result := group.result(done[group.group.name])) is not None:
                    results[group.group.name] = result
        if self.failed.keys() == self._request.by_tenant.keys() != set():
            raise self.failed[min(self.failed)]
        for found in founds.values():
            self.sealer.take(f"{GROUPS}/{found.group}", found.files)
        return self._whole(list(results.values()), started_ms)

    def _served(self, groups: Sequence[GroupAudit], results: Mapping[str, AuditResult]) -> Iterator[list[GroupAudit]]:
        """Yield what is audited together: all groups, or with a budget in each turn those that it serves.

        Args:
            groups: All of them.
            results: What groups came to by name, once it is known.
        """
        config, by_tenant = self._request.config, self._request.by_tenant
        if config.max_run_replays is None:
            yield list(groups)
            return
        turns = Turns(config.max_run_replays, by_tenant, config.max_replays)
        while more := turns.next():
            limits = {tenant: limit for tenant, limit in turns.limits.items() if tenant not in self.failed}
            served = [
                replace(group, limits={name: limits[name] for name in group.group.tenants if name in limits})
                for group in groups
                if more.intersection(group.group.tenants)
            ]
            yield served
            found = [results[group.group.name].tenants for group in served if group.group.name in results]
            turns.observe((tenant for tenants in found for tenant in tenants), more & self.failed.keys())
        left = {tenant.tenant: tenant.beyond_budget for result in results.values() for tenant in result.tenants}
        for name in turns.left_out:
            told = ", ".join(left.get(name, ()) or _names(by_tenant[name]))
            self.beyond_budget[name] = BudgetError(f"beyond the budget of {config.max_run_replays:,} replays: {told}")

    def _done(self, groups: Sequence[GroupAudit], executor: Executor) -> dict[str, GroupFound]:
        """Audit groups, past those that an earlier start finished; return what each came to, by name."""
        known = [group.finished() for group in groups]
        open_groups = [group for group, found in zip(groups, known, strict=True) if found is None]
        founds = {found.group: found for found in known if found is not None}
        if founds:
            say(f"resuming, with {len(founds)} of {counted(len(groups), 'group')} of tenants finished")
            tally().of("group").known = len(founds)
        if open_groups:
            self.sealer.open(self.path)
            open_groups = self._with_graphs(open_groups, executor)
        taken = Counter[str]()
        for found in self._each(open_groups, executor):
            founds[found.group] = found
            self.asked += found.asked
            self.done.append(found.done)
            self.failed |= found.failed
            taken.update(found.taken)
        if self._earlier is not None and open_groups:
            what = ", ".join(f"{taken[kind]:,} {kind}" for kind in ("embeddings", "comparisons", "replays"))
            say(f"taken over from {self._earlier.path}: {what}")
        return founds

    def _each(self, groups: Sequence[GroupAudit], executor: Executor) -> Iterator[GroupFound]:
        """Audit groups; one alone tells its own progress, of several is told how many tenants are done."""
        if not groups:
            return
        durable.ensure_folder(self.path / AT_WORK)
        for left in (self.path / AT_WORK).glob("*.json"):  # by a start that was killed
            left.unlink(missing_ok=True)
        sizes = {group.group.name: len(group.tenants) for group in groups}
        of_all, alone, told = sum(sizes.values()), len(groups) == 1, tally()
        told.expect("group", len(groups))
        told.expect("tenant", of_all)
        shown = _elsewhere(self.path) if alone else stage("auditing tenants", of_all, announced=True)
        with shown as progress:
            for found in executor.each([replace(group, shown=alone) for group in groups]):
                told.add(found.tally)
                told.end("group", 1)
                told.end("tenant", sizes[found.group])
                for tenant, error in found.failed.items():
                    kind = told.note(error, tenant)
                    say(f"tenant {as_line(tenant)} failed ({kind})", level="error", tenant=tenant, error=kind)
                if progress is not None:
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
        identity = {**self._request.identity, "group": group.name, PROGRAM: self._request.program}
        return GroupAudit(
            request=self._request.of(frozenset(group.tenants)), group=group, identity=identity,
            folder=self.path.absolute() / GROUPS / group.name, codes=self.sealer.codes(identity),
            earlier=None if self._earlier is None else self._earlier.of(group.name), started_ms=started_ms,
            models=self._models,
        )  # fmt: skip

    def _whole(self, results: Sequence[AuditResult], started_ms: int) -> AuditResult:
        """Return the result of the run, with every tenant."""
        request, seen = self._request, {tenant.tenant for result in results for tenant in result.tenants}
        none = AuditResult(
            run_id=request.run_id, store=request.snapshot.store_id, snapshot_version=request.snapshot.version,
            snapshot_digest=request.snapshot.digest, started_ms=started_ms, seconds=0.0,
            config={name: str(value) for name, value in request.config.canonical().items()}, models={},
            counters={"nli_pairs": 0}, calibration=calibrated(request.calibration, search_settings(request)),
            tenants=tuple(
                _not_examined(name, request.by_tenant[name], error)
                for name, error in {**self.failed, **self.beyond_budget}.items()
                if name not in seen
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


@contextmanager
def _elsewhere(run: Path) -> Iterator[None]:
    """Show what a group that is alone tells from another process, until the block ends."""
    over = threading.Event()
    with steps() as step:

        def look() -> None:
            while not over.wait(EVERY_S):
                for told in groups_at_work(run).values():
                    if (told.host, told.pid) != (socket.gethostname(), os.getpid()):
                        step(told.stage, told.done, told.total or 0)

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()


def one_line(error: Exception) -> str:
    """Return why a tenant could not be audited; what is no error of ours is named by its kind."""
    text = as_line(" ".join(str(error).split()), MAX_REASON)
    return text if isinstance(error, AuditError) else f"{type(error).__name__}: {text}"


def _not_examined(tenant: str, events: TenantEvents, error: Exception) -> TenantSummary:
    """Return what is said of a tenant that could not be audited."""
    number = len(events.harmful)
    return TenantSummary(
        tenant=tenant, entries=0, removal=RemovalSet(), not_examined=(), cost={}, part="", failure=one_line(error),
        beyond_budget=_names(events) if isinstance(error, BudgetError) else (),
        tally=Tally(
            verdicts={"not examined": number}, judged=0, harmful_before=0, harmful_after=0, harm_before=0.0,
            harm_after=0.0, harmful_without_memory=0, unsettled=number, probes=len(events.probes), probes_kept=0,
            probes_unknown=len(events.probes),
        ),
    )  # fmt: skip


def _names(events: TenantEvents) -> tuple[str, ...]:
    return tuple(f"event {event.event_id}" for event in events.harmful)
