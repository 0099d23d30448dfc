"""A scan as a summary in Markdown (GFM), for a pull request or a job's page.

What others may have written (ids, tenants, reasons) stands in code spans alone, where no HTML, link, image or mention
is read. No memory text is in the file.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from memory_audit.counted import counted
from memory_audit.report.untrusted import as_line
from memory_audit.scan.finding import SEVERITIES
from memory_audit.scan.forms.words import described, fixed_now, live, named

if TYPE_CHECKING:
    from memory_audit.scan.result import KnownFinding, ScanResult, State

__all__ = ["to_markdown"]

MAX_ROWS = 25
"""Findings that are shown; GitHub takes 65,536 characters of a comment."""

STATES: tuple[State, ...] = ("new", "returned", "known", "accepted")

_SPAN = str.maketrans({"`": "<U+0060>", "|": "<U+007C>"})


def to_markdown(result: ScanResult) -> str:
    """Return a headline, findings by severity and state, and those that want attention: new ones first."""
    found = sorted(live(result), key=lambda known: STATES.index(known.state))
    memories = sum(tenant.memories for tenant in result.tenants)
    copies = sum(tenant.copies for tenant in result.tenants)
    told = (
        f"{counted(memories, 'memory')} of {counted(len(result.tenants), 'tenant')}, {copies:,} of them copies: "
        f"{counted(len(found), 'finding')}, {len(fixed_now(result)):,} fixed since the scan before."
    )
    lines = [f"### Memory scan of {code(result.source)}", "", told, ""]
    failed = [tenant for tenant in result.tenants if tenant.failure is not None]
    lines += [
        f"- not scanned: tenant {code(tenant.tenant)}, {code(tenant.failure or '')}" for tenant in failed[:MAX_ROWS]
    ]
    if len(failed) > MAX_ROWS:
        lines.append(f"- not scanned: {counted(len(failed) - MAX_ROWS, 'more tenant')}")
    if failed:
        lines.append("")
    if found:
        lines += [*_counts(found), *_rows(result, [known for known in found if known.state != "accepted"])]
    return "\n".join(lines).rstrip() + "\n"


def _counts(found: list[KnownFinding]) -> list[str]:
    counts = Counter((known.finding.severity, known.state) for known in found)
    return [
        f"| severity | {' | '.join(STATES)} |",
        "| --- |" + " ---: |" * len(STATES),
        *(
            f"| {severity} | " + " | ".join(f"{counts[severity, state]:,}" for state in STATES) + " |"
            for severity in SEVERITIES
        ),
        "",
    ]


def _rows(result: ScanResult, found: list[KnownFinding]) -> list[str]:
    if not found:
        return []
    rows = [
        f"| {known.finding.severity} | {known.state} | {described(result, known.finding.kind).title} | "
        f"{code(named(known.finding))} | {code(known.finding.message)} |"
        for known in found[:MAX_ROWS]
    ]
    more = [f"And {counted(len(found) - MAX_ROWS, 'more finding')}."] if len(found) > MAX_ROWS else []
    return ["| severity | state | finding | where | what |", "| --- | --- | --- | --- | --- |", *rows, "", *more]


def code(text: str) -> str:
    """Return text of others as a code span of one line."""
    return f"`{as_line(text, 200).translate(_SPAN)}`" if text.strip() else "`-`"
