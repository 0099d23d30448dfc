"""Compares what results record now with what they recorded at another revision, and prints every difference.

    python -m benchmarks.harness.decisions BASE     # exit code 1 where anything differs

BASE is a git revision; now is the working tree. Compared are the configuration, every row and every bar. When, where
and by which command a result was made is no decision (`commit`, `started`, `seconds`, `command`, `machine`), nor is
whom a bar is about (`of`).
"""

from __future__ import annotations

import argparse
import difflib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.harness.command import run
from benchmarks.harness.resultfile import RESULTS
from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["differences", "recorded_at", "recorded_now"]

NO_DECISION = frozenset({"commit", "started", "seconds", "command", "machine"})
MOST_SHOWN = 300
"""Letters of a row or value that are printed."""

Results = dict[str, dict[str, Any]]


def recorded_now(folder: Path = RESULTS) -> Results:
    """Return the results of a folder, by file name."""
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}


def recorded_at(revision: str, folder: Path = RESULTS) -> Results:
    """Return the results that the folder had at a revision of its repository, by file name.

    Raises:
        UsageError: git does not know the revision.
    """
    listed = _git(folder, "ls-tree", "-z", "--name-only", revision, "--", "./")
    names = [name for name in listed.split("\0") if name.endswith(".json")]
    return {name: json.loads(_git(folder, "show", f"{revision}:./{name}")) for name in names}


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(("git", *words), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"git {' '.join(words[:1])}: {done.stderr.strip()}")
    return done.stdout


def differences(before: Results, after: Results) -> Iterator[str]:
    """Yield a line for each difference, by file."""
    for name in sorted(before.keys() | after.keys()):
        if name not in after or name not in before:
            yield f"{name}: {'gone' if name in before else 'new'}"
            continue
        old, new = ({key: part for key, part in of[name].items() if key not in NO_DECISION} for of in (before, after))
        for part in sorted(old.keys() | new.keys()):
            for line in _of_part(old.get(part), new.get(part)):
                yield f"{name}: {part}: {line}"


def _of_part(old: Any, new: Any) -> Iterator[str]:
    """Lists are lists of rows or bars: what is inserted or lost is told apart from what has changed."""
    if not isinstance(old, list) or not isinstance(new, list):
        yield from _of_values("", old, new)
        return
    old, new = ([_without_of(row) for row in rows] for rows in (old, new))
    before, after = ([_text(row) for row in rows] for rows in (old, new))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, end, other, other_end in matcher.get_opcodes():
        if kind == "replace" and end - first == other_end - other:
            for number, (was, now) in enumerate(zip(old[first:end], new[other:other_end], strict=True), first):
                yield from _of_values(f"[{number}]", was, now)
        elif kind != "equal":
            yield from (f"- {text[:MOST_SHOWN]}" for text in before[first:end])
            yield from (f"+ {text[:MOST_SHOWN]}" for text in after[other:other_end])


def _of_values(place: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _of_values(f"{place}.{key}", old.get(key), new.get(key))
    elif _text(old) != _text(new):  # not `old != new`: 1 is True there
        yield f"{place} {str(old)[:MOST_SHOWN]} -> {str(new)[:MOST_SHOWN]}".lstrip()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _without_of(row: Any) -> Any:
    return {key: value for key, value in row.items() if key != "of"} if isinstance(row, dict) else row


def main() -> None:
    """Print every difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE", help="a git revision")
    before, after = recorded_at(parser.parse_args().base), recorded_now()
    found = list(differences(before, after))
    print(*found, f"{len(found)} differences in {len(after)} results", sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    run(main)
