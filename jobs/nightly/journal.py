"""The nights of a store: what each step of a night did, written down when it was done.

    RUNS/night-000017/night.json          the record: {"format", "store", "started_ms", "steps": {step: what it did}}
    RUNS/night-000017/events.jsonl        the events of that night
    RUNS/night-000017/audit-<run id>/     its run folder (`memory_audit.jobs.run.run_folder`)

A night whose record has no step END is unfinished, and the next start continues it. The record says what need not be
done again, and nothing that a purge goes by: that is the sealed run and the policy.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_regular
from memory_audit.jobs.places import check_folder
from memory_audit.provenance import durable
from memory_audit.provenance.mirror import mirror_of
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["END", "NIGHT_FILE", "Night", "last_finished", "nights", "open_night", "progress_of", "prune"]

NIGHT_FILE = "night.json"
FORMAT = "memaudit night v1"
END = "end"

MAX_RECORD_BYTES = 64 << 20
"""Names of a hundred thousand tenants."""

_NAME = re.compile(r"night-([0-9]{6,9})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """One night."""

    path: Path
    store: str
    """Absolute path."""

    started_ms: int
    steps: dict[str, Any]
    """What each step that is done did: plain JSON."""

    @property
    def number(self) -> int:
        """Its number, from 1."""
        return int(self.path.name.removeprefix("night-"))

    def step(self, name: str, work: Callable[[], Mapping[str, object]]) -> Mapping[str, Any]:
        """Do a step, unless it is done, and return what it did."""
        if name not in self.steps:
            self.steps[name] = json.loads(json.dumps(work()))
            self.write()
        found: Mapping[str, Any] = self.steps[name]
        return found

    def write(self) -> None:
        """Put the record on disk, whole or not at all.

        Raises:
            IncompleteError: the disk is full or refuses.
        """
        record = {"format": FORMAT, "store": self.store, "started_ms": self.started_ms, "steps": self.steps}
        durable.replace(self.path / NIGHT_FILE, json.dumps(record, indent=1).encode())


def nights(runs: Path) -> list[Path]:
    """Return the folders of a store's nights, in their order."""
    found = [path for path in runs.iterdir() if _NAME.fullmatch(path.name)] if runs.is_dir() else []
    return sorted((path for path in found if not path.is_symlink()), key=lambda path: int(path.name[6:]))


def open_night(runs: Path, store: Path, now_ms: int) -> Night:
    """Return the night that is to be continued, or a new one; whoever calls holds the lease of the store.

    Raises:
        UsageError: the folder is one of a store or of keys, or holds the nights of another store; a damaged record.
        IncompleteError: it cannot be written to.
    """
    check_folder(runs)
    mirror = mirror_of(store)
    named = str(store.resolve()) if mirror is None else mirror.remote.address
    known = nights(runs)
    last = read_night(known[-1]) if known else None
    if last is not None and last.store != named:
        raise UsageError(f"{runs}: holds the nights of {last.store}, not of {named}")
    for folder in (runs, *known[-1:]):
        durable.remove_leftovers(folder)
    if last is not None and END not in last.steps:
        return last
    number = last.number + 1 if last is not None else int(known[-1].name[6:]) if known else 1
    night = Night(path=runs / f"night-{number:06}", store=named, started_ms=now_ms, steps={})
    durable.ensure_folder(night.path)
    night.write()
    return night


def last_finished(runs: Path) -> Night | None:
    """Return the last night that came to its end; None where there is none."""
    for path in reversed(nights(runs)):
        night = read_night(path)
        if night is not None and END in night.steps:
            return night
    return None


def progress_of(runs: Path) -> list[str]:
    """Say of the last night which steps are done.

    Raises:
        UsageError: there is no night, or its record is damaged.
    """
    known = nights(runs)
    night = read_night(known[-1]) if known else None
    if night is None:
        raise UsageError(f"{runs}: no night yet")
    if END in night.steps:
        return [f"night {night.number} ended with exit code {night.steps[END].get('exit_code')}: {night.path}"]
    return [f"night {night.number}, done: {', '.join(map(as_line, night.steps)) or 'nothing'}: {night.path}"]


def read_night(path: Path) -> Night | None:
    """Read a record; None for a night that was killed before it had one.

    Raises:
        UsageError: it is damaged.
    """
    file = path / NIGHT_FILE
    try:
        record = outside_json.decode(read_regular(file, MAX_RECORD_BYTES), str(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from None
    if isinstance(record, dict) and record.get("format") == FORMAT:
        store, started, steps = record.get("store"), record.get("started_ms"), record.get("steps")
        if isinstance(store, str) and isinstance(started, int) and isinstance(steps, dict):
            return Night(path=path, store=store, started_ms=started, steps=steps)
    raise UsageError(f"{file}: not a {FORMAT}; move that folder away")


def prune(runs: Path, keep: int) -> int:
    """Delete what older nights hold besides records, seals and attestations; return how many files went."""
    gone = 0
    for night in nights(runs)[:-keep]:
        for folder, _, files in os.walk(night, topdown=False):
            for name in files:
                if name != NIGHT_FILE and not name.endswith(".dsse.json"):
                    durable.remove(Path(folder, name))
                    gone += 1
            with contextlib.suppress(OSError):  # it is not empty
                Path(folder).rmdir()
    return gone
