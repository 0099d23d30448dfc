"""What commands share: options, the policy, and what this user saw last of a store."""

from __future__ import annotations

import json
import re
import tempfile
import unicodedata
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import platformdirs
import typer

from memory_audit.errors import IncompleteError, UsageError, VerificationError
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.places import check_outside_stores
from memory_audit.provenance import durable
from memory_audit.provenance.keys import POLICY_FILE, load_policy
from memory_audit.snapshot.newest import read_newest
from memory_audit.snapshot.pin import Pin, read_pin, write_pin
from memory_audit.snapshot.reader import VerifiedSnapshot, check_pin, open_snapshot

if TYPE_CHECKING:
    from memory_audit.provenance.trust_policy import TrustPolicy

__all__ = [
    "DEFAULT_KEYS", "FINDINGS", "VERSION", "BackboneKeyEnv", "Json", "Keys", "PinFile", "Quiet", "Store", "Trust",
    "as_signed", "check_pin_place", "installed_policy", "known_pin", "print_json", "remember", "seen_stores",
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
VERSION = version("memory-audit")

_STORE_ID = re.compile(r"[0-9a-f]{32}")

FINDINGS = 1
"""Exit code of a command that was told to fail on what it found."""


def installed_policy(keys: Path, trust: Path | None) -> TrustPolicy:
    """Return the policy that the user trusts."""
    return load_policy(trust if trust is not None else keys / POLICY_FILE)


def known_pin(store: Path, given: Path | None, policy: TrustPolicy, now: int) -> Pin | None:
    """Read what this user saw last of the store; None on first use."""
    newest = read_newest(store, policy, now_ms=now, check_expiry=False)
    return read_pin(_pin_path(given, newest.store_id))


def check_pin_place(given: Path | None) -> None:
    """Make sure, before anything is published, that a pin of it can be kept.

    Raises:
        UsageError: the pin would lie among the files of a store, or where no folder can be.
        IncompleteError: the folder cannot be made, or not be written to.
    """
    path = _pin_path(given, "any")
    try:
        durable.ensure_folder(path.parent)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except (IncompleteError, UsageError) as error:
        raise type(error)(f"no pin could be kept: {error}; --pin names another file") from None
    except OSError as error:
        raise IncompleteError(
            f"no pin could be kept: cannot write {path} ({error.strerror}); --pin names another file"
        ) from None


def remember(snapshot: VerifiedSnapshot, given: Path | None, *, published: int | None = None) -> None:
    """Keep what this user saw of the store.

    Where the pin is ahead, others published and saw it while the command ran, or the store was rolled back: its newest
    version, looked at again, must go on from both.

    Args:
        snapshot: What was seen.
        given: The file of --pin.
        published: The version that this command published; whoever started it is told so where no pin can be kept.

    Raises:
        VerificationError: it shows less than this user saw before.
        IncompleteError, UsageError: the pin cannot be kept; without one a rollback would go unseen. With `published`
            always IncompleteError.
    """
    path = _pin_path(given, snapshot.store_id)
    pin = snapshot.pin()
    try:
        if (known := read_pin(path)) is not None:
            check_pin(snapshot.path, snapshot.trust, snapshot.manifest, snapshot.log_refs, known)
        write_pin(path, pin)
    except VerificationError:
        known = read_pin(path)
        if known is None or known.store_id != pin.store_id or known.version <= pin.version:
            raise
        for seen in (known, pin):
            open_snapshot(snapshot.path, snapshot.trust, now_ms=now_ms(), pin=seen, check_expiry=False)
    except (IncompleteError, UsageError) as error:
        kept = f"what was seen of the store is not kept: {error}; --pin names another file"
        if published is None:
            raise type(error)(kept) from None
        raise IncompleteError(
            f"version {published} of {snapshot.path} is published, but {kept}; then start the same command again"
        ) from None


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


def print_json(value: Any) -> None:
    """Print a value for scripts."""
    print(json.dumps(value, indent=1, sort_keys=True))  # noqa: T201


def seen_stores() -> frozenset[str]:
    """Return the ids of the stores that this user has seen, and pinned in the usual place."""
    return frozenset(path.stem for path in _pins().glob("*.json") if _STORE_ID.fullmatch(path.stem))


def _pin_path(given: Path | None, store_id: str) -> Path:
    if given is None:
        return _pins() / f"{store_id}.json"
    check_outside_stores(given)
    return given


def _pins() -> Path:
    return Path(platformdirs.user_state_dir("memaudit")) / "pins"
