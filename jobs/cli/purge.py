"""`memaudit purge`: remove what a run found, or put it in quarantine; and `release` out of it. Dry runs unless told."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.counted import counted
from memory_audit.errors import IncompleteError, StalePlanError, UsageError
from memory_audit.jobs.cli.shared import (
    DEFAULT_KEYS,
    FINDINGS,
    Json,
    Keys,
    PinFile,
    SourceOptions,
    Store,
    Wait,
    as_signed,
    open_keyring,
    print_json,
    print_lines,
)
from memory_audit.jobs.clock import now_ms, publisher_ms
from memory_audit.jobs.connect.address import parse_address, parse_options
from memory_audit.jobs.connect.removal.of_run import Asked, take_out
from memory_audit.jobs.run.purge.purge_run import large_removals, published_purge, purge_run
from memory_audit.jobs.run.purge.sealed_run import open_sealed
from memory_audit.jobs.run.run_files import read_identity
from memory_audit.jobs.store.lease import leased
from memory_audit.jobs.store.store_session import StoreSession, check_pin_place
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.publishing.release import quarantined_by
from memory_audit.snapshot.publishing.release import release as put_back
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from memory_audit.jobs.run.purge.sealed_run import SealedRun
    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.result import AuditResult
    from memory_audit.snapshot.publishing.purify import Withdrawal

__all__ = ["purge", "release"]


def purge(
    run: Annotated[Path, typer.Argument(help="Finished run folder.")],
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    pin: PinFile = None,
    *,
    quarantine: Annotated[
        bool,
        typer.Option(
            "--quarantine",
            help="Remove nothing: keep what the run names, also what it proposes only to quarantine, where no agent "
            "reads it.",
        ),
    ] = False,
    doubtful: Annotated[
        bool, typer.Option("--doubtful", help="Also remove what the run proposes only to quarantine.")
    ] = False,
    suspected: Annotated[
        bool, typer.Option("--suspected", help="With --quarantine: also what the run only suspects.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Really do it; without it, only show what would be.")] = False,
    most: Annotated[bool, typer.Option("--most", help="Also where more than half of a tenant's memories go.")] = False,
    to: Annotated[
        str | None, typer.Option("--to", help="Also take it out of the system that it came from, SYSTEM:PLACE.")
    ] = None,
    option: SourceOptions = None,
    backup_to: Annotated[
        str | None,
        typer.Option(help="With --to: public key that the backup is encrypted for, of age or ssh, or a file of such."),
    ] = None,
    erase: Annotated[
        bool, typer.Option("--erase", help="With --to: also rewrite its files, and search their raw bytes.")
    ] = False,
    context: Annotated[
        bool,
        typer.Option("--context", help="With --to: also what its owners said last, if memories are made of it."),
    ] = False,
    wait: Wait = 0.0,
    as_json: Json = False,
) -> None:
    """Remove what a run found, or put it in quarantine.

    Tombstones are appended, the live view is rewritten and re-signed. Changes nothing unless --apply is given. A run
    that its audit did not seal, or that was changed since, is refused. What the run has in quarantine can be removed
    later; what was released stays.

    With --to, memories are taken out of the agent's own system, too. A backup is encrypted first; side tables are
    cleaned; a fresh process then looks for what was removed. A signed receipt in the run folder says what it found.
    Exit code 1: it leaves something to a person. The same command continues one that was stopped.
    """
    address = None if to is None else parse_address(to, parse_options(option or ()))
    if address is None and (option or backup_to or erase or context):
        raise UsageError("--option, --backup-to, --erase and --context say how --to does it, which is missing")
    if address is not None and quarantine:
        raise UsageError("--to takes memories out of the agent's system for good: it does not go with --quarantine")
    asked = None if address is None else Asked.of(
        address, backup_to=backup_to, context=context, erase=erase, apply=apply
    )  # fmt: skip
    if suspected and not quarantine:
        raise UsageError("--suspected: what a run only suspects is quarantined, with --quarantine, and never removed")
    keyring = open_keyring(keys)
    sealed = _sealed(run, store, keyring.policy)
    result = sealed.result.with_quarantined() if quarantine or doubtful else sealed.result
    result = result.with_suspected() if suspected else result
    large = large_removals(result)
    if large and apply and not most:
        raise UsageError(f"{large[0]}; look at the report, and add --most to purge them all the same")
    operation: Withdrawal = "quarantine" if quarantine else "purify"
    with leased(store, "purge", wait_s=wait) if apply else nullcontext():
        told, lines = _purged(sealed, result, store, keyring, pin, operation, apply=apply, again=asked is not None)
        clean = True
        if asked is not None:
            taken = take_out(asked, sealed.path, result, store, keyring, pin, apply=apply)
            told, lines, clean = {**told, "withdrawal": taken.told}, [*lines, *taken.lines], taken.is_clean
    if as_json:
        print_json(told)
    else:
        print_lines(*lines, *(() if apply else large))
    if not clean:
        raise typer.Exit(FINDINGS)


def release(
    store: Store,
    entries: Annotated[list[str] | None, typer.Argument(help="Ids of memories in quarantine.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Whose they are.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Id of a run: all that it put in quarantine.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the signed log.")] = "released",
    keys: Keys = DEFAULT_KEYS,
    pin: PinFile = None,
    *,
    apply: Annotated[
        bool, typer.Option("--apply", help="Really put back; without it, only show what would be.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Put memories back that are in quarantine.

    They are live again as they were, each in its place, and their paraphrases are no longer refused. What is live
    already stays so. Changes nothing unless --apply is given.
    """
    if (run is None) == (not entries) or (tenant is None) != (not entries):
        raise UsageError("name the run with --run, or ids of memories and their --tenant")
    now, keyring = publisher_ms(store) if apply else now_ms(), open_keyring(keys)
    session = StoreSession.open(store, keyring.policy, pin, now_ms=now, check_expiry=False)
    if run is not None:
        named = quarantined_by(session.snapshot, as_signed(run, "--run"))
    else:
        named = {as_signed(tenant or "", "--tenant"): {as_signed(name, "an entry's id") for name in entries or ()}}
    if apply:
        check_pin_place(pin)
    reason = as_signed(reason, "--reason")
    done = put_back(store, session.snapshot, named, keyring, reason=reason, now_ms=now, dry_run=not apply)
    if apply:
        session.remember_published(None if done.published is None else done.published.version)
    shown = session.snapshot if done.published is None else done.published
    if as_json:
        print_json({
            "version": shown.version, "published": done.published is not None, "digest": shown.digest,
            "released": [
                {"tenant": s.tenant, "entry_id": s.entry_id, "reason": s.reason, "run_id": s.run_id} for s in done.ended
            ],
        })  # fmt: skip
        return
    verb = "would release" if done.published is None else "released"
    lines = [
        f"{verb} {as_line(s.tenant)}/{as_line(s.entry_id)}, quarantined by run {as_line(s.run_id)}: "
        f"{as_line(s.reason, 200)}"
        for s in done.ended
    ]
    if done.published is not None:
        lines.append(f"version {shown.version} published with {counted(done.published.entries, 'memory')}")
    elif lines:
        lines.append("dry run: nothing was changed; add --apply to release")
    else:
        lines.append(f"none of that is in quarantine: {store} stays as it is")
    print_lines(*lines)


