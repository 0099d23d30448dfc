"""The audit of one group of tenants, wherever it is done: it opens what it needs, and keeps what it finds.

    RUN/groups/6d-a1/findings/        what was found of its tenants (`memory_audit.jobs.run.run_findings`)
    RUN/groups/6d-a1/results/*.json   a summary of it, by its code (`memory_audit.report.json`)
    RUN/groups/6d-a1/search.jsonl     what its searches asked (`memory_audit.attribution.trace`)
    RUN/groups/6d-a1/finished.json    that no tenant of it failed: a second start takes this group as it is

The rest of the folder is what models said (`memory_audit.jobs.run.run_folder`). One tenant's error is that tenant's
alone: the others of its group are audited without it, and what was answered before is known. What fails the whole run
(a dead backbone, refused keys, a full disk, an erased version) is raised.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from memory_audit.attribution.trace import SearchLog
from memory_audit.counted import counted
from memory_audit.errors import AnswerError, AuditError, EventError, ScoringError, UsageError, VerificationError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_regular
from memory_audit.formats.records import convert
from memory_audit.jobs.executors.measured import MeasuredExecutor
from memory_audit.jobs.run.audit_memory import audit_memory
from memory_audit.jobs.run.run_files import AT_WORK, GROUPS, LOG_FILE
from memory_audit.jobs.run.run_findings import within
from memory_audit.jobs.run.run_folder import RunFolder
from memory_audit.jobs.run.run_seal import Part
from memory_audit.jobs.watching.progress import overheard, say
from memory_audit.jobs.watching.status import StatusFile
from memory_audit.jobs.watching.tally import Tally
from memory_audit.models.loading import EVERY_PART
from memory_audit.provenance import durable
from memory_audit.report.json import MAX_BYTES, from_json, to_json
from memory_audit.report.tables import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.executors.measured import WorkDone
    from memory_audit.jobs.graph.graph_folder import GraphFolder
    from memory_audit.jobs.run.groups.plan import Group
    from memory_audit.jobs.run.reuse import EarlierRun
    from memory_audit.jobs.run.run_seal import Codes
    from memory_audit.models.services.places import Role
    from memory_audit.request import AuditRequest
    from memory_audit.result import AuditResult

__all__ = ["GroupAudit", "GroupFound", "merged", "of_whole_run"]

FINISHED_FILE = "finished.json"
RESULTS = "results"

MAX_FINISHED_BYTES = 64 << 20
"""Of the list of a group's files: some hundred thousand shards."""

_NAME = re.compile(r"(?:[a-z]+/)?[0-9a-z]+\.[a-z]+", re.ASCII)

