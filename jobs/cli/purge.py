"""`memaudit purge`: remove what a run found, re-sign, attest. A dry run unless told otherwise."""

from __future__ import annotations

import shlex
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from memory_audit.counted import counted
from memory_audit.errors import IncompleteError, StalePlanError, UsageError
from memory_audit.jobs.cli.store import (
    DEFAULT_KEYS,
    Json,
    Keys,
    PinFile,
    Store,
    check_pin_place,
    known_pin,
    print_json,
    remember,
)
from memory_audit.jobs.clock import now_ms, publisher_ms
from memory_audit.jobs.run.attestation import ATTESTATION_FILE, attest_run, is_attested
from memory_audit.jobs.run.run_folder import read_identity
from memory_audit.jobs.run.sealed_run import open_sealed
from memory_audit.provenance.keys import load_keyring
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.publishing.purify import purify, read_purified
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from memory_audit.jobs.run.sealed_run import SealedRun
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.result import AuditResult
    from memory_audit.snapshot.pin import Pin
    from memory_audit.snapshot.publishing.purify import Purified
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["large_removals", "purge", "purge_run", "unfinished_purge"]

MOST_SHARE = 0.5
"""Of a tenant's memories: a run that removes more of them is not applied without being told so again."""


def purge(
    run: Annotated[Path, typer.Argument(help="Finished run folder.")],
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    pin: PinFile = None,
    *,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="Also what derives from a removed memory and was quarantined.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Really remove; without it, only show what would be.")] = False,
    most: Annotated[bool, typer.Option("--most", help="Also where more than half of a tenant's memories go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what a run found.

    Tombstones are appended, the live view is rewritten and re-signed. Changes nothing unless --apply is given. A run
    that its audit did not seal, or that was changed since, is refused.
    """
    sealed = _sealed(run, store, load_keyring(keys).policy)
    result = sealed.result.with_quarantined() if quarantined else sealed.result
    large = large_removals(result)
    if large and apply and not most:
        raise UsageError(f"{large[0]}; look at the report, and add --most to remove them all the same")
    purged = purge_run(sealed, result, store, keys, pin, dry_run=not apply, quiet=as_json)
    if as_json:
        print_json(purged)
    if large and not apply and not as_json:
        for line in large:
            Console(soft_wrap=True).print(line, markup=False, highlight=False)


def large_removals(result: AuditResult) -> list[str]:
    """Say of which tenants a run removes so much that it is more likely a mistake than a finding."""
    removals = result.removals
    return [
        f"{len(removals[tenant.tenant])} of {counted(tenant.entries, 'memory')} of {as_line(tenant.tenant)} would be "
        "removed: a set that is most of a store is seldom the cause"
        for tenant in result.tenants
        if len(removals.get(tenant.tenant, ())) > MOST_SHARE * tenant.entries
    ]


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


def purge_run(
    run: SealedRun,
    result: AuditResult,
    store: Path,
    keys: Path,
    pin: Path | None,
    *,
    dry_run: bool,
    quiet: bool,
) -> dict[str, object]:
    """Remove, attest and remember what a run found, and say so unless `quiet`; return it as `--json` shows it.

    `result` is the run's, with the quarantined where they are to go.
    """
    now = now_ms() if dry_run else publisher_ms(store)
    keyring, console = load_keyring(keys), Console(soft_wrap=True, quiet=quiet)
    removals = result.removals
    known = known_pin(store, pin, keyring.policy, now)
    snapshot = open_snapshot(store, keyring.policy, now_ms=now, pin=known, check_expiry=False)
    if snapshot.store_id != result.store:
        raise UsageError(f"{run.path} audited another store than {store}")
    purified = None if dry_run else unfinished_purge(run.path, result, snapshot, known, now_ms=now)
    if snapshot.digest != result.snapshot_digest and purified is None:
        raise StalePlanError(
            f"{store} is at version {snapshot.version}, {run.path} audited version {result.snapshot_version}: "
            "audit again"
        )
    if not removals:  # a clean night, and no mistake
        console.print(f"{run.path} found nothing to remove: {store} stays as it is", markup=False, highlight=False)
        return {"version": snapshot.version, "published": False, "digest": snapshot.digest, "removed": []}
    if not dry_run:
        check_pin_place(pin)
    if purified is None:
        extra, taxonomy = run.block_records_of(result)
        purified = purify(
            store, snapshot, removals, keyring, run_id=result.run_id, now_ms=now,
            config={**result.config, **taxonomy}, models=result.models, extra=extra, dry_run=dry_run,
        )  # fmt: skip
    if not dry_run:
        attest_run(run, purified, keyring, now_ms=now)
        remember(open_snapshot(store, keyring.policy, now_ms=now_ms()), pin, published=purified.version)
    verb = "removed" if purified.published else "would remove"
    for item in purified.removed:
        console.print(
            f"{verb} {as_line(item.tenant)}/{as_line(item.entry_id)}: {as_line(item.reason, 200)}",
            markup=False, highlight=False,
        )  # fmt: skip
    if result.config.get("hazards") == "off":
        console.print(
            "the run read no hazards: these tombstones keep the ids out and no paraphrase", markup=False,
            highlight=False,
        )  # fmt: skip
    if purified.published:
        console.print(
            f"version {purified.version} published with {counted(purified.entries, 'memory')}; attestation: "
            f"{run.path / ATTESTATION_FILE}; check both with: memaudit verify {shlex.quote(str(store))} "
            f"--attestation {shlex.quote(str(run.path / ATTESTATION_FILE))}",
            markup=False, highlight=False,
        )  # fmt: skip
        console.print(
            f"older versions and {run.path} still hold the text of what was removed; to erase the versions: "
            f"memaudit vacuum {shlex.quote(str(store))}", markup=False, highlight=False,
        )  # fmt: skip
    else:
        console.print("dry run: nothing was changed; add --apply to remove", markup=False, highlight=False)
    return {
        "version": purified.version, "published": purified.published, "digest": purified.digest,
        "removed": [{"tenant": r.tenant, "entry_id": r.entry_id, "reason": r.reason} for r in purified.removed],
    }  # fmt: skip


def unfinished_purge(
    run: Path, result: AuditResult, snapshot: VerifiedSnapshot, known: Pin | None, *, now_ms: int
) -> Purified | None:
    """Return what a purge of this run published before it was interrupted, where it is what is asked for.

    It is the version right after the audited one: others may have published since. Nothing can be said of it once a
    vacuum erased it.

    Args:
        run: The run folder.
        result: What the run found, with the quarantined where they are to go.
        snapshot: The newest version of the store.
        known: What this user saw last of it.
        now_ms: Clock, Unix milliseconds.

    Returns:
        None also where nothing is left to do: it is attested, and pinned.
    """
    version = result.snapshot_version + 1
    if not snapshot.manifest.oldest <= version <= snapshot.version:
        return None
    unseen = known is None or known.version < version
    after = snapshot
    if version != snapshot.version:
        after = open_snapshot(snapshot.path, snapshot.trust, now_ms=now_ms, version=version, check_expiry=False)
    if not unseen and is_attested(run, after):
        return None
    purified = read_purified(after, result.run_id, result.snapshot_digest)
    asked = {(tenant, entry_id) for tenant, entries in result.removals.items() for entry_id in entries}
    return purified if purified and {(item.tenant, item.entry_id) for item in purified.removed} == asked else None