def _purged(
    run: SealedRun, result: AuditResult, store: Path, keyring: Keyring, pin: Path | None, operation: Withdrawal, *,
    apply: bool, again: bool,
) -> tuple[dict[str, object], list[str]]:  # fmt: skip
    """Purge, and say so; with `again`, one that was done is left at that."""
    try:
        done = purge_run(run, result, store, keyring, pin, operation=operation, dry_run=not apply)
    except StalePlanError:
        session = StoreSession.open(store, keyring.policy, pin, now_ms=now_ms(), check_expiry=False)
        if not again or (earlier := published_purge(result, session, now_ms=now_ms())) is None:
            raise
        return {"version": earlier.version}, [f"purged before, as version {earlier.version} of {store}"]
    return done.to_json(), done.lines()


def _sealed(run: Path, store: Path, trust: TrustPolicy) -> SealedRun:
    """Open a run; one that is not sealed, and whose audit cannot be finished as the store has changed, is stale."""
    try:
        return open_sealed(run, trust)
    except IncompleteError:
        newest = open_snapshot(store, trust, now_ms=now_ms(), check_expiry=False)
        if read_identity(run).get("snapshot") != newest.digest:
            raise StalePlanError(
                f"{run} is not sealed, and {store} is at version {newest.version} since: audit again"
            ) from None
        raise
