"""What commands share: options, and how they print."""

from __future__ import annotations

import json
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory_audit.errors import UsageError
from memory_audit.jobs.audit_options import BackboneKeyEnv
from memory_audit.jobs.passphrases import PASSPHRASES
from memory_audit.jobs.run.run_audit import start_models
from memory_audit.jobs.store.object_store import place_of
from memory_audit.jobs.store.store_session import StoreSession
from memory_audit.jobs.watching.log import LOG
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.jobs.watching.run_metrics import RunMetrics
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.provenance.keys import POLICY_FILE, load_keyring, load_policy
from memory_audit.provenance.mirror import with_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.watching.status import StatusFile
    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.trust_policy import TrustPolicy

__all__ = [
    "DEFAULT_KEYS", "FINDINGS", "VERSION", "BackboneKeyEnv", "Invocation", "Json", "Keys", "PinFile", "Quiet",
    "Reading", "SourceOptions", "Store", "TaxonomyFile", "Trust", "Wait", "as_signed", "check_choice",
    "installed_policy", "open_keyring", "print_json", "print_lines", "watched",
]  # fmt: skip

Store = Annotated[
    Path,
    typer.Argument(
        parser=place_of, help="Folder of the signed store, or its address: s3://bucket/prefix, gs://…, az://…."
    ),
]  # fmt: skip
Keys = Annotated[Path, typer.Option("--keys", envvar="MEMAUDIT_KEYS", help="Key folder, made by `memaudit keys new`.")]
Trust = Annotated[
    Path | None,
    typer.Option("--trust", envvar="MEMAUDIT_TRUST", help="Trust policy file; default: the one in the key folder."),
]
PinFile = Annotated[
    Path | None,
    typer.Option("--pin", help="File that remembers the newest version seen; default: in your user state folder."),
]
TaxonomyFile = Annotated[Path | None, typer.Option("--taxonomy", help="Taxonomy file; default: the packaged one.")]
SourceOptions = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="An option of the system; repeatable.")
]
Wait = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for others who hold the store.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
DEFAULT_KEYS = Path("memaudit-keys")
VERSION = version("memory-audit")

FINDINGS = 1
"""Exit code of a command that was told to fail on what it found."""


@dataclass(slots=True, kw_only=True)
class Invocation:
    """One start of the program."""

    command: str | None = None
    """Its subcommand, once that is known."""

    start: Callable[..., Executor] = start_models
    """Starts the models of an audit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Whom a reader of a store trusts, and what he saw of it last."""

    keys: Keys = DEFAULT_KEYS
    trust: Trust = None
    pin: PinFile = None

    def policy(self) -> TrustPolicy:
        """Return the policy that the user trusts."""
        return installed_policy(self.keys, self.trust)

    def open(self, store: Path, now_ms: int) -> StoreSession:
        """Open a store to read it. Raises like `StoreSession.open`."""
        return StoreSession.open(store, self.policy(), self.pin, now_ms=now_ms)


def installed_policy(keys: Path, trust: Path | None) -> TrustPolicy:
    """Return the policy that the user trusts."""
    return load_policy(trust if trust is not None else keys / POLICY_FILE)


def open_keyring(keys: Path) -> Keyring:
    """Read a key folder; passphrases and PINs are asked for when its keys sign. Raises like `load_keyring`."""
    return load_keyring(keys, PASSPHRASES.get())


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


def check_choice(option: str, given: str | None, *known: str) -> None:
    """Refuse what is none of the words that an option takes.

    Raises:
        UsageError: names them.
    """
    if given is not None and given not in known:
        raise UsageError(f"{option} is {given!r:.40}, expected {' or '.join(known)}")


@contextmanager
def watched(
    console: Console | None, status: StatusFile, store: Path, metrics: Path | None, *, quiet: bool
) -> Iterator[None]:
    """Show what is told inside, and write it where `memaudit status` and Prometheus look for it."""
    tally = status.tally
    with (
        RunMetrics(tally, str(store.absolute()), metrics), status,
        Reporter(console, quiet=quiet, heard=status, tally=tally, log=LOG.get()),
    ):  # fmt: skip
        yield


def print_json(value: Any) -> None:
    """Print a value for scripts."""
    print(with_addresses(json.dumps(value, indent=1, sort_keys=True)))  # noqa: T201


def print_lines(*lines: str, stderr: bool = False) -> None:
    """Print lines for people; nothing in them is taken for markup."""
    console, log = terminal(stderr=stderr), LOG.get() if stderr else None
    for line in lines:
        line = with_addresses(line)  # noqa: PLW2901 - as people know the place
        if log is not None:
            log(line, level="warning")
        else:
            console.print(line, markup=False, highlight=False)
