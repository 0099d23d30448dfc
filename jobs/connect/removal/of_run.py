"""What a run removed from its store is taken out of the system that the memories came from, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.connect.removal.backup import read_recipients
from memory_audit.jobs.connect.removal.plan import make_plan
from memory_audit.jobs.connect.removal.withdraw import RECEIPT_FILE, Wanted, withdraw, withdrawal_folder
from memory_audit.jobs.run.purge.purge_run import published_purge
from memory_audit.jobs.store.store_session import StoreSession
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from memory_audit.entry import Entry
    from memory_audit.jobs.connect.address import Address
    from memory_audit.jobs.connect.connector import Connector
    from memory_audit.jobs.connect.removal.backup import Recipient
    from memory_audit.jobs.connect.removal.plan import Named, Plan
    from memory_audit.provenance.keys import Keyring
    from memory_audit.result import AuditResult

__all__ = ["Asked", "Taken", "take_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How memories are taken out of a system."""

    address: Address
    source: Connector
    backup_to: Sequence[Recipient]
    context: bool
    erase: bool

    @classmethod
    def of(cls, address: Address, *, backup_to: str | None, context: bool, erase: bool, apply: bool) -> Self:
        """Check what is asked for, before anything is removed anywhere.

        Args:
            address: Of the system.
            backup_to: See `read_recipients`.
            context: See `memory_audit.jobs.connect.connector.Removed`.
            erase: Also rewrite files, and search their bytes.
            apply: Whether it will really be done.

        Raises:
            UsageError: a system that nothing can be taken out of, or whose schema is unknown; no key for the backup.
        """
        source = address.open_connector()
        source.schema()
        recipients = [] if backup_to is None else read_recipients(backup_to)
        if apply and not recipients:
            raise UsageError("--to needs --backup-to: what is taken out is encrypted for somebody before")
        return cls(address=address, source=source, backup_to=recipients, context=context, erase=erase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What that did, or would do."""

    told: Mapping[str, Any] | None
    """The receipt's predicate, or what a dry run found; None where there was nothing to take out."""

    lines: Sequence[str]
    is_clean: bool = True
    """Whether nothing is left to a person."""


def take_out(  # noqa: PLR0913, PLR0917 - a run, a store, and who may change what
    asked: Asked, run: Path, result: AuditResult, store: Path, keyring: Keyring, pin: Path | None, *, apply: bool
) -> Taken:
    """Take out of a system what a run removed from its store; without `apply`, look what that would be.

    Args:
        asked: Where, and how.
        run: The run folder.
        result: What the run proposes.
        store: The folder of the store, which was purged if it is applied.
        keyring: Whose policy is trusted, and who signs.
        pin: The file of --pin.
        apply: Really do it.

    Raises:
        UsageError: the audited version was vacuumed.
        AuditError: as `withdraw`.
    """
    source, address = asked.source, asked.address
    entries = _entries(result, store, keyring, pin, planned=not apply)
    if not entries:
        return Taken(told=None, lines=[f"nothing to take out of {address}"])
    if not apply:
        plan = make_plan(
            source, address, entries, store=result.store, run_id=result.run_id, context=asked.context
        )  # fmt: skip
        return Taken(told=_summary(plan), lines=_planned(plan))
    wanted = Wanted(
        run_id=result.run_id, store=result.store, entries=entries, backup_to=asked.backup_to, context=asked.context,
        erase=asked.erase,
    )  # fmt: skip
    folder = withdrawal_folder(run, address)
    receipt = withdraw(source, address, folder, wanted, keyring, now_ms=now_ms())
    return Taken(
        told=receipt.predicate, is_clean=receipt.is_clean,
        lines=[*receipt.lines(), f"receipt and backup: {folder / RECEIPT_FILE}; the backup holds what was removed"],
    )  # fmt: skip


def _entries(
    result: AuditResult, store: Path, keyring: Keyring, pin: Path | None, *, planned: bool
) -> dict[Named, Entry]:
    """Return what a run removed, or (planned) would remove, as it was audited."""
    now = now_ms()
    session = StoreSession.open(store, keyring.policy, pin, now_ms=now, check_expiry=False)
    done = published_purge(result, session, now_ms=now)
    if done is not None:
        named = {(item.tenant, item.entry_id) for item in done.removed}
    else:
        proposed = result.removals if planned else {}
        named = {(tenant, entry_id) for tenant, entries in proposed.items() for entry_id in entries}
    if not named:
        return {}
    if result.snapshot_version < session.snapshot.manifest.oldest:
        raise UsageError(
            f"{store}: version {result.snapshot_version}, which was audited, was vacuumed, and what to look for went "
            "with it: take memories out of their system before a vacuum"
        )
    audited = open_snapshot(store, keyring.policy, now_ms=now, version=result.snapshot_version, check_expiry=False)
    return {
        (tenant, entry.entry_id): entry
        for tenant in sorted({tenant for tenant, _ in named})
        for entry in audited.entries(tenant)
        if (tenant, entry.entry_id) in named
    }


def _summary(plan: Plan) -> dict[str, Any]:
    return {
        "source": plan.address, "schema": plan.schema, "memories": len(plan.before.ids), "rows": plan.before.held,
        "missing": plan.missing, "edited": plan.edited, "copies": plan.before.copies,
    }  # fmt: skip


def _planned(plan: Plan) -> list[str]:
    rows = ", ".join(f"{layer} {count:,}" for layer, count in plan.before.held.items())
    lines = [f"would take {counted(len(plan.before.ids), 'memory')} out of {plan.address}; rows that hold them: {rows}"]
    if plan.before.copies:
        copies = counted(len(plan.before.copies), "other memory")
        lines.append(f"  {copies} of {plan.address} with the same text would stay: {_ids(plan.before.copies)}")
    if plan.edited:
        lines.append(f"  edited since the audit, and would stay: {_ids([name for _, name in plan.edited])}")
    if plan.missing:
        lines.append(f"  gone from there already: {_ids([name for _, name in plan.missing])}")
    return lines


def _ids(names: Sequence[str]) -> str:
    return ", ".join(map(as_line, names[:10])) + (", …" if len(names) > 10 else "")  # noqa: PLR2004 - a line of them
