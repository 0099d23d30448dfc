"""A purge: what a sealed run found is removed from its store or put in quarantine, re-signed and attested.

One that stopped is finished. What a run put in quarantine can be removed later, also where others published since.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.counted import counted
from memory_audit.errors import StalePlanError, UsageError
from memory_audit.jobs.clock import now_ms, publisher_ms
from memory_audit.jobs.run.purge.attestation import attest_run, attestation_file, is_attested
from memory_audit.jobs.store.store_session import StoreSession, check_pin_place
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.publishing.purify import purify, read_purified
from memory_audit.snapshot.publishing.release import quarantined_by
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.jobs.run.purge.sealed_run import SealedRun
    from memory_audit.provenance.keys import Keyring
    from memory_audit.result import AuditResult
    from memory_audit.snapshot.publishing.purify import Purified, Withdrawal
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Purge", "large_removals", "published_purge", "purge_run", "unfinished_purge"]

MOST_SHARE = 0.5
"""Of a tenant's memories: a run that removes more of them is not applied without being told so again."""

_VERBS = {"purify": ("would remove", "removed"), "quarantine": ("would quarantine", "quarantined")}
"""Before it is done, and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """What a purge did, or would do."""

    run: SealedRun
    snapshot: VerifiedSnapshot
    """The store as it was found."""

    purified: Purified | None
    """None where the run found nothing to remove."""

    def to_json(self) -> dict[str, object]:
        """Return it as `--json` shows it."""
        done, removed = self.purified, () if self.purified is None else self.purified.removed
        shown = self.snapshot if done is None else done
        verb = "removed" if done is None else _VERBS[done.operation][1]
        return {
            "version": shown.version, "published": done is not None and done.published, "digest": shown.digest,
            verb: [{"tenant": r.tenant, "entry_id": r.entry_id, "reason": r.reason} for r in removed],
        }  # fmt: skip

    def lines(self) -> list[str]:
        """Return it as lines for people."""
        run, store, done = self.run.path, self.snapshot.path, self.purified
        if done is None:
            return [f"{run} found nothing to remove: {store} stays as it is"]
        quarantine = done.operation == "quarantine"
        verb = _VERBS[done.operation][done.published]
        lines = [
            f"{verb} {as_line(item.tenant)}/{as_line(item.entry_id)}: {as_line(item.reason, 200)}"
            for item in done.removed
        ]
        if self.run.result.config.get("hazards") == "off":
            lines.append("the run read no hazards: these tombstones keep the ids out and no paraphrase")
        if not done.published:
            return [*lines, f"dry run: nothing was changed; add --apply to {'quarantine' if quarantine else 'remove'}"]
        attestation, named = run / attestation_file(done.operation), shlex.quote(str(store))
        if quarantine:
            way_on = (
                f"no agent reads them, and no vacuum erases them; to put them back: memaudit release {named} "
                f"--run {shlex.quote(self.run.result.run_id)} --apply"
            )
        else:
            way_on = (
                f"older versions and {run} still hold the text of what was removed; to erase the versions: "
                f"memaudit vacuum {named}"
            )
        return [
            *lines,
            (
                f"version {done.version} published with {counted(done.entries, 'memory')}; attestation: {attestation}; "
                f"check both with: memaudit verify {named} --attestation {shlex.quote(str(attestation))}"
            ),
            way_on,
        ]


def large_removals(result: AuditResult) -> list[str]:
    """Say of which tenants a run takes so much that it is more likely a mistake than a finding."""
    removals = result.removals
    return [
        f"{len(removals[tenant.tenant])} of {counted(tenant.entries, 'memory')} of {as_line(tenant.tenant)} would "
        "go: a set that is most of a store is seldom the cause"
        for tenant in result.tenants
        if len(removals.get(tenant.tenant, ())) > MOST_SHARE * tenant.entries
    ]


def purge_run(  # noqa: PLR0913 - a run, a store, and who may change it
    run: SealedRun,
    result: AuditResult,
    store: Path,
    keyring: Keyring,
    pin_file: Path | None,
    *,
    operation: Withdrawal = "purify",
    dry_run: bool,
) -> Purge:
    """Take out, attest and remember what a run found.

    Where the store has changed since the audit, what the run put in quarantine can still be removed, but for what was
    released.

    Args:
        run: The run.
        result: Its result, with what it proposes to quarantine where that is to go.
        store: The folder of the store, as it is now.
        keyring: The keys that sign.
        pin_file: The file of --pin.
        operation: Whether it is removed, or put in quarantine.
        dry_run: Only find out what would be done.

    Raises:
        UsageError: the run is of another store, or a key is missing.
        StalePlanError: the store has changed since the audit.
        VerificationError: the store does not verify, or shows less than this user saw before.
        IncompleteError: it stopped on the way; the same call finishes it.
    """
    now = now_ms() if dry_run else publisher_ms(store)
    session = StoreSession.open(store, keyring.policy, pin_file, now_ms=now, check_expiry=False)
    snapshot = session.snapshot
    if snapshot.store_id != result.store:
        raise UsageError(f"{run.path} audited another store than {store}")
    removals, purified, audited = result.removals, None, snapshot.digest == result.snapshot_digest
    if not audited:  # what the run has in quarantine can be removed all the same
        removals = _in_quarantine(snapshot, result) if operation == "purify" else {}
    if not removals:
        if audited:  # a clean night, and no mistake
            return Purge(run=run, snapshot=snapshot, purified=None)
        purified = None if dry_run else unfinished_purge(run.path, result, session, now_ms=now, operation=operation)
        if purified is None:
            raise StalePlanError(
                f"{store} is at version {snapshot.version}, {run.path} audited version {result.snapshot_version}: "
                "audit again"
            )
    if not dry_run:
        check_pin_place(pin_file)
    if purified is None:
        extra, taxonomy = run.block_records_of(run.result.with_quarantined())  # of what is suspected there are none
        purified = purify(
            store, snapshot, removals, keyring, run_id=result.run_id, now_ms=now,
            config={**result.config, **taxonomy}, models=result.models, extra=extra, operation=operation,
            dry_run=dry_run,
        )  # fmt: skip
    if not dry_run:
        attest_run(run, purified if audited else _so_far(purified, session, now), keyring, now_ms=now)
        session.remember_published(purified.version)
    return Purge(run=run, snapshot=snapshot, purified=purified)


def unfinished_purge(
    run: Path, result: AuditResult, session: StoreSession, *, now_ms: int, operation: Withdrawal = "purify"
) -> Purified | None:
    """Return what a purge of this run published before it was interrupted; see `published_purge`.

    Returns:
        None also where nothing is left to do: it is attested, and pinned.
    """
    purified, store = published_purge(result, session, now_ms=now_ms, operation=operation), session.snapshot
    if purified is None or session.known is None or session.known.version < purified.version:
        return purified
    after = open_snapshot(store.path, store.trust, now_ms=now_ms, version=purified.version, check_expiry=False)
    return None if is_attested(run, after) else purified


def published_purge(
    result: AuditResult, session: StoreSession, *, now_ms: int, operation: Withdrawal = "purify"
) -> Purified | None:
    """Return what a purge of a run published, where it is what is asked for.

    It is the last version that the run made: others may have published since. Nothing can be said of it once a vacuum
    erased it.

    Args:
        result: What the run found, with what it proposes to quarantine where that is to go.
        session: The store, and what this user saw last of it.
        now_ms: Clock, Unix milliseconds.
        operation: Whether it was to be removed, or put in quarantine.
    """
    newest = session.snapshot
    for version in range(newest.version, max(newest.manifest.oldest, result.snapshot_version + 1) - 1, -1):
        after = open_snapshot(newest.path, newest.trust, now_ms=now_ms, version=version, check_expiry=False)
        purified = read_purified(after, result.run_id, after.manifest.parent or "", operation)
        if purified is not None:
            break
    else:
        return None
    removed = {(item.tenant, item.entry_id) for item in purified.removed}
    asked = {(tenant, entry_id) for tenant, entries in result.removals.items() for entry_id in entries}
    whole = purified.audited_digest == result.snapshot_digest  # else it left out what was released from quarantine
    return purified if (removed == asked if whole else removed <= asked) else None


def _in_quarantine(snapshot: VerifiedSnapshot, result: AuditResult) -> dict[str, dict[str, str]]:
    """Return that part of what a run removes which it put in quarantine, and nobody released."""
    held = quarantined_by(snapshot, result.run_id)
    return {
        tenant: {entry_id: reason for entry_id, reason in result.removals[tenant].items() if entry_id in ids}
        for tenant, ids in held.items() if ids & result.removals.get(tenant, {}).keys()
    }  # fmt: skip


def _so_far(purified: Purified, session: StoreSession, now: int) -> Purified:
    """Return all that a run has removed, of which this purification is the last part: its attestation states it all."""
    store = session.snapshot
    after = open_snapshot(store.path, store.trust, now_ms=now, version=purified.version, check_expiry=False)
    return read_purified(after, after.manifest.run_id, purified.audited_digest, purified.operation) or purified
