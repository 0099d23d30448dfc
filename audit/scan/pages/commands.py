"""What to do about a finding, as commands to copy.

A command is given only where every name in it is what it looks like: an id with hidden characters is not to be pasted.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from memory_audit.scan.finding import Finding

__all__ = ["Command", "Places", "commands", "is_plain"]

MAX_CHARS = 400
"""Of a name in a command."""

MAX_NAMED = 20
"""Memories that one command removes."""

FINGERPRINT_DIGITS = 16


class Places(NamedTuple):
    """Where the scan was made, as a person would type it."""

    run: str
    """Its run folder."""

    store: str | None
    """Folder or address of the signed store; None of an agent's own memory."""


class Command(NamedTuple):
    """A line to paste into a shell, and when to."""

    purpose: str
    line: str


def is_plain(text: str) -> bool:
    """Tell whether a name is one short line of visible characters."""
    return as_line(text, MAX_CHARS) == text


def commands(finding: Finding, places: Places) -> list[Command]:
    """Return what can be done: look at the harm, remove the memory, or accept the finding."""
    found: list[tuple[str, tuple[str, ...]]] = []
    if places.store is not None:
        audit = ("memaudit", "audit", places.store, "--events=events.jsonl", "--out=audit-run")
        found.append(("If answers went wrong: measure which memories caused them", audit))
        going = (finding.entry_ids[1:] if finding.kind == "copies" else finding.entry_ids[:1])[:MAX_NAMED]
        if going:
            what = "the copies" if finding.kind == "copies" else "this memory"
            reason = f"--reason=scan: {finding.kind}"
            forget = ("memaudit", "forget", f"--tenant={finding.tenant}", reason, "--", places.store, *going)
            found.append((f"Show what removing {what} would do; with --apply before -- it is removed", forget))
    accept = ("memaudit", "accept", places.run, finding.fingerprint[:FINGERPRINT_DIGITS], "--reason=WHY")
    found.append(("If it is no problem: write down why, and it is told no more", accept))
    return [Command(purpose, shlex.join(words)) for purpose, words in found if all(map(is_plain, words))]
