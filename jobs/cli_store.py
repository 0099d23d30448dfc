"""What commands share: options, the policy, and what this user saw last of a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import platformdirs
import typer

from audit.provenance.keys import POLICY_FILE, load_policy
from audit.snapshot.pin import Pin, read_pin, write_pin
from audit.snapshot.reader import VerifiedSnapshot, open_snapshot

if TYPE_CHECKING:
    from audit.provenance.policy import TrustPolicy

__all__ = [
    "DEFAULT_KEYS", "FINDINGS", "Json", "Keys", "PinFile", "Store", "Trust", "installed_policy", "known_pin",
    "print_json", "remember",
]  # fmt: skip

Store = Annotated[Path, typer.Argument(help="Folder of the signed store.")]
Keys = Annotated[Path, typer.Option("--keys", envvar="MEMAUDIT_KEYS", help="Key folder, made by `memaudit keys new`.")]
Trust = Annotated[
    Path | None,
    typer.Option("--trust", envvar="MEMAUDIT_TRUST", help="Trust policy file; default: the one in the key folder."),
]
PinFile = Annotated[
    Path | None,
    typer.Option("--pin", help="File that remembers the newest version seen; default: in your user state folder."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
DEFAULT_KEYS = Path("memaudit-keys")

FINDINGS = 1
"""Exit code of a command that was told to fail on what it found."""


def installed_policy(keys: Path, trust: Path | None) -> TrustPolicy:
    """Return the policy that the user trusts."""
    return load_policy(trust if trust is not None else keys / POLICY_FILE)


def known_pin(store: Path, given: Path | None, policy: TrustPolicy, now: int) -> Pin | None:
    """Read what this user saw last of the store; None on first use."""
    snapshot = open_snapshot(store, policy, now_ms=now, check_expiry=False)
    return read_pin(_pin_path(given, snapshot.store_id))


def remember(snapshot: VerifiedSnapshot, given: Path | None) -> None:
    """Keep what this user saw of the store."""
    write_pin(_pin_path(given, snapshot.store_id), snapshot.pin())


def print_json(value: Any) -> None:
    """Print a value for scripts."""
    print(json.dumps(value, indent=1, sort_keys=True))  # noqa: T201


def _pin_path(given: Path | None, store_id: str) -> Path:
    return given if given is not None else Path(platformdirs.user_state_dir("memaudit")) / "pins" / f"{store_id}.json"
