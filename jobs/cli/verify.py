"""`memaudit verify`: check every byte of a store offline."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from memory_audit.counted import counted
from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.jobs.cli.store import (
    DEFAULT_KEYS,
    Json,
    Keys,
    PinFile,
    Quiet,
    Store,
    Trust,
    installed_policy,
    known_pin,
    print_json,
    remember,
)
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.progress import Reporter
from memory_audit.provenance import durable
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.attest import MAX_ATTESTATION_BYTES, verify_attestation
from memory_audit.snapshot.newest import read_newest
from memory_audit.snapshot.reader import open_snapshot
from memory_audit.snapshot.verify import verify_store

if TYPE_CHECKING:
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.attest import Attestation

__all__ = ["verify"]

LEFTOVERS_SHOWN = 10


def verify(
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    trust: Trust = None,
    pin: PinFile = None,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Every version, every signature, every proof.")] = False,
    attestation: Annotated[
        Path | None, typer.Option("--attestation", help="Of a purge, in its run folder: must agree with the log.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check every byte of a store offline.

    Signatures, hashes, roots, and that its log only ever grew.
    """
    now, policy, console = now_ms(), installed_policy(keys, trust), Console(soft_wrap=True)
    reporter = Reporter(console, quiet=quiet or as_json)
    with reporter.steps() as progress:
        report = verify_store(
            store, policy, now_ms=now, pin=known_pin(store, pin, policy, now), deep=deep, progress=progress
        )
    attested = None if attestation is None else _attested(attestation, store, policy, now)
    try:  # no later one: that was verified
        seen = open_snapshot(store, policy, now_ms=now_ms(), version=report.version, check_expiry=False)
    except (StalePlanError, UsageError):  # a vacuum erased it since
        seen = open_snapshot(store, policy, now_ms=now_ms(), check_expiry=False)
    remember(seen, pin)
    if as_json:
        found = None if attested is None else {
            "run_id": attested.run_id, "version": attested.version, "removed": len(attested.removed),
        }  # fmt: skip
        print_json(report.to_json() | ({} if found is None else {"attestation": found}))
        return
    console.print(
        f"verified: version {report.version} of store {report.store_id}: "
        f"{counted(report.entries, 'memory')} of {counted(report.tenants, 'tenant')}, "
        f"{counted(report.tombstones, 'tombstone')}, {counted(report.signatures, 'signature')}, "
        f"{counted(report.files, 'file')}",
        markup=False, highlight=False,
    )  # fmt: skip
    for step in report.steps:
        console.print(
            f"  log of {as_line(step.tenant)}: version {step.from_version} "
            f"({counted(step.from_size, 'leaf')}) is a prefix of version {step.to_version} "
            f"({counted(step.to_size, 'leaf')})", markup=False, highlight=False,
        )  # fmt: skip
    if attested is not None:
        console.print(
            f"  attestation: version {attested.version} removed {counted(len(attested.removed), 'memory')}, as the log "
            "says", markup=False, highlight=False,
        )  # fmt: skip
    _print_leftovers(report.leftovers, console)


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


def _print_leftovers(names: tuple[str, ...], console: Console) -> None:
    """Name the files that are no part of the store; whoever planted one chose its name."""
    if not names:
        return
    console.print(
        f"no part of any version (left over from an interrupted publisher, or planted): {counted(len(names), 'file')}. "
        "Nothing reads what is named here; delete it while nobody publishes to the store",
        markup=False, highlight=False,
    )  # fmt: skip
    for name in names[:LEFTOVERS_SHOWN]:
        console.print(f"  {as_line(name, 200)}", markup=False, highlight=False)
    if len(names) > LEFTOVERS_SHOWN:
        console.print(f"  … {len(names) - LEFTOVERS_SHOWN:,} more: --json names them", markup=False, highlight=False)
