"""`memaudit audit`: find what caused the harm. `plan`: what that will take. `calibrate`: how sure a finding is."""

from __future__ import annotations

import json
import shlex
import socket
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.attribution.calibration import incidents_needed
from memory_audit.calibration_file import read_calibration, sign_calibration
from memory_audit.counted import counted
from memory_audit.errors import AuditError, BudgetError, IncompleteError, UsageError
from memory_audit.jobs.audit_options import CalibrationSettings, Settings  # noqa: TC001 - typer reads them
from memory_audit.jobs.calibrate import calibrate as find_incidents
from memory_audit.jobs.calibrate import calibration_request
from memory_audit.jobs.cli.shared import (
    FINDINGS,
    VERSION,
    Invocation,
    Json,
    Quiet,
    Reading,
    Store,
    check_choice,
    open_keyring,
    print_json,
    print_lines,
    watched,
)
from memory_audit.jobs.clock import now_ms, publisher_ms
from memory_audit.jobs.places import check_folder, check_place
from memory_audit.jobs.plan.plan import check_plan, make_plan
from memory_audit.jobs.plan.table import plan_table, rate_lines
from memory_audit.jobs.run.groups.run import one_line
from memory_audit.jobs.run.purge.purge_run import large_removals, purge_run, unfinished_purge
from memory_audit.jobs.run.purge.sealed_run import open_sealed
from memory_audit.jobs.run.reuse import EarlierRun, last_run
from memory_audit.jobs.run.run_audit import audit_and_seal
from memory_audit.jobs.run.run_files import MARKER_FILE, REPORT_FILE, read_identity
from memory_audit.jobs.run.run_findings import RunFindings
from memory_audit.jobs.run.run_seal import SEAL_FILE, Sealer
from memory_audit.jobs.spread_options import spread_options
from memory_audit.jobs.store.lease import leased
from memory_audit.jobs.watching.log import LOG
from memory_audit.jobs.watching.progress import Reporter, say
from memory_audit.jobs.watching.status import STATUS_FILE, StatusFile
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.lineage.edges_file import read_edges
from memory_audit.provenance import durable
from memory_audit.provenance.keys import POLICY_FILE
from memory_audit.report.json import to_record
from memory_audit.report.summary import summarise
from memory_audit.report.table import render_table
from memory_audit.report.untrusted import as_line
from memory_audit.request import AuditRequest, read_events
from memory_audit.snapshot.manifest import check_dated_near

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.jobs.run.purge.purge_run import Purge
    from memory_audit.jobs.run.purge.sealed_run import SealedRun
    from memory_audit.jobs.store.store_session import StoreSession
    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["audit", "calibrate", "plan"]

MAX_TOLD = 20
"""Tenants that could not be audited, told by name."""

Address = Annotated[str | None, typer.Option(envvar="RAY_ADDRESS", help="Ray cluster; default: this machine.")]

NO_REUSE = "none"
"""Of --reuse; a run folder of that name is ./none."""

LEVELS = (0.01, 0.02, 0.05, 0.1)
"""Of significance, told of a calibration."""


