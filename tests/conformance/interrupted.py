"""The command line in a child process, which dies or fails at a chosen file operation, or at any moment.

The child is forked with everything imported, so a command takes as long as its work. It counts its file operations in
memory that it shares with its parent, which so knows them also of a child that was killed.
"""
# ruff: noqa: ANN002, ANN003 - whatever is called is counted

import errno
import mmap
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from functools import cache
from typing import Literal

import typer

from memory_audit.errors import AuditError
from memory_audit.jobs.cli import main as cli
from memory_audit.provenance import durable

How = Literal["before", "after", "torn", "refused", "ctrl-c", "moment"]
"""Killed before an operation, after it, or half-way through (a write); it fails; Ctrl-C; killed at any moment."""

CHANGING = ("open", "write", "fsync", "link", "replace", "mkdir", "unlink")
"""What MemAudit changes files with, all of `os` (`memory_audit.provenance.durable`); of `open` what creates."""

REASONS = {"unlink": errno.EPERM}
"""Why an operation fails; the others do since the disk is full."""

SETTINGS = ("MEMAUDIT_KEYS", "MEMAUDIT_TRUST", "MEMAUDIT_GUARD_TOKEN", "MEMAUDIT_BACKBONE_KEY_ENV", "RAY_ADDRESS")


@dataclass(frozen=True)
class Interruption:
    """How and where: the number of the operation, from 0, or seconds since the start."""

    how: How
    at: float


@dataclass(frozen=True)
class Ended:
    """How a command ended; `code` is None where it was killed."""

    code: int | None
    operations: int
    interrupted: bool
    seconds: float
    out: str
    err: str


def run_command(words, folder, interruption=None):
    """Run `memaudit WORDS` in a folder, which holds the user's state too."""
    ready = _ready()
    texts = os.memfd_create("out"), os.memfd_create("err")
    counted = mmap.mmap(-1, mmap.PAGESIZE)  # operations so far; whether it came to where it is interrupted
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        cli.app = ready
        _be_command(words, folder, interruption, counted, texts)
    if interruption is not None and interruption.how == "moment":
        time.sleep(interruption.at)
        os.kill(child, signal.SIGKILL)  # also where it has ended: nobody has waited for it yet
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    seconds = time.perf_counter() - began
    out, err = (os.pread(text, os.fstat(text).st_size, 0).decode() for text in texts)
    for text in texts:
        os.close(text)
    killed = status == -signal.SIGKILL
    operations, interrupted = int.from_bytes(counted[:8], "little"), killed or counted[8] == 1
    counted.close()
    return Ended(None if killed else status, operations, interrupted, seconds, out, err)


@cache
def _ready():
    """Import what commands import, and return what parses them, which otherwise each child would make anew."""
    ready = typer.main.get_command(cli.app)
    try:
        ready(["verify", "nowhere", "--trust", "nowhere"], standalone_mode=False)
    except AuditError:
        return ready
    raise AssertionError("a store is verified where none is")


def _be_command(words, folder, interruption, counted, texts):
    """Run the command and leave the process, whatever happens."""
    code: str | int | None = 99  # a fault of this harness
    try:
        os.chdir(folder)
        for text, standard in zip(texts, (1, 2), strict=True):
            os.dup2(text, standard)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", encoding="utf-8") for number in (1, 2))
        for name in SETTINGS:
            os.environ.pop(name, None)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell takes from what runs behind it
        sys.argv = ["memaudit", *words]
        for name in CHANGING:
            setattr(os, name, _counting(name, getattr(os, name), interruption, counted))
        cli.main()
    except SystemExit as stop:
        code = stop.code
    except BaseException:  # noqa: BLE001 - a fork of the caller must not go on as the caller
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _counting(name, real, interruption, counted):
    def call(*arguments, **options):
        if name == "open" and not arguments[1] & os.O_CREAT:
            return real(*arguments, **options)
        scratch = name == "unlink" and durable.is_leftover(arguments[0])  # where it was made it can be removed
        number = int.from_bytes(counted[:8], "little")
        counted[:8] = (number + 1).to_bytes(8, "little")
        if interruption is None or interruption.how == "moment" or interruption.at != number:
            return real(*arguments, **options)
        counted[8] = 1
        if interruption.how == "refused" and not scratch:
            raise OSError(reason := REASONS.get(name, errno.ENOSPC), os.strerror(reason))
        if interruption.how == "ctrl-c":
            signal.raise_signal(signal.SIGINT)
        if interruption.how == "refused":
            return real(*arguments, **options)
        try:
            if interruption.how == "torn" and name == "write":
                real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            if interruption.how == "after":
                real(*arguments, **options)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    return call
