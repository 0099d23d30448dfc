"""`memaudit verify`: check every byte of a store offline."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from memory_audit.counted import counted
from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.jobs.cli.shared import Json, Quiet, Reading, Store, print_json, print_lines
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.spread_options import spread_options
from memory_audit.jobs.store.object_store import as_kept
from memory_audit.jobs.store.store_session import known_pin, remember
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.provenance import durable
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.attest import MAX_ATTESTATION_BYTES, PREDICATES, verify_attestation
from memory_audit.snapshot.newest import read_newest
from memory_audit.snapshot.reader import open_snapshot
from memory_audit.snapshot.verify import verify_store

if TYPE_CHECKING:
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.attest import Attestation

__all__ = ["verify"]

LEFTOVERS_SHOWN = 10


@spread_options
def verify(
    *,
    store: Store,
    reading: Reading,
    deep: Annotated[bool, typer.Option("--deep", help="Every version, every signature, every proof.")] = False,
    attestation: Annotated[
        Path | None, typer.Option(help="Of a purge, in its run folder: must agree with the log.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check every byte of a store offline.

    Signatures, hashes, roots, that its log only ever grew, and that what is in quarantine is all there.
    """
    now, policy = now_ms(), reading.policy()
    known = known_pin(store, reading.pin, policy, now)
    with Reporter(Console(soft_wrap=True), quiet=quiet or as_json).steps() as progress, as_kept(store) as kept:
        report = verify_store(kept, policy, now_ms=now, pin=known, deep=deep, progress=progress)
    attested = None if attestation is None else _attested(attestation, store, policy, now)
    try:  # no later one: that was verified
        seen = open_snapshot(store, policy, now_ms=now_ms(), version=report.version, check_expiry=False)
    except (StalePlanError, UsageError):  # a vacuum erased it since
        seen = open_snapshot(store, policy, now_ms=now_ms(), check_expiry=False)
    remember(seen, reading.pin)
    if as_json:
        found = None if attested is None else {
            "run_id": attested.run_id, "version": attested.version,
            PREDICATES[attested.operation][1]: len(attested.removed),
        }  # fmt: skip
        print_json(report.to_json() | ({} if found is None else {"attestation": found}))
        return
    lines = [
        (
            f"verified: version {report.version} of store {report.store_id}: "
            f"{counted(report.entries, 'memory')} of {counted(report.tenants, 'tenant')}, "
            + (f"{counted(report.quarantined, 'memory')} in quarantine, " if report.quarantined else "")
            + f"{counted(report.tombstones, 'tombstone')}, {counted(report.signatures, 'signature')}, "
            f"{counted(report.files, 'file')}"
        )
    ]
    lines += [
        f"  log of {as_line(step.tenant)}: version {step.from_version} ({counted(step.from_size, 'leaf')}) is a prefix "
        f"of version {step.to_version} ({counted(step.to_size, 'leaf')})"
        for step in report.steps
    ]
    if attested is not None:
        what, verb = counted(len(attested.removed), "memory"), PREDICATES[attested.operation][1]
        lines.append(f"  attestation: version {attested.version} {verb} {what}, as the log says")
    print_lines(*lines, *_leftovers(report.leftovers))


def _attested(file: Path, store: Path, policy: TrustPolicy, now: int) -> Attestation:
    """Verify an attestation against the version that it is about."""
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    data = durable.read_bounded(file, MAX_ATTESTATION_BYTES, str(file))
    about = verify_attestation(data, policy, str(file))
    newest = read_newest(store, policy, now_ms=now, check_expiry=False)
    if about.version > newest.version:
        raise VerificationError(
            f"{store}: its newest version is {newest.version}, and the auditor signed that version {about.version} was "
            f"published ({file}): the store was rolled back, or is another one"
        )
    if about.version < newest.oldest:
        raise UsageError(
            f"{file}: about version {about.version}, which a vacuum erased from {store}: "
            f"it has {newest.oldest} to {newest.version}"
        )
    snapshot = open_snapshot(store, policy, now_ms=now, version=about.version, check_expiry=False)
    return verify_attestation(data, policy, str(file), snapshot=snapshot)


def _leftovers(names: tuple[str, ...]) -> list[str]:
    """Name the files that are no part of the store; whoever planted one chose its name."""
    if not names:
        return []
    lines = [
        (
            "no part of any version (left over from an interrupted publisher, or planted): "
            f"{counted(len(names), 'file')}. Nothing reads what is named here; delete it while nobody publishes to the "
            "store"
        ),
        *(f"  {as_line(name, 200)}" for name in names[:LEFTOVERS_SHOWN]),
    ]
    if len(names) > LEFTOVERS_SHOWN:
        lines.append(f"  … {len(names) - LEFTOVERS_SHOWN:,} more: --json names them")
    return lines