_OF_ONE_TENANT = (VerificationError, EventError, ScoringError, AnswerError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finished:
    """What FINISHED_FILE says."""

    result: str
    """Name of the file of RESULTS."""

    files: dict[str, str]
    """All that the folder holds: file name to SHA-256 (hex)."""

    code: str
    """Of all other fields (`memory_audit.jobs.run.run_seal`)."""

    limits: dict[str, int] | None = None
    """See `GroupAudit.limits`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFound:
    """What the audit of a group came to; what was found of its tenants stays on disk."""

    group: str
    result: str | None
    """Name of the file within the group's folder; None where every tenant failed."""

    files: Mapping[str, str]
    """What the folder holds: file name to SHA-256 (hex)."""

    asked: int = 0
    """Answers of models that came in this start."""

    failed: Mapping[str, Exception] = field(default_factory=dict)
    """Tenants that could not be audited, and why."""

    tally: Tally = field(default_factory=Tally)
    """What was done for it, failures apart."""

    done: Mapping[str, WorkDone] = field(default_factory=dict)
    """What models did in this start, by role."""

    taken: Mapping[str, int] = field(default_factory=dict)
    """What an earlier run knew: how many embeddings, comparisons, replays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAudit:
    """The audit of one group, ready to be made in any process that sees the store and the run folder."""

    request: AuditRequest
    """About the tenants of the group alone."""

    group: Group
    folder: Path
    codes: Codes
    """Of the folder."""

    identity: Mapping[str, str]
    """Of the folder."""

    models: Mapping[str, str]
    """Role to model id, of those that answered in other groups of this run."""

    earlier: EarlierRun | None
    started_ms: int
    shown: bool = True
    """Whether its progress is shown by whoever listens in this process."""

    limits: Mapping[str, int] | None = None
    """Tenant to the most replays of its audit, of those that are to be audited; None audits all, without a limit."""

    stored: GraphFolder | None = None
    """Whole graphs that were made beforehand."""

    @property
    def tenants(self) -> tuple[str, ...]:
        """Those that are to be audited."""
        return tuple(name for name in self.group.tenants if self.limits is None or name in self.limits)

    @property
    def memory_bytes(self) -> int:
        """See `memory_audit.jobs.executors.executor.Work`."""
        return self.group.memory_bytes

    @property
    def parts(self) -> frozenset[Role]:
        """See `memory_audit.jobs.executors.executor.Work`."""
        return EVERY_PART

    def __call__(self, executor: Executor) -> GroupFound:
        """Audit the group, telling RUN/at-work meanwhile.

        Raises:
            AuditError: what fails the whole run; what models said is kept.
        """
        told = StatusFile(self.folder.parent.parent / AT_WORK / f"{self.group.name}.json")
        with told, overheard(told, told.tally, shown=self.shown):
            return replace(self._found(executor), tally=told.tally)

    def _found(self, executor: Executor) -> GroupFound:
        part = Part(self.codes)
        earlier = (
            None if self.earlier is None else self.earlier.of(self.group.name)
        )  # what it reads goes with the group
        try:
            run = RunFolder(self.folder, self.identity, earlier=earlier, sealer=part, models=self.models)
        except VerificationError as error:
            return self.failed(error)
        known = _answers(run)
        if run.outcomes:
            say(f"resuming, with {counted(len(run.outcomes), 'replay')} known")
        measured = MeasuredExecutor(executor)
        results, logs, failed = self._audit(self.tenants, run, measured)
        result = None
        if results:
            data = to_json(merged(results)).encode()
            result = f"{RESULTS}/{self.codes.of(RESULTS, '', data)}.json"
            durable.ensure_folder(self.folder / RESULTS)
            run.write(result, data)
        run.write(LOG_FILE, b"".join(logs))
        if result is not None and not failed:
            code = self.codes.of(FINISHED_FILE, "", _text(result, part.files, self.limits))
            finished = {"result": result, "files": part.files, "code": code, "limits": self.limits}
            run.write(FINISHED_FILE, json.dumps(finished, indent=1).encode())
        return GroupFound(
            group=self.group.name, result=result, files=part.files, asked=_answers(run) - known, failed=failed,
            done=measured.done,
            taken={} if earlier is None else earlier.taken,
        )  # fmt: skip

    def failed(self, error: Exception) -> GroupFound:
        """Return what the group comes to where none of its tenants can be audited."""
        return GroupFound(
            group=self.group.name, result=None, files={}, failed=dict.fromkeys(self.tenants, error)
        )  # fmt: skip

    def _audit(
        self, tenants: Sequence[str], run: RunFolder, executor: Executor
    ) -> tuple[list[AuditResult], list[bytes], dict[str, Exception]]:
        """Audit tenants together, or where that fails for one of them in halves; return results, logs and failures."""
        log = SearchLog()
        try:
            result = audit_memory(
                self.request.of(tenants), executor, run, started_ms=self.started_ms, log=log, limits=self.limits,
                stored=self.stored,
            )  # fmt: skip
        except Exception as error:
            if of_whole_run(error):
                raise
            if len(tenants) == 1:
                return [], [], {tenants[0]: _sendable(error)}
            middle = len(tenants) // 2
            first, second = (self._audit(half, run, executor) for half in (tenants[:middle], tenants[middle:]))
            return first[0] + second[0], first[1] + second[1], first[2] | second[2]
        return [result], [log.data()], {}

    def finished(self) -> GroupFound | None:
        """Return what an earlier start found, where it ended and nothing was changed since; shards may be gone."""
        try:
            data = read_regular(self.folder / FINISHED_FILE, MAX_FINISHED_BYTES)
            found = convert(outside_json.decode(data, FINISHED_FILE), _Finished, FINISHED_FILE)
            code = self.codes.of(FINISHED_FILE, "", _text(found.result, found.files, self.limits))
            if (found.code, found.limits) != (code, self.limits):
                return None
            for name, digest in found.files.items():
                needed = name == found.result or name.startswith(f"{FOLDER}/")
                gone = not needed and not (self.folder / name).exists()
                if not _NAME.fullmatch(name) or not (gone or _digest(self.folder / name) == digest):
                    return None
        except (OSError, UsageError):
            return None
        files = {**found.files, FINISHED_FILE: hashlib.sha256(data).hexdigest()}
        return GroupFound(group=self.group.name, result=found.result, files=files)

    def result(self, found: GroupFound) -> AuditResult | None:
        """Read the summary of what was found of the group's tenants, as the run has it; None where all failed.

        Raises:
            VerificationError: it was changed since.
        """
        if found.result is None:
            return None
        path = self.folder / found.result
        data = durable.read_bounded(path, MAX_BYTES, str(path))
        if hashlib.sha256(data).hexdigest() != found.files[found.result]:
            raise VerificationError(f"{path}: changed since the audit wrote it; start the same command again")
        return within(from_json(data, str(path)), f"{GROUPS}/{self.group.name}")


def of_whole_run(error: Exception) -> bool:
    """Tell whether an error ends a run; else it is that of one tenant, or of what is asked about it."""
    return isinstance(error, AuditError | MemoryError) and not isinstance(error, _OF_ONE_TENANT)


def _sendable(error: Exception) -> Exception:
    """Return an error as another process can have it: some defects of a user's code hold what cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - whatever its own code raises
        return AuditError(f"{type(error).__name__}: {error}")
    return error


def merged(results: Sequence[AuditResult]) -> AuditResult:
    """Join results of one run, at least one, about different tenants."""
    counters = Counter[str]()
    for result in results:
        counters.update(result.counters)
    tenants = sorted((tenant for result in results for tenant in result.tenants), key=lambda tenant: tenant.tenant)
    return replace(
        results[0], tenants=tuple(tenants), counters=dict(sorted(counters.items())),
        models=dict(sorted((role, name) for result in results for role, name in result.models.items())),
        files=dict(sorted((name, digest) for result in results for name, digest in result.files.items())),
    )  # fmt: skip


def _answers(run: RunFolder) -> int:
    return len(run.outcomes) + len(run.weights) + len(run.vectors)


def _text(result: str, files: Mapping[str, str], limits: Mapping[str, int] | None) -> bytes:
    return json.dumps([result, files, limits], sort_keys=True).encode()


def _digest(path: Path) -> str:
    return hashlib.sha256(read_regular(path, MAX_BYTES)).hexdigest()
