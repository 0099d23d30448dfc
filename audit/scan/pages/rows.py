"""Findings as compact columns of JSON, which the page's script shows a screen at a time.

What repeats is told once: kind, severity and state together, tenants, and messages without their numbers. Everything is
made safe for a line here, and the script shows it as text only.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory_audit.report.untrusted import as_line
from memory_audit.scan.finding import SEVERITIES
from memory_audit.scan.forms.words import described, memories

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memory_audit.scan.pages.ranking import Ranked
    from memory_audit.scan.result import ScanResult

__all__ = ["MAX_BYTES", "Rows", "pages_of_rows"]

MAX_BYTES = 4_400_000
"""Of one page's rows: with style, script and the table's first screen the page stays below 5 MB."""

ROW_BYTES = 24
"""Of a row beside its texts: numbers, commas and quotation marks."""

MESSAGE_CHARS = 300
PLACE = "\x01"
"""Where a number stands in a message: no line that is safe to show has this character."""

_NUMBER = re.compile(r"\d[\d,.]*\d|\d")


@dataclass(slots=True)
class Rows:
    """One page's findings."""

    first: int
    """Rank of the first."""

    count: int = 0
    bytes: int = 0
    _columns: dict[str, list[object]] = field(
        default_factory=lambda: {name: [] for name in ("class", "tenant", "message", "numbers", "id", "more", "card")}
    )
    _lists: dict[str, dict[str, int]] = field(
        default_factory=lambda: {name: {} for name in ("classes", "tenants", "messages")}
    )

    def add(self, ranked: Ranked, result: ScanResult) -> None:
        """Take the next finding."""
        finding = ranked.known.finding
        title = as_line(described(result, finding.kind).title)
        message = as_line(finding.message, MESSAGE_CHARS)
        numbers = "|".join(_NUMBER.findall(message))
        name = as_line(finding.entry_ids[0]) if finding.entry_ids else ""
        severity = SEVERITIES.index(finding.severity)
        values = {
            "class": self._of("classes", json.dumps([title, severity, ranked.known.state])),
            "tenant": self._of("tenants", as_line(finding.tenant)),
            "message": self._of("messages", _NUMBER.sub(PLACE, message)),
            "numbers": numbers or 0, "id": name, "more": max(memories(finding) - 1, 0),
            "card": -1 if ranked.card is None else ranked.card,
        }  # fmt: skip
        for column, value in values.items():
            self._columns[column].append(value)
        self.count += 1
        self.bytes += ROW_BYTES + len(numbers) + len(json.dumps(name))

    def _of(self, name: str, value: str) -> int:
        known = self._lists[name]
        if value not in known:
            self.bytes += len(json.dumps(value))
        return known.setdefault(value, len(known))

    @property
    def tenants(self) -> int:
        """How many tenants they are of."""
        return len(self._lists["tenants"])

    def to_json(self) -> str:
        """Return text that may stand in a script element: no `<` is in it."""
        classes = [json.loads(value) for value in self._lists["classes"]]
        lists = {name: list(values) for name, values in self._lists.items()}
        record = {"first": self.first, **lists, "classes": classes, "columns": self._columns}
        return json.dumps(record, separators=(",", ":")).replace("<", "\\u003c")


def pages_of_rows(ranked: Iterable[Ranked], result: ScanResult) -> Iterator[Rows]:
    """Yield pages of findings, in their order, none beyond MAX_BYTES; at least one."""
    rows = Rows(0)
    for one in ranked:
        if rows.bytes > MAX_BYTES:
            yield rows
            rows = Rows(rows.first + rows.count)
        rows.add(one, result)
    yield rows
