"""`memaudit vacuum`: erase what was removed, for good. A dry run unless told otherwise."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.console import Console

from audit.counted import counted
from audit.errors import UsageError
from audit.provenance.keys import load_keyring
from audit.snapshot.reader import open_snapshot
from audit.snapshot.vacuum import vacuum as erase
from audit.snapshot.verify import verify_store
from jobs.cli_store import DEFAULT_KEYS, Json, Keys, PinFile, Store, known_pin, print_json, remember
from jobs.clock import now_ms
from jobs.progress import Reporter

__all__ = ["retention_ms", "vacuum"]

FILES_SHOWN = 10
"""Where more would go, --json names them."""

_RETENTION = re.compile(r"(0|[1-9][0-9]{0,4})([dh])")
_UNIT_MS = {"h": 3_600_000, "d": 86_400_000}


def vacuum(
    store: Store,
    keep: Annotated[str, typer.Option("--keep", help="How long a replaced version is kept: 7d, 36h, or 0d.")] = "7d",
    keys: Keys = DEFAULT_KEYS,
    pin: PinFile = None,
    *,
    apply: Annotated[bool, typer.Option("--apply", help="Really erase; without it, only show what would be.")] = False,
    as_json: Json = False,
) -> None:
    """Erase replaced versions, with the text of what was removed.

    The log keeps their hashes and stays provable. Changes nothing unless --apply is given.
    """
    retention, now, keyring, console = retention_ms(keep), now_ms(), load_keyring(keys), Console(soft_wrap=True)
    known = known_pin(store, pin, keyring.policy, now)
    open_snapshot(store, keyring.policy, now_ms=now, pin=known, check_expiry=False)  # nothing rolled back
    if apply:
        with Reporter(console, quiet=as_json).steps() as progress:  # what is erased may be the last good copy
            verify_store(store, keyring.policy, now_ms=now, pin=known, progress=progress)
    done = erase(store, keyring, now_ms=now, retention_ms=retention, dry_run=not apply)
    if done.version is not None:
        remember(open_snapshot(store, keyring.policy, now_ms=now, pin=known, check_expiry=False), pin)
    if as_json:
        print_json({
            "version": done.version, "versions": done.versions, "files": done.files, "bytes": done.bytes,
            "erased": done.done,
        })  # fmt: skip
        return
    lines = [f"nothing to erase: {store} holds no version that was replaced longer than {keep} ago"]
    if done.files:
        verb = "erased" if done.done else "would erase"
        what = counted(len(done.versions), "version") if done.versions else "what interrupted commands left"
        lines = [f"{verb} {what}: {counted(len(done.files), 'file')}, {done.bytes:,} bytes"]
        if not done.done:
            lines += _shown(done.files)
        if done.version is not None:
            lines.append(f"version {done.version} published, with the same memories")
        if not done.done:
            lines.append("dry run: nothing was changed; add --apply to erase")
    for line in lines:
        console.print(line, markup=False, highlight=False)


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
