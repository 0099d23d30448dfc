"""Where a command may write: nowhere among the files of a store or of a key folder, and over nothing that was signed.

A store may lie in a folder that holds other things too (`memory_audit.snapshot.layout`), so only its own folders are
closed. Whoever names a place is its owner and may be mistaken; this is no defence against somebody else.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from memory_audit.errors import UsageError
from memory_audit.jobs.run.run_files import MARKER_FILE, MODELS_FILE, RESULT_FILE
from memory_audit.provenance import durable
from memory_audit.provenance.keys import POLICY_FILE
from memory_audit.snapshot.layout import STORE_FOLDERS, has_store

__all__ = ["check_file", "check_folder", "check_outside_stores", "check_place"]

OF_A_RUN = frozenset({MODELS_FILE, RESULT_FILE})
"""Files of a run folder that do not say so themselves."""

HEAD_BYTES = 1_024
"""Of a file, enough to see what it is."""

DECISION = b'{"allowed": '
"""How a line of `memory_audit.guard.decision_log` begins."""

_SIGNED = re.compile(
    rb'\{"payload":"|\{[^{}]*"format": ?"memaudit |'
    rb"PRIVATE\+KEY\+|(?:[^\n+]+\+[0-9a-f]{8}\+[^\n]+\n)?(?:-----BEGIN [A-Z ]*PRIVATE KEY-----|pkcs11:)"
)
"""How envelopes (policies, manifests, attestations), pins and other files of ours begin, and private keys."""


def check_place(out: Path) -> Path:
    """Refuse a file that cannot be written or must not be replaced, before the work for it.

    What killed commands left beside it is removed.

    Returns:
        Where to write: of a link its target, so that the link stays one.

    Raises:
        UsageError: there is no such folder, no leave to write there, or something else than a file is there; it lies
            among the files of a store, in a key folder, or is signed, a key, a pin or a part of a run.
    """
    place = Path(os.path.realpath(out)) if out.is_symlink() else out
    if not place.parent.is_dir():
        raise UsageError(f"{out}: there is no folder {place.parent}")
    if out.is_dir():
        raise UsageError(f"{out}: is a folder")
    if place.is_symlink() or (out.exists() and not out.is_file()):  # a link still: one that leads back to itself
        raise UsageError(f"{out}: is there and is no file; writing it would replace it")
    check_file(place)
    if place.is_file() and _head(place).startswith(DECISION):
        raise UsageError(f"{out}: is a decision log, which nothing may replace; choose another name")
    if not os.access(place.parent, os.W_OK):
        raise UsageError(f"{out}: no leave to write in {place.parent}")
    durable.remove_leftovers(place.parent)  # a part of an export is text that a later vacuum cannot know
    return place


def check_file(file: Path) -> None:
    """Refuse a file to write among those of a store, a key folder or a run, or over one that is signed or a key.

    Raises:
        UsageError: it is there, or is that.
    """
    check_folder(Path(os.path.realpath(file)).parent)
    if file.name in OF_A_RUN and (file.parent / MARKER_FILE).exists():
        raise UsageError(f"{file}: is a part of the run {file.parent}; choose another name")
    if file.is_file() and _SIGNED.match(_head(file)):
        raise UsageError(f"{file}: is a file of MemAudit, which nothing may replace; choose another name")


def check_folder(folder: Path) -> None:
    """Refuse a folder to write into that is a key folder, or one of a store's own.

    Raises:
        UsageError: it is, or lies in one.
    """
    check_outside_stores(folder)
    if (folder / POLICY_FILE).is_file() and any(folder.glob("*.key*")):
        raise UsageError(f"{folder}: is a key folder; choose another one")


def check_outside_stores(path: Path) -> None:
    """Refuse a path among the files of a store.

    Raises:
        UsageError: it is one of a store's own folders, or lies in one.
    """
    real = Path(os.path.realpath(path))
    for folder in (real, *real.parents):
        if folder.name in STORE_FOLDERS and has_store(folder.parent):
            raise UsageError(f"{path}: lies among the files of the store {folder.parent}; choose another place")


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(HEAD_BYTES)
    except OSError as error:
        raise UsageError(f"{file}: is there and cannot be read ({error.strerror}); choose another name") from None