@spread_options
def audit(
    *,
    context: typer.Context,
    store: Store,
    events: Annotated[Path, typer.Option(help="Events, one JSON object per line.")],
    out: Annotated[Path, typer.Option(help="Run folder; an unfinished run in it is continued.")],
    config: Annotated[Path | None, typer.Option(help="Default: memaudit.yaml where there is one.")] = None,
    reading: Reading,
    settings: Settings,
    edges: Annotated[Path | None, typer.Option(help="Estimated edges, from `memaudit lineage estimate`.")] = None,
    reuse: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Earlier run folder: what its models said is not asked again. Default: the newest sealed run of this "
            "store beside --out; none: ask all anew.",
        ),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Plan of `memaudit plan`: the audit is refused where it is of another.")
    ] = None,
    address: Address = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            help="Exit 1 on: removed (there is something to remove), or not-cleared (an event that is harmful "
            "without it too, or was not examined)."
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(help="File for the textfile collector of Prometheus' node exporter; its name ends in .prom."),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Run in this process, without Ray.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Purge at once what was found.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find which memories caused the harmful events. Changes nothing unless --apply is given.

    The run is sealed with the auditor's key in the key folder: `purge` takes no other. Flags win over memaudit.yaml;
    defaults hold where neither says it.
    """
    check_choice("--fail-on", fail_on, "removed", "not-cleared")
    if local and address is not None:
        raise UsageError("--local runs without Ray: leave out --address, or unset RAY_ADDRESS")
    check_folder(out)
    if metrics is not None:
        check_place(metrics)
    chosen, now = settings.over(config), now_ms()
    if apply:
        publisher_ms(store)  # a wrong clock is told before the work, not after it
    keyring = _auditor(reading.keys, apply=apply)
    sealer = Sealer(keyring)
    told, guessed = read_events(events), None if edges is None else read_edges(edges)
    known = None if chosen.calibration is None else read_calibration(Path(chosen.calibration), reading.policy())
    session, sealed = reading.open(store, now), None
    earlier = _earlier(reuse, out, session.snapshot, sealer) if keyring or reuse else None
    refused: AuditError | None = None
    console = terminal()
    shown = None if as_json else console
    with watched(shown, StatusFile(out / STATUS_FILE, MARKER_FILE), store, metrics, quiet=quiet):
        if apply and keyring is not None:
            check_dated_near(session.snapshot.manifest, now)
            asked = {"configuration": chosen.digest(), "events": told.digest}
            given = {"edges": guessed, "calibration": known}
            digests = {name: None if file is None else file.digest for name, file in given.items()}
            sealed = _purged_before(out, {**asked, **digests}, session, now, keyring)
        if sealed is not None:
            result = sealed.result
            say(f"the purge of {out} was published by an earlier start: what is missing after it is done now")
        else:
            if keyring is None:
                say(
                    f"{reading.keys} has no auditor's key: this run will not be sealed, and `memaudit purge` will "
                    "refuse it"
                )
            request = AuditRequest(
                snapshot=session.snapshot, events=told, config=chosen, edges=guessed, calibration=known
            )
            if plan is not None:
                check_plan(plan, request, VERSION)
            session.remember()  # now: what others publish during the run is newer, and no rollback of it
            executor = context.ensure_object(Invocation).start(request, local=local, address=address)
            audited = audit_and_seal(request, executor, out, sealer, now_ms=now, earlier=earlier)
            result = audited.result
            if audited.failed:
                refused = _not_examined(audited.failed, len(result.tenants))
            elif apply and keyring is not None:
                sealed = open_sealed(out, keyring.policy, seal=audited.seal)
    if not as_json:
        console.print(render_table(result, RunFindings(out, result)))
        print_lines(f"report: {out / REPORT_FILE}")
    command = f"memaudit purge {shlex.quote(str(out))} {shlex.quote(str(store))} --apply"
    purge = None
    if sealed is not None and result.removals:
        try:
            purge = _purge_at_once(sealed, store, reading, command)
        except AuditError as error:
            refused = error
    if as_json:  # one document, also with --apply, and where the purge is refused
        purged = {"purged": None if purge is None else purge.to_json()} if apply else {}
        print_json(to_record(result) | purged | ({} if refused is None else {"refused": str(refused)}))
    elif purge is not None:
        print_lines(*purge.lines())
    elif refused is None and result.removals:
        how = f"to remove: {command}" if keyring is not None else f"not sealed, as {reading.keys} has no auditor's key"
        print_lines(f"nothing was removed; {how}")
    if refused is not None:
        raise refused
    summary = summarise(result.tenants)
    found = {"removed": summary.removed, "not-cleared": summary.unsettled}
    if fail_on is not None and found[fail_on]:
        raise typer.Exit(FINDINGS)


def _earlier(reuse: str | None, out: Path, snapshot: VerifiedSnapshot, sealer: Sealer) -> EarlierRun | None:
    """Return the run whose answers are taken over: what carries no seal is taken over only where it is named."""
    if reuse == NO_REUSE:
        return None
    if reuse is None:
        return last_run(out, snapshot.store_id, snapshot.trust, sealer)
    return EarlierRun(Path(reuse), sealer)


@spread_options
def plan(
    *,
    store: Store,
    events: Annotated[Path, typer.Option(help="Events, one JSON object per line.")],
    config: Annotated[Path | None, typer.Option(help="Default: memaudit.yaml where there is one.")] = None,
    reading: Reading,
    settings: Settings,
    edges: Annotated[Path | None, typer.Option(help="Estimated edges, from `memaudit lineage estimate`.")] = None,
    reuse: Annotated[
        Path | None, typer.Option(help="Run folder that would be reused, or continued: what it knows is taken off.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for `memaudit audit --plan`.")] = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Estimate what an audit will take, at least and at most.

    Replays, tokens, comparisons, texts to embed, and time: least where no harm is reproduced, typical where all of it
    is, most what the settings allow. No model is loaded. Times are by the rates of earlier audits on this machine, or
    on the cluster. Changes nothing.
    """
    chosen, now = settings.over(config), now_ms()
    told, guessed = read_events(events), None if edges is None else read_edges(edges)
    known = None if chosen.calibration is None else read_calibration(Path(chosen.calibration), reading.policy())
    console, session = terminal(), reading.open(store, now)
    with Reporter(console, quiet=as_json):
        request = AuditRequest(snapshot=session.snapshot, events=told, config=chosen, edges=guessed, calibration=known)
        session.remember()
        made = make_plan(request, address or socket.gethostname(), VERSION, earlier=reuse)
    if out is not None:
        durable.replace(check_place(out), json.dumps(made.to_record(), indent=1).encode())
    if as_json:
        print_json(made.to_record())
        return
    console.print(plan_table(made))
    print_lines(*rate_lines(made))
    if out is not None:
        print_lines(f"written to {out}; use it with: memaudit audit … --plan {shlex.quote(str(out))}")


