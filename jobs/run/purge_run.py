"""A purge: what a sealed run found is removed from its store, re-signed and attested. One that stopped is finished."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.counted import counted
from memory_audit.errors import StalePlanError, UsageError
from memory_audit.jobs.clock import now_ms, publisher_ms
from memory_audit.jobs.run.attestation import ATTESTATION_FILE, attest_run, is_attested
from memory_audit.jobs.store_session import StoreSession, check_pin_place
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.publishing.purify import purify, read_purified
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.jobs.run.sealed_run import SealedRun
    from memory_audit.provenance.keys import Keyring
    from memory_audit.result import AuditResult
    from memory_audit.snapshot.publishing.purify import Purified
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Purge", "large_removals", "purge_run", "unfinished_purge"]

MOST_SHARE = 0.5
"""Of a tenant's memories: a run that removes more of them is not applied without being told so again."""


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
        return {
            "version": shown.version, "published": done is not None and done.published, "digest": shown.digest,
            "removed": [{"tenant": r.tenant, "entry_id": r.entry_id, "reason": r.reason} for r in removed],
        }  # fmt: skip

    def lines(self) -> list[str]:
        """Return it as lines for people."""
        run, store, done = self.run.path, self.snapshot.path, self.purified
        if done is None:
            return [f"{run} found nothing to remove: {store} stays as it is"]
        verb = "removed" if done.published else "would remove"
        lines = [
            f"{verb} {as_line(item.tenant)}/{as_line(item.entry_id)}: {as_line(item.reason, 200)}"
            for item in done.removed
        ]
        if self.run.result.config.get("hazards") == "off":
            lines.append("the run read no hazards: these tombstones keep the ids out and no paraphrase")
        if not done.published:
            return [*lines, "dry run: nothing was changed; add --apply to remove"]
        attestation, named = run / ATTESTATION_FILE, shlex.quote(str(store))
        return [
            *lines,
            (
                f"version {done.version} published with {counted(done.entries, 'memory')}; attestation: {attestation}; "
                f"check both with: memaudit verify {named} --attestation {shlex.quote(str(attestation))}"
            ),
            (
                f"older versions and {run} still hold the text of what was removed; to erase the versions: "
                f"memaudit vacuum {named}"
            ),
        ]


def large_removals(result: AuditResult) -> list[str]:
    """Say of which tenants a run removes so much that it is more likely a mistake than a finding."""
    removals = result.removals
    return [
        f"{len(removals[tenant.tenant])} of {counted(tenant.entries, 'memory')} of {as_line(tenant.tenant)} would be "
        "removed: a set that is most of a store is seldom the cause"
        for tenant in result.tenants
        if len(removals.get(tenant.tenant, ())) > MOST_SHARE * tenant.entries
    ]


def purge_run(  # noqa: PLR0913 - a run, a store, and who may change it
    run: SealedRun, result: AuditResult, store: Path, keyring: Keyring, pin_file: Path | None, *, dry_run: bool
) -> Purge:
    """Remove, attest and remember what a run found.

    Args:
        run: The run.
        result: Its result, with the quarantined where they are to go.
        store: The folder of the store, as it is now.
        keyring: The keys that sign.
        pin_file: The file of --pin.
        dry_run: Only find out what would be done.

    Raises:
        UsageError: the run is of another store, or a key is missing.
        StalePlanError: the store has changed since the audit.
        VerificationError: the store does not verify, or shows less than this user saw before.
        IncompleteError: it stopped on the way; the same call finishes it.
    """
    now = now_ms() if dry_run else publisher_ms(store)
    removals = result.removals
    session = StoreSession.open(store, keyring.policy, pin_file, now_ms=now, check_expiry=False)
    snapshot = session.snapshot
    if snapshot.store_id != result.store:
        raise UsageError(f"{run.path} audited another store than {store}")
    purified = None if dry_run else unfinished_purge(run.path, result, session, now_ms=now)
    if snapshot.digest != result.snapshot_digest and purified is None:
        raise StalePlanError(
            f"{store} is at version {snapshot.version}, {run.path} audited version {result.snapshot_version}: "
            "audit again"
        )
    if not removals:  # a clean night, and no mistake
        return Purge(run=run, snapshot=snapshot, purified=None)
    if not dry_run:
        check_pin_place(pin_file)
    if purified is None:
        extra, taxonomy = run.block_records_of(result)
        purified = purify(
            store, snapshot, removals, keyring, run_id=result.run_id, now_ms=now,
            config={**result.config, **taxonomy}, models=result.models, extra=extra, dry_run=dry_run,
        )  # fmt: skip
    if not dry_run:
        attest_run(run, purified, keyring, now_ms=now)
        session.remember_published(purified.version)
    return Purge(run=run, snapshot=snapshot, purified=purified)


def unfinished_purge(run: Path, result: AuditResult, session: StoreSession, *, now_ms: int) -> Purified | None:
    """Return what a purge of this run published before it was interrupted, where it is what is asked for.

    It is the version right after the audited one: others may have published since. Nothing can be said of it once a
    vacuum erased it.

    Args:
        run: The run folder.
        result: What the run found, with the quarantined where they are to go.
        session: The store, and what this user saw last of it.
        now_ms: Clock, Unix milliseconds.

    Returns:
        None also where nothing is left to do: it is attested, and pinned.
    """
    version, after, known = result.snapshot_version + 1, session.snapshot, session.known
    if not after.manifest.oldest <= version <= after.version:
        return None
    unseen = known is None or known.version < version
    if version != after.version:
        after = open_snapshot(after.path, after.trust, now_ms=now_ms, version=version, check_expiry=False)
    if not unseen and is_attested(run, after):
        return None
    purified = read_purified(after, result.run_id, result.snapshot_digest)
    asked = {(tenant, entry_id) for tenant, entries in result.removals.items() for entry_id in entries}
    return purified if purified and {(item.tenant, item.entry_id) for item in purified.removed} == asked else None
