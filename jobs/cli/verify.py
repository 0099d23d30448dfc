"""`memaudit verify`: check every byte of a store offline. `check-removed`: is what it removed back at its source?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.counted import counted
from memory_audit.errors import IncompleteError, StalePlanError, UsageError, VerificationError
from memory_audit.jobs.cli.shared import (
    FINDINGS,
    BackboneKeyEnv,
    Json,
    Quiet,
    Reading,
    SourceOptions,
    Store,
    check_choice,
    print_json,
    print_lines,
)
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.connect.address import JSONL, parse_address, parse_options
from memory_audit.jobs.connect.check_removed import check_removed as look_for_removed
from memory_audit.jobs.guard.judging import open_judging_guard
from memory_audit.jobs.spread_options import spread_options
from memory_audit.jobs.store.object_store import as_kept
from memory_audit.jobs.store.store_session import known_pin, remember
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.provenance import durable
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.attest import MAX_ATTESTATION_BYTES, PREDICATES, verify_attestation
from memory_audit.snapshot.newest import read_newest
from memory_audit.snapshot.reader import open_snapshot
from memory_audit.snapshot.verify import verify_store

if TYPE_CHECKING:
    from memory_audit.jobs.connect.check_removed import Checked
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.attest import Attestation

__all__ = ["check_removed", "verify"]

MAX_NAMED = 20
"""Returned memories in lines; --json has more."""

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
    with Reporter(terminal(), quiet=quiet or as_json).steps() as progress, as_kept(store) as kept:
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


@spread_options
def check_removed(
    *,
    store: Store,
    source: Annotated[list[str], typer.Argument(help="Where to look, SYSTEM:PLACE as for `memaudit import`.")],
    reading: Reading,
    tenant: Annotated[str | None, typer.Option(help="Tenant of memories that name none, as at the import.")] = None,
    principal: Annotated[str, typer.Option(help="Writer of memories that name none.")] = "import",
    option: SourceOptions = None,
    read: Annotated[
        str | None,
        typer.Option(help="Also look for restatements, as the guard: behaviour, or behaviour+hazards."),
    ] = None,
    backbone: Annotated[str, typer.Option(help="Model that reads hazards, as in `memaudit guard check`.")] = "packaged",
    backbone_key_env: BackboneKeyEnv = None,
    embedder: Annotated[
        str, typer.Option(help="Model of the semantic keys: the one the tombstones were made with.")
    ] = "packaged",
    as_json: Json = False,
) -> None:
    """Look in memory systems for what was removed from a store.

    Ids and words by the tombstones, which hold no text; restatements with --read. A memory that came back under another
    id is named with it, and with the side tables that hold its text. Nothing is changed. Exit codes, for schedulers: 0
    nothing is back, 1 something is, 3 nothing was found but some memories could not be judged.
    """
    if read is not None:
        check_choice("--read", read, "behaviour", "behaviour+hazards")
    addresses = [parse_address(text, parse_options(option or ())) for text in source]
    if any(address.system == JSONL for address in addresses):
        raise UsageError("jsonl: a file of entries is judged by `memaudit guard check FILE STORE`")
    now = now_ms()
    session = reading.open(store, now)
    with open_judging_guard(session, read, backbone, backbone_key_env, embedder) as guarded:
        found = {
            str(address): look_for_removed(
                address.open(), str(address), session.snapshot, tenant=tenant, principal=principal, now_ms=now,
                guarded=guarded,
            )
            for address in addresses
        }  # fmt: skip
    session.remember()
    if as_json:
        sources = [{"source": where, **asdict(checked)} for where, checked in found.items()]
        print_json({"version": session.snapshot.version, "sources": sources})
    else:
        for where, checked in found.items():
            print_lines(*_told(where, checked))
    if any(checked.returned for checked in found.values()):
        raise typer.Exit(FINDINGS)
    if unjudged := sum(checked.unjudged for checked in found.values()):
        raise IncompleteError(f"{counted(unjudged, 'memory')} could not be judged")


def _told(where: str, checked: Checked) -> list[str]:
    back = len(checked.returned) + checked.more
    lines = [f"{as_line(where, 200)}: {checked.records:,} looked at, {back:,} back of what was removed"]
    for one in checked.returned[:MAX_NAMED]:
        as_what = f" as {one.removed_id!r:.80}" if one.removed_id else ""
        beside = ", ".join(f"{layer} {rows}" for layer, rows in sorted(one.beside.items()))
        line = f"{one.record_id!r:.80} of {one.tenant!r:.80}: {one.reason}{as_what}"
        lines.append(f"  {as_line(line, 400)}{beside and f'; its text lies in {beside}, too'}")
    if back > MAX_NAMED:
        lines.append(f"  and {back - MAX_NAMED:,} more: --json names them")
    if checked.ids_only:
        lines.append(
            f"  of {counted(checked.ids_only, 'removal')} only the id was compared: it kept no digest of words"
        )
    if checked.unknown:
        lines.append(f"  {counted(checked.unknown, 'memory')} of tenants that the store does not have")
    if checked.unjudged:
        lines.append(f"  {counted(checked.unjudged, 'memory')} could not be judged")
    return lines
