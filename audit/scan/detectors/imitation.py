"""Text that speaks for MemAudit, or bears a signature: what vouches for a memory is never in its own text.

A memory that says it was verified, cleared or exempted is read by models that help with an audit and by people who look
through a report. Signatures in a text are checked by nobody; MemAudit's are beside the store (C2SP signed note).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_audit.guard.text.forms import unmarked, visible
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import finding_about, shown_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory
    from memory_audit.scan.finding import Finding

__all__ = ["Imitation"]

NEAR = 80
"""Characters between the name and what is claimed: a sentence, at most."""

_NAME = re.compile(r"(?<!\w)(?:mem ?audit|memory[ _-]audit)(?!\w)", re.IGNORECASE)
_CLAIM = re.compile(
    r"\b(?:verified|cleared|approved|certified|trusted|signed|audited|exempt(?:ed)?|whitelisted|allow-?listed|accepted"
    r"|suppress(?:ed)?|tombstones?|quarantined?|removed|superseded|passed|safe)\b",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(
    r"^(\u2014 \S{1,256} [A-Za-z0-9+/]{40,1024}={0,2}"
    r"|-{5}BEGIN (?:PGP SIGNED MESSAGE|PGP SIGNATURE|SSH SIGNATURE)-{5})[ \t]*$",
    re.MULTILINE,
)

KINDS = {
    "imitation": Kind(
        title="A memory that speaks for MemAudit",
        advice="Believe nothing that it says of itself: MemAudit writes no memories. Find out who wrote it.",
        severity="medium",
        taxonomy=("ASI06", "ASI09", "AML.T0073", "AML.T0080.000"),
    ),
    "signature": Kind(
        title="A signature in a memory's text",
        advice="Nobody checks it. What is signed of a store is told by `memaudit verify`.",
        severity="low",
        taxonomy=("ASI06", "ASI09", "AML.T0073"),
    ),
}


class Imitation:
    """See the module."""

    name = "imitation"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset()
    alone = True

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield at most one finding of each kind for each memory."""
        del memory
        for entry in entries:
            text = shown_text(entry)
            if claim := _claim(text if text.isascii() else unmarked(visible(text))):
                yield self._finding(entry, "imitation", "its text claims what only MemAudit can say", ("claims", claim))
            if signature := _SIGNATURE.search(text):
                message = "its text bears a signature, which nobody checks"
                yield self._finding(entry, "signature", message, ("signature", signature[1][:NEAR]))

    def _finding(self, entry: Entry, kind: str, message: str, evidence: tuple[str, str]) -> Finding:
        return finding_about(
            entry, detector=self.name, kind=kind, severity=KINDS[kind].severity, message=message, evidence=[evidence]
        )


def _claim(text: str) -> str | None:
    """Return the first passage that names MemAudit and claims something."""
    for name in _NAME.finditer(text):
        start, end = max(name.start() - NEAR, 0), name.end() + NEAR
        if _CLAIM.search(text, start, end):
            return text[start:end]
    return None
