"""`memaudit vacuum`, `offboard`, `redate`: erase for good, set a wrong date right. Dry runs unless told otherwise."""

from __future__ import annotations

import re
import shlex
from contextlib import nullcontext
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.counted import counted
from memory_audit.errors import IncompleteError, UsageError
from memory_audit.jobs.cli.shared import (
    DEFAULT_KEYS,
    Json,
    Keys,
    PinFile,
    Store,
    Wait,
    as_signed,
    open_keyring,
    print_json,
    print_lines,
)  # fmt: skip
from memory_audit.jobs.clock import as_utc, now_ms, publisher_ms
from memory_audit.jobs.places import check_place
from memory_audit.jobs.store.lease import leased
from memory_audit.jobs.store.object_store import as_kept
from memory_audit.jobs.store.offboard import Offboarding
from memory_audit.jobs.store.store_session import StoreSession, check_pin_place, known_pin, remember_published
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.publishing.redate import redate as set_right
from memory_audit.snapshot.publishing.vacuum import Vacuumed
from memory_audit.snapshot.publishing.vacuum import vacuum as erase
from memory_audit.snapshot.verify import verify_store

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["offboard", "redate", "retention_ms", "vacuum"]

FILES_SHOWN = 10
"""Where more would go, --json names them."""

KEPT_ELSEWHERE = "run folders, reports, exports, events and the agent's own database may hold text of theirs"

_RETENTION = re.compile(r"(0|[1-9][0-9]{0,4})([dh])")
_UNIT_MS = {"h": 3_600_000, "d": 86_400_000}


def vacuum(
    store: Store,
    keep: Annotated[str, typer.Option(help="How long a replaced version is kept: 7d, 36h, or 0d.")] = "7d",
    keys: Keys = DEFAULT_KEYS,
    pin: PinFile = None,
    *,
    apply: Annotated[bool, typer.Option("--apply", help="Really erase; without it, only show what would be.")] = False,
    as_json: Json = False,
) -> None:
    """Erase replaced versions, and leavings of commands.

    With them goes the text of what was removed. The log keeps their hashes and stays provable. What is in quarantine
    stays, with its text. Changes nothing unless --apply is given. Exit code 3 says that a file stays which may hold
    removed text.
    """
    retention, keyring = retention_ms(keep), open_keyring(keys)
    now = publisher_ms(store) if apply else now_ms()
    session = StoreSession.open(store, keyring.policy, pin, now_ms=now, check_expiry=False)  # nothing rolled back
    if apply:
        check_pin_place(pin)
        _check_whole(session, now, quiet=as_json)
    done = erase(store, keyring, now_ms=now, retention_ms=retention, dry_run=not apply)
    quarantined = session.snapshot.manifest.quarantined
    if as_json:
        print_json({
            "version": done.version, "versions": done.versions, "files": done.files, "bytes": done.bytes,
            "stays": dict(done.stays), "erased": done.done, "quarantined": quarantined,
        })  # fmt: skip
    else:
        print_lines(*_lines(done, store, keep, quarantined))
    if apply:
        session.remember_published(done.version)
        if done.stays:
            raise IncompleteError(f"{_staying(done.stays)}; then start the same command again")


def _check_whole(session: StoreSession, now: int, *, quiet: bool) -> None:
    """Verify a store before older versions go: what is erased may be the last good copy."""
    store = session.snapshot
    with Reporter(terminal(), quiet=quiet).steps() as progress, as_kept(store.path) as kept:
        verify_store(kept, store.trust, now_ms=now, pin=session.known, progress=progress)


def _lines(done: Vacuumed, store: Path, keep: str, quarantined: int) -> list[str]:
    lines = []
    if done.files:
        verb = "erased" if done.done else "would erase"
        what = counted(len(done.versions), "version") if done.versions else "what interrupted commands left"
        lines.append(f"{verb} {what}: {counted(len(done.files), 'file')}, {done.bytes:,} bytes")
        if not done.done:
            lines += _shown(done.files)
    elif not done.stays:
        lines.append(f"nothing to erase: what was replaced longer than {keep} ago left no file in {store}")
    if done.version is not None:
        lines.append(f"version {done.version} published, with the same memories")
    if done.stays and not done.done:
        lines.append(_staying(done.stays))
    if quarantined:
        lines.append(
            f"{counted(quarantined, 'memory')} in quarantine: the text is kept; "
            f"memaudit export {shlex.quote(str(store))} --quarantined names what it is of"
        )
    if done.files and not done.done:
        lines.append("dry run: nothing was changed; add --apply to erase")
    return lines


def _staying(stays: Mapping[str, str]) -> str:
    name, why = next(iter(stays.items()))
    more = f"; and {len(stays) - 1:,} more: --json names them" if len(stays) > 1 else ""
    stay = "stays" if len(stays) == 1 else "stay"
    return f"{counted(len(stays), 'file')} {stay} that may hold removed text: {as_line(name, 200)} ({why}){more}"


