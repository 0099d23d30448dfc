"""When a scan fails: `new:high,returned` asks for findings of these states, and of a severity or a worse one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.scan.finding import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memory_audit.scan.finding import Severity
    from memory_audit.scan.result import KnownFinding, State

__all__ = ["failing", "parse_fail_on"]

STATES: tuple[State, ...] = ("new", "known", "returned")
"""Those that a scan may fail on: what is fixed or accepted is no failure."""


def parse_fail_on(text: str) -> dict[State, Severity]:
    """Read a list of STATE or STATE:SEVERITY: state to the mildest severity that fails.

    Raises:
        UsageError: names the word that is wrong, or the state that is there twice.
    """
    asked: dict[State, Severity] = {}
    for part in text.split(","):
        name, colon, least = part.strip().partition(":")
        state = next((known for known in STATES if known == name), None)
        severity = next((known for known in SEVERITIES if known == (least if colon else SEVERITIES[-1])), None)
        if state is None or severity is None:
            raise UsageError(
                f"--fail-on has {part.strip()!r:.40}, expected {', '.join(STATES)}, each alone or with a colon and "
                f"{', '.join(SEVERITIES)}: new:high,returned"
            )
        if state in asked:
            raise UsageError(f"--fail-on names {state} twice")
        asked[state] = severity
    return asked


def failing(findings: Iterable[KnownFinding], fail_on: Mapping[State, Severity]) -> list[KnownFinding]:
    """Return the findings that were asked for."""
    return [
        known
        for known in findings
        if known.state in fail_on and SEVERITIES.index(known.finding.severity) <= SEVERITIES.index(fail_on[known.state])
    ]
