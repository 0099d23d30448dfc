"""What commands share: options, the policy, and what this user saw last of a store."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import platformdirs
import typer

from audit.errors import IncompleteError, UsageError
from audit.provenance.keys import POLICY_FILE, load_policy
from audit.snapshot.pin import Pin, read_pin, write_pin
from audit.snapshot.reader import VerifiedSnapshot, check_pin, open_snapshot

if TYPE_CHECKING:
    from audit.provenance.policy import TrustPolicy

__all__ = [
    "DEFAULT_KEYS", "FINDINGS", "VERSION", "BackboneKeyEnv", "Json", "Keys", "PinFile", "Quiet", "Store", "Trust",
    "as_signed", "check_place", "installed_policy", "known_pin", "print_json", "remember", "seen_stores",
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
BackboneKeyEnv = Annotated[
    str | None,
    typer.Option(
        "--backbone-key-env", envvar="MEMAUDIT_BACKBONE_KEY_ENV",
        help="Name of the environment variable that holds the key of the backbone's server.",
    ),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
DEFAULT_KEYS = Path("memaudit-keys")
VERSION = "0.1.0"

_STORE_ID = re.compile(r"[0-9a-f]{32}")

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
    """Keep what this user saw of the store.

    Raises:
        VerificationError: it shows less than this user saw before: somebody published while the command ran.
        IncompleteError, UsageError: the pin cannot be kept; without one a rollback would go unseen.
    """
    path = _pin_path(given, snapshot.store_id)
    if (known := read_pin(path)) is not None:
        check_pin(snapshot.path, snapshot.trust, snapshot.manifest, snapshot.log_refs, known)
    try:
        write_pin(path, snapshot.pin())
    except (IncompleteError, UsageError) as error:
        raise type(error)(f"what was seen of the store is not kept: {error}; --pin names another file") from None


def as_signed(text: str, what: str) -> str:
    """Return a name given on the command line as an import writes it, in Unicode form NFC.

    Raises:
        UsageError: bytes that are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is {text!r:.80}, which is not valid UTF-8") from None
    return unicodedata.normalize("NFC", text)


def check_place(out: Path) -> Path:
    """Refuse a file that cannot be written, before the work for it.

    Returns:
        Where to write: of a link its target, so that the link stays one.

    Raises:
        UsageError: there is no such folder, no leave to write there, or something else than a file is there.
    """
    place = Path(os.path.realpath(out)) if out.is_symlink() else out
    if not place.parent.is_dir():
        raise UsageError(f"{out}: there is no folder {place.parent}")
    if out.is_dir():
        raise UsageError(f"{out}: is a folder")
    if place.is_symlink() or (out.exists() and not out.is_file()):  # a link still: one that leads back to itself
        raise UsageError(f"{out}: is there and is no file; writing it would replace it")
    if not os.access(place.parent, os.W_OK):
        raise UsageError(f"{out}: no leave to write in {place.parent}")
    return place


def print_json(value: Any) -> None:
    """Print a value for scripts."""
    print(json.dumps(value, indent=1, sort_keys=True))  # noqa: T201


def seen_stores() -> frozenset[str]:
    """Return the ids of the stores that this user has seen, and pinned in the usual place."""
    return frozenset(path.stem for path in _pins().glob("*.json") if _STORE_ID.fullmatch(path.stem))


def _pin_path(given: Path | None, store_id: str) -> Path:
    return given if given is not None else _pins() / f"{store_id}.json"


def _pins() -> Path:
    return Path(platformdirs.user_state_dir("memaudit")) / "pins"