@spread_options
def calibrate(
    *,
    context: typer.Context,
    store: Store,
    events: Annotated[Path, typer.Option(help="Events labelled benign, whose output is the known good answer.")],
    out: Annotated[Path, typer.Option(help="File for the calibration; what was asked is kept in FILE.run beside it.")],
    config: Annotated[Path | None, typer.Option(help="Default: memaudit.yaml where there is one.")] = None,
    reading: Reading,
    settings: CalibrationSettings,
    address: Address = None,
    local: Annotated[bool, typer.Option("--local", help="Run in this process, without Ray.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn from clean incidents how sure an audit is.

    A clean incident is an event that the agent answers wrongly with its memories and rightly with none, in a store that
    nobody poisoned. The file is signed with the auditor's key: use it with `memaudit audit --calibration FILE`. An
    interrupted calibration is continued by the same command. Changes nothing.
    """
    place, chosen, now = check_place(out), settings.over(config), now_ms()
    keyring = open_keyring(reading.keys)
    signers = keyring.signers("auditor")
    session, told = reading.open(store, now), read_events(events)
    with Reporter(None if as_json else terminal(), quiet=quiet, log=LOG.get()):
        request = calibration_request(session.snapshot, told, chosen)
        session.remember()
        executor = context.ensure_object(Invocation).start(request, local=local, address=address)
        try:
            folder = place.with_name(f"{place.name}.run")
            found = find_incidents(request, chosen, executor, folder, Sealer(keyring), now_ms=now)
        finally:
            executor.close()
    durable.replace(place, sign_calibration(found, signers))
    incidents = len(found.incidents)
    levels = [level for level in LEVELS if incidents >= incidents_needed(level)]
    if as_json:
        print_json({
            **asdict(found.setting), "backbone": found.backbone, "judged_by": found.judged_by, "events": found.events,
            "incidents": incidents, "significances": levels, "calibration": str(out),
        })  # fmt: skip
        return
    least = f"enough for {100 * levels[0]:g} %" if levels else f"too few: {100 * LEVELS[-1]:g} % needs 9"
    if found.incidents:
        most = max(found.incidents, key=lambda incident: incident.nats)
        print_lines(
            f"the most evidence is {most.nats:.1f} nats, in {as_line(most.event_id)}: if memories were planted there, "
            "poison as strong will be missed"
        )
    print_lines(
        f"{counted(incidents, 'clean incident')} among {counted(found.events, 'event')}, {least}; 19, 49 and 99 are "
        "needed for 5, 2 and 1 %",
        f"written to {out}; use it with: memaudit audit … --calibration {shlex.quote(str(out))}",
    )


def _purge_at_once(run: SealedRun, store: Path, reading: Reading, command: str) -> Purge:
    if large := large_removals(run.result):
        raise UsageError(f"{large[0]}; look at {run.path / REPORT_FILE}, then: {command} --most")
    keyring = open_keyring(reading.keys)  # as it is now, perhaps hours after the start
    with leased(store, "audit --apply"):
        return purge_run(run, run.result, store, keyring, reading.pin, dry_run=False)


def _not_examined(failed: Mapping[str, Exception], tenants: int) -> IncompleteError:
    """Say which tenants could not be audited, and why, in one line each; return what the command ends with."""
    named = [f"tenant {as_line(tenant)}: {one_line(failed[tenant])}" for tenant in sorted(failed)[:MAX_TOLD]]
    more = len(failed) - len(named)
    if LOG.get() is None:  # else each was told as it failed
        print_lines(*named, *([f"and {counted(more, 'tenant')} more, see the report"] if more else []), stderr=True)
    again = "to try them again"
    if any(isinstance(error, BudgetError) for error in failed.values()):
        again += ", with a larger --max-run-replays for those beyond it"
    return IncompleteError(
        f"{len(failed):,} of {counted(tenants, 'tenant')} could not be audited; what was found of the others is "
        f"kept: start the same command again {again}"
    )


def _auditor(keys: Path, *, apply: bool) -> Keyring | None:
    """Return the keys that seal the run; None where the folder has not the auditor's, and nothing is to be applied.

    Raises:
        UsageError: `apply`, and a key that a purge needs is missing: told before the work, not after it.
    """
    if not apply and not (keys / POLICY_FILE).is_file():
        return None
    keyring = open_keyring(keys)
    if not apply and not keyring.holds("auditor"):
        return None
    keyring.signers("auditor")
    if apply:
        keyring.signers("log")
    return keyring


def _purged_before(
    out: Path, asked: Mapping[str, str | None], session: StoreSession, now: int, keyring: Keyring
) -> SealedRun | None:
    """Return the run in a folder where it is what this command found before its purge was published and interrupted.

    The purge made a version of its own, so the run there is of another snapshot than the newest.
    """

    def may_be(identity: Mapping[str, str]) -> bool:
        other = identity.get("snapshot") != session.snapshot.digest
        return other and all(identity.get(name) == digest for name, digest in asked.items())

    try:
        if not (out / SEAL_FILE).is_file() or not may_be(read_identity(out)):
            return None
    except UsageError:  # no run: `RunFolder` refuses it and says why
        return None
    sealed = open_sealed(out, keyring.policy)
    unfinished = unfinished_purge(out, sealed.result, session, now_ms=now)
    return sealed if may_be(sealed.identity) and unfinished is not None else None
