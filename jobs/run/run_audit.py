"""From files on disk to a finished run folder: open the store, start the models, audit, write result and report.

The clock is read by the caller. Nothing here changes the store.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import time
from pathlib import Path
from typing import TYPE_CHECKING

from memory_audit.counted import counted
from memory_audit.errors import EventError, UsageError
from memory_audit.events import parse_events
from memory_audit.formats.outside_file import read_at_most, read_regular
from memory_audit.guard.blocks.hazard import load_taxonomy
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.executors.replay_group import Program
from memory_audit.jobs.run.audit_memory import audit_memory, check_events
from memory_audit.jobs.run.run_folder import RESULT_FILE, RUN_FORMAT, RunFolder
from memory_audit.lineage.edges_file import check_edges
from memory_audit.models.backbone.generator_http import HttpSettings
from memory_audit.models.loading import ModelSpecs, named_backbone, prepare
from memory_audit.report.html import render_html
from memory_audit.report.json import MAX_BYTES, from_json, to_json

if TYPE_CHECKING:
    from memory_audit.config import AuditConfig
    from memory_audit.events import Event
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.progress import Reporter
    from memory_audit.jobs.run.reuse import EarlierRun
    from memory_audit.jobs.run.run_seal import Sealer
    from memory_audit.lineage.edges_file import EstimatedEdge
    from memory_audit.models.weights.cache import Progress
    from memory_audit.result import AuditResult
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = [
    "RESULT_FILE", "check_input", "make_executor", "model_specs", "name_backbone", "prepare_models", "read_events",
    "read_result", "run_audit",
]  # fmt: skip

REPORT_FILE = "report.html"
MAX_EVENTS_BYTES = 1 << 30


def read_events(path: Path) -> tuple[tuple[Event, ...], str]:
    """Read an events file.

    Returns:
        The events and the SHA-256 (hex) of the file.

    Raises:
        UsageError: the file cannot be read; an EventError where it is too large, or a line breaks a rule.
    """
    raw = read_at_most(path, MAX_EVENTS_BYTES)
    if len(raw) > MAX_EVENTS_BYTES:
        raise EventError(f"{path}: more than {MAX_EVENTS_BYTES} bytes; split it by tenant")
    events = tuple(parse_events(raw.splitlines(keepends=True), path.name))
    if not events:
        raise EventError(f"{path}: no events in it")
    return events, hashlib.sha256(raw).hexdigest()


def name_backbone(config: AuditConfig) -> AuditConfig:
    """Put the name of this machine's packaged backbone where `packaged` stands: a run's identity says what was run."""
    return dataclasses.replace(config, backbone=named_backbone(config.backbone))


def model_specs(config: AuditConfig) -> ModelSpecs:
    """Return which models a configuration names."""
    http = HttpSettings(api_key_env=config.backbone_key_env or "")
    return ModelSpecs(backbone=config.backbone, nli=config.nli, embedder=config.embedder, http=http)


def make_executor(specs: ModelSpecs, *, local: bool, address: str | None, replicas: int = 0) -> Executor:
    """Return the executor; Ray is imported only when it is used.

    Args:
        specs: The models.
        local: In this process, whatever the address.
        address: Of the Ray cluster; None starts one here.
        replicas: Of the backbone; 0 for as many as `GpuShares` says.

    Raises:
        UsageError: no cluster at the address.
    """
    if local:
        return LocalExecutor(specs)
    from memory_audit.jobs.executors.on_ray import RayExecutor  # noqa: PLC0415 - importing Ray takes seconds

    return RayExecutor(specs, address=address, replicas=replicas)


def check_input(
    snapshot: VerifiedSnapshot,
    events: tuple[tuple[Event, ...], str],
    config: AuditConfig,
    edges: tuple[tuple[EstimatedEdge, ...], str] | None = None,
) -> bool:
    """Check all that a run is told, before any model or cluster is started for it.

    Returns:
        True where an event is harmful; else no model will be asked.

    Raises:
        UsageError: events or edges that do not fit the store, an agent or a harm scorer that cannot be built, a
            taxonomy that cannot be read.
    """
    harmful = check_events(snapshot, events[0])
    Program.of(config.agent, config.harm, config.seed).build()
    _taxonomy_digest(config)
    if edges is not None:
        check_edges(edges[0], snapshot, "estimated edges")
    return bool(harmful)


def run_audit(  # noqa: PLR0913, PLR0917 - the parts of a run
    snapshot: VerifiedSnapshot,
    events: tuple[tuple[Event, ...], str],
    config: AuditConfig,
    executor: Executor,
    out: Path,
    reporter: Reporter,
    *,
    now_ms: int,
    edges: tuple[tuple[EstimatedEdge, ...], str] | None = None,
    earlier: EarlierRun | None = None,
    sealer: Sealer | None = None,
) -> AuditResult:
    """Audit and write RUN/result.json and RUN/report.html.

    Args:
        snapshot: Verified.
        events: From `read_events`.
        config: What to do.
        executor: Where to do it; the caller closes it.
        out: The run folder.
        reporter: Progress.
        now_ms: When the run started, Unix milliseconds.
        edges: From `read_edges`: derivation edges that somebody estimated.
        earlier: A run whose comparisons and embeddings are taken over.
        sealer: Learns what the run holds; the caller seals it. None is one without keys.

    Raises:
        UsageError: input that does not fit; nothing was written.
        VerificationError: the folder holds answers that no start of this run with these keys wrote.
        IncompleteError: the run stopped; the same call continues it.
    """
    check_input(snapshot, events, config, edges)
    identity = {
        "format": RUN_FORMAT,
        "configuration": config.digest(),
        "snapshot": snapshot.digest,
        "events": events[1],
        **({} if edges is None else {"edges": edges[1]}),
        **_own_code(config),
        **_taxonomy_digest(config),
    }
    run = RunFolder(out, identity, earlier=earlier, sealer=sealer)
    run_id = hashlib.sha256("".join(identity.values()).encode()).hexdigest()[:16]
    if run.outcomes:
        reporter.say(f"resuming, with {counted(len(run.outcomes), 'replay')} known")
    finished, known = _finished(run, run_id), _answers(run)
    started = time.monotonic()
    result = audit_memory(
        snapshot, events[0], config, executor, run, reporter, run_id=run_id,
        started_ms=now_ms if finished is None else finished.started_ms, edges=() if edges is None else edges[0],
    )  # fmt: skip
    seconds = time.monotonic() - started
    if finished is not None:  # a start that asked no model adds nothing to what the run took
        seconds = finished.seconds + (seconds if _answers(run) != known else 0.0)
    result = dataclasses.replace(result, seconds=round(seconds, 3))
    run.write(RESULT_FILE, to_json(result).encode())
    run.write(REPORT_FILE, render_html(result).encode())
    return result


def _finished(run: RunFolder, run_id: str) -> AuditResult | None:
    """Return what the run in a folder found when it was finished before; None also where that cannot be read."""
    path = run.path / RESULT_FILE
    try:
        data = path.read_bytes()
        result = from_json(data, str(path))
    except (OSError, UsageError):  # it is written anew
        return None
    return result if result.run_id == run_id and run.sealer.vouches(RESULT_FILE, data) else None


def _answers(run: RunFolder) -> tuple[int, int, int]:
    """Count what models answered."""
    return len(run.outcomes), len(run.weights), len(run.vectors)


def _own_code(config: AuditConfig) -> dict[str, str]:
    """Return the digests of the user's own agent and scorer: a configuration names them, and their code may change.

    What they import is not looked at.
    """
    kinds = {"agent code": config.agent.get("kind"), "harm code": config.harm.get("kind")}
    digests = {what: _source_digest(str(kind)) for what, kind in kinds.items()}
    return {what: digest for what, digest in digests.items() if digest is not None}


def _taxonomy_digest(config: AuditConfig) -> dict[str, str]:
    """Return the digest of the user's own taxonomy, where hazards are read: a configuration names the file alone.

    Raises:
        UsageError: it cannot be read, or breaks a rule.
    """
    if config.taxonomy is None or config.hazards == "off":
        return {}
    return {"taxonomy": load_taxonomy(Path(config.taxonomy)).digest}


def _source_digest(kind: str) -> str | None:
    """Return the SHA-256 (hex) of the module's file; None for a built-in kind, and for a module without a source."""
    module, colon, _ = kind.partition(":")
    if not colon:
        return None
    try:
        file = inspect.getsourcefile(importlib.import_module(module))
        return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except (TypeError, OSError):  # a module of the interpreter, or one in an archive
        return None


def read_result(run: Path) -> AuditResult:
    """Read a finished run's result, by the word of a file that anybody may have written: to show, not to act upon.

    Raises:
        UsageError: no such run, not finished, or a damaged file.
    """
    path = run / RESULT_FILE
    if not path.is_file():
        hint = "it is not finished: start the same audit again" if (run / "run.json").is_file() else "no run there"
        raise UsageError(f"{run}: no {RESULT_FILE} ({hint})")
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    return from_json(data, str(path))


def prepare_models(config: AuditConfig, progress: Progress) -> None:
    """Assemble the packaged weights that the configuration names, with progress, before any actor starts."""
    prepare(model_specs(config), progress, hazards=config.hazards != "off", behaviours=config.hazards != "off")
