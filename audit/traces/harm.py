"""Which traces were harmful, and which benign, by rules that a user states over their scores.

    harm>=0.5        a number: < <= = >= >
    verdict=harmful  a label, in any case; true and false are 1 and 0 too

A trace without such a score is neither: unknown is not benign. Where both rules hold the trace is harmful. A CSV file
may say so by trace id instead: `trace_id`, then optionally `label` (harmful or benign) and `source`, such as a ticket.
"""

from __future__ import annotations

import csv
import operator
import re
from typing import TYPE_CHECKING

import msgspec

from memory_audit.entry import MAX_NAME_BYTES
from memory_audit.errors import UsageError
from memory_audit.traces.records import as_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memory_audit.events import HarmLabel
    from memory_audit.traces.records import Score

__all__ = ["HarmRule", "Label", "label_of", "parse_rule", "read_labels"]

MAX_LABELS = 1_000_000

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "=": operator.eq,
}  # fmt: skip
_RULE = re.compile(r"\s*([^<>=]{1,256}?)\s*(>=|<=|>|<|=)\s*(.{1,256}?)\s*")
_SAID = {"true": 1.0, "false": 0.0}


class HarmRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule over one score."""

    name: str
    compare: str
    than: str

    def holds(self, score: Score) -> bool:
        """Tell whether a score is of this name and meets the threshold."""
        if score.name != self.name:
            return False
        if self.compare == "=" and score.label and score.label.casefold() == self.than.casefold():
            return True
        value = _SAID.get(score.label.casefold()) if score.value is None else score.value
        than = _number(self.than)
        return value is not None and than is not None and _COMPARE[self.compare](value, than)


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a trace's harm, and from where."""

    harm: HarmLabel
    source: str


def parse_rule(text: str, option: str) -> HarmRule:
    """Read a rule from the command line.

    Raises:
        UsageError: it is none, or compares with what is no number otherwise than by `=`.
    """
    found = _RULE.fullmatch(text)
    if found is None or (found[2] != "=" and _number(found[3]) is None):
        raise UsageError(f"{option} is {text!r:.80}, expected a score and a threshold, as in harm>=0.5 or verdict=bad")
    return HarmRule(name=found[1], compare=found[2], than=found[3])


def label_of(scores: Iterable[Score], harmful: Iterable[HarmRule], benign: Iterable[HarmRule]) -> Label | None:
    """Return what the scores of a trace say; None where no rule holds."""
    known = list(scores)
    for harm, rules in (("harmful", harmful), ("benign", benign)):
        for rule in rules:
            for score in known:
                if rule.holds(score):
                    said = score.label or f"{score.value:g}"
                    return Label(harm=harm, source=f"score {score.name}: {said}"[: MAX_NAME_BYTES // 4])  # type: ignore[arg-type]
    return None


def read_labels(lines: Iterable[str], source: str) -> Mapping[str, Label]:
    """Read a CSV file of trace ids.

    Raises:
        UsageError: names the line; no header with `trace_id`, another label, an id that is none or has two labels.
    """
    found: dict[str, Label] = {}
    try:
        rows = csv.DictReader(lines, strict=True)
        if "trace_id" not in (rows.fieldnames or ()):
            raise UsageError(f"{source}, line 1: expected a header with trace_id, and optionally label and source")
        for row in rows:
            where = f"{source}, line {rows.line_num}"
            trace_id, harm = as_id(row["trace_id"]), row.get("label") or "harmful"
            if not trace_id or harm not in ("harmful", "benign"):
                raise UsageError(f"{where}: expected a trace id, and harmful or benign as label")
            label = Label(harm=harm, source=(row.get("source") or source)[: MAX_NAME_BYTES // 4])  # type: ignore[arg-type]
            if found.setdefault(trace_id, label).harm != harm or len(found) > MAX_LABELS:
                raise UsageError(f"{where}: trace {trace_id!r:.80} has two labels, or there are over {MAX_LABELS}")
    except (csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: no CSV file in UTF-8 ({error!s:.120})") from None
    return found


def _number(text: str) -> float | None:
    try:
        return _SAID[text.casefold()] if text.casefold() in _SAID else float(text)
    except ValueError:
        return None
