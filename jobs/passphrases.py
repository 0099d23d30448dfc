"""Passphrases of keys and PINs of their tokens: from a file, a variable or the terminal, and never an argument.

The file comes first, then the variable, then the terminal, where a person sits at one. The file may be a folder with a
file for each key, named as the key's file is without `.key`: so a cluster mounts its secrets.
"""

from __future__ import annotations

import getpass
import os
import sys
import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.jobs.secret_file import read_secret
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NEW_VARIABLE", "PASSPHRASES", "VARIABLE", "Passphrases"]

VARIABLE, NEW_VARIABLE = "MEMAUDIT_PASSPHRASE", "MEMAUDIT_NEW_PASSPHRASE"

MAX_BYTES = 1_024


class Passphrases:
    """Where the passphrases of one start of the program come from.

    Args:
        file: A file with that of all keys, or a folder with a file for each.
        variable: Name of the environment variable, which is taken out of the environment: processes that are started
            later do not inherit it.
        option: Of the command line, that names the file; for errors.
    """

    def __init__(self, file: Path | None, variable: str = VARIABLE, option: str = "--passphrase-file") -> None:
        self._file, self._variable, self._option = file, variable, option
        self._value = os.environ.pop(variable, None)
        self._typed: dict[str, bytes] = {}

    def __call__(self, name: str) -> bytes:
        """Return the passphrase of a key, or the PIN of its token.

        Raises:
            UsageError: there is none, or it cannot be read.
        """
        given = self.given(name)
        if given is None and name not in self._typed and _is_terminal():
            self._typed[name] = _checked(_typed(f"passphrase or PIN of {as_line(name, 80)}: "))
        if given is None and name not in self._typed:
            raise UsageError(f"key {name:.80} needs its passphrase, or the PIN of its token: {self._ways()}")
        return self._typed[name] if given is None else given

    def given(self, name: str) -> bytes | None:
        """Return what file or variable say; None where there is neither. Raises like a call."""
        if self._file is not None:
            file = self._file / name.replace("/", "-") if self._file.is_dir() else self._file
            return _checked(read_secret(file, "passphrase", MAX_BYTES).removesuffix(b"\n").removesuffix(b"\r"))
        return None if self._value is None else _checked(os.fsencode(self._value))

    def new(self, name: str, *, may_be_empty: bool = False) -> bytes | None:
        """Return the passphrase that a key is to have: at the terminal it is asked for twice.

        Args:
            name: Of the key; at the terminal one is asked for all keys.
            may_be_empty: Whether there may be none; so it is where nobody can be asked.

        Raises:
            UsageError: there is none and must be one, it cannot be read, or it was mistyped.
        """
        given = self.given(name)
        if given is not None:
            return given
        if "" not in self._typed and _is_terminal():
            text = _typed(f"new passphrase{' (empty for none)' if may_be_empty else ''}: ")
            if text and text != _typed("the same again: "):
                raise UsageError("these were two different passphrases: nothing was written")
            self._typed[""] = text
        if self._typed.get(""):
            return _checked(self._typed[""])
        if not may_be_empty:
            raise UsageError(f"no new passphrase: {self._ways()}")
        return None

    def _ways(self) -> str:
        return f"give {self._option} FILE, set {self._variable}, or start this at a terminal"


PASSPHRASES: ContextVar[Passphrases] = ContextVar("PASSPHRASES")
"""Of this start of the program: what is typed once is remembered to its end."""


def _checked(text: bytes) -> bytes:
    if not 0 < len(text) <= MAX_BYTES:
        raise UsageError(f"a passphrase has {len(text):,} bytes, expected 1 to {MAX_BYTES:,}")
    return text


def _is_terminal() -> bool:
    return sys.stderr.isatty()


def _typed(prompt: str) -> bytes:
    """Ask at the terminal, past standard input, which may hold memories."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return os.fsencode(getpass.getpass(prompt))
        except (getpass.GetPassWarning, EOFError):
            raise UsageError("nobody answers at the terminal") from None