def _shown(names: tuple[str, ...]) -> list[str]:
    lines = [f"  {name}" for name in names[:FILES_SHOWN]]
    if len(names) > FILES_SHOWN:
        lines.append(f"  and {len(names) - FILES_SHOWN:,} more: --json names them")
    return lines


def retention_ms(text: str) -> int:
    """Read `7d` or `36h`.

    Raises:
        UsageError: neither.
    """
    found = _RETENTION.fullmatch(text)
    if found is None:
        raise UsageError(f"--keep is {text!r:.40}, expected days or hours like 7d, 36h or 0d")
    return int(found[1]) * _UNIT_MS[found[2]]


def offboard(
    store: Store,
    tenant: Annotated[str, typer.Argument(help="Who leaves.")],
    receipt: Annotated[Path, typer.Option(help="File for the signed receipt.")],
    reason: Annotated[str, typer.Option(help="Why; kept in the signed log.")] = "offboarded",
    keys: Keys = DEFAULT_KEYS,
    pin: PinFile = None,
    *,
    wait: Wait = 0.0,
    apply: Annotated[bool, typer.Option("--apply", help="Really erase; without it, only show what would be.")] = False,
    as_json: Json = False,
) -> None:
    """Erase all memories of a tenant, with a receipt.

    What is live and what is in quarantine goes, and with it every older version of the store, of all tenants: they hold
    the text. The receipt is an attestation, which `verify --attestation` checks. Changes nothing unless --apply is
    given; the same command finishes one that was interrupted.
    """
    keyring = open_keyring(keys)
    now = publisher_ms(store) if apply else now_ms()
    named, why = as_signed(tenant, "the tenant"), as_signed(reason, "--reason")
    with leased(store, "offboard", wait_s=wait) if apply else nullcontext():
        session = StoreSession.open(store, keyring.policy, pin, now_ms=now, check_expiry=False)
        leaving = Offboarding(snapshot=session.snapshot, tenant=named, reason=why, now_ms=now)
        place = receipt if leaving.is_receipt(receipt) else check_place(receipt)
        if apply:
            check_pin_place(pin)
            _check_whole(session, now, quiet=as_json)
        removed = leaving.remove(keyring, dry_run=not apply)
        erased: Vacuumed | None = None
        if apply:
            leaving.write_receipt(removed, keyring, place)
            session.remember_published(removed.version)
            erased = erase(store, keyring, now_ms=now, retention_ms=0, dry_run=False)
            session.remember_published(erased.version)
    if as_json:
        print_json({
            "tenant": named, "removed": [item.entry_id for item in removed.removed], "version": removed.version,
            "receipt": None if erased is None else str(receipt),
            "erased": [] if erased is None else erased.files, "stays": {} if erased is None else dict(erased.stays),
        })  # fmt: skip
    else:
        what = f"{counted(len(removed.removed), 'memory')} of {as_line(named)}"
        if erased is None:
            print_lines(f"would erase {what}", "dry run: nothing was changed; add --apply to erase")
        else:
            print_lines(f"erased {what}; receipt: {receipt}", *_lines(erased, store, "0d", 0), KEPT_ELSEWHERE)
    if erased is not None and erased.stays:
        raise IncompleteError(f"{_staying(erased.stays)}; then start the same command again")


def redate(
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    pin: PinFile = None,
    *,
    apply: Annotated[
        bool, typer.Option("--apply", help="Really publish; without it, only show what would be.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Date a store anew that a wrong clock dated.

    Publishes the same memories as the next version, dated by this machine's clock: make sure that it is right. A store
    that was not published to for two years needs it too. Takes the log key. Changes nothing unless --apply is given.
    """
    now = publisher_ms(store) if apply else now_ms()
    keyring = open_keyring(keys)
    if apply:
        check_pin_place(pin)
    known = known_pin(store, pin, keyring.policy, now)
    done = set_right(store, keyring, now_ms=now, pin=known, dry_run=not apply)
    if apply:
        remember_published(store, keyring.policy, pin, done.published)
    if as_json:
        print_json({
            "version": done.version, "created_ms": done.created_ms, "now_ms": now, "needed": done.needed,
            "published": done.published,
        })  # fmt: skip
        return
    lines = [f"version {done.version} of {store} says {as_utc(done.created_ms)}, this machine's clock {as_utc(now)}"]
    if not done.needed:
        lines.append("readers and publishers take that: nothing to set right")
    elif done.published is None:
        lines.append(
            f"would publish version {done.version + 1}, with the same memories, dated by this clock: is it right?"
        )
        lines.append("dry run: nothing was changed; add --apply to publish")
    else:
        lines.append(f"version {done.published} published, with the same memories")
    print_lines(*lines)
