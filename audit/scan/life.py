"""How a finding lives from scan to scan: what of it is new, and what is known, accepted, fixed or back.

| state | seen now | before |
|---|---|---|
| new | yes | never, or so long ago that it is forgotten |
| known | yes | yes |
| accepted | yes | anything, and somebody accepts it (`memory_audit.scan.acceptances`) |
| fixed | no | yes |
| returned | yes | fixed; or accepted, and the acceptance has ended |

What a scan did not look for, it cannot miss: a finding of a detector that did not run, or of a tenant that could not be
scanned, stays what it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.scan.finding import SEVERITIES
from memory_audit.scan.result import KnownFinding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memory_audit.scan.acceptances import Acceptances
    from memory_audit.scan.finding import Finding
    from memory_audit.scan.result import State

__all__ = ["MAX_FIXED", "MAX_NAMED", "merge", "track"]

MAX_FIXED = 1_000
"""Fixed findings of a tenant that are kept, the latest: one that comes back after more of them counts as new."""

MAX_NAMED = 100
"""Memories that a merged finding names; it counts the rest."""


def track(
    found: Iterable[Finding],
    earlier: Iterable[KnownFinding],
    *,
    now_ms: int,
    ran: Collection[str],
    accepted: Acceptances,
) -> tuple[KnownFinding, ...]:
    """Return one tenant's findings with their states, worst first and the fixed ones last.

    Args:
        found: By this scan.
        earlier: What the scan before returned of this tenant; none at the first.
        now_ms: This scan's clock, Unix milliseconds.
        ran: Names of the detectors that looked at this tenant; none where it could not be scanned.
        accepted: What people accept.
    """
    before = {known.finding.fingerprint: known for known in earlier}
    live = [_seen(finding, before.pop(finding.fingerprint, None), now_ms, accepted) for finding in merge(found)]
    fixed = []
    for known in before.values():
        if known.state == "fixed":
            fixed.append(known)
        elif known.finding.detector in ran:
            fixed.append(replace(known, state="fixed", acceptance=None, fixed_ms=now_ms))
        else:
            live.append(_seen(known.finding, known, now_ms, accepted))
    fixed.sort(key=lambda known: (-(known.fixed_ms or 0), _order(known)))
    return (*sorted(live, key=_order), *fixed[:MAX_FIXED])


def merge(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding for each fingerprint: memories of the same content are told once, and named together."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.fingerprint, []).append(finding)
    return [_merged(group) if len(group) > 1 else group[0] for group in groups.values()]


def _merged(group: list[Finding]) -> Finding:
    names = tuple(dict.fromkeys(name for finding in group for name in finding.entry_ids))
    affected = max(len(names), *(finding.affected for finding in group))
    return replace(
        min(group, key=lambda finding: SEVERITIES.index(finding.severity)),
        entry_ids=names[:MAX_NAMED],
        affected=affected if affected > len(names[:MAX_NAMED]) else 0,
    )


def _seen(finding: Finding, before: KnownFinding | None, now_ms: int, accepted: Acceptances) -> KnownFinding:
    acceptance = accepted.of(finding, now_ms)
    state: State = "new" if before is None else "known"
    if acceptance is not None:
        state = "accepted"
    elif before is not None and before.state in ("fixed", "accepted"):
        state = "returned"
    first_seen_ms = now_ms if before is None else before.first_seen_ms
    return KnownFinding(finding=finding, state=state, first_seen_ms=first_seen_ms, acceptance=acceptance)


def _order(known: KnownFinding) -> tuple[int, str, tuple[str, ...], str]:
    finding = known.finding
    return SEVERITIES.index(finding.severity), finding.kind, finding.entry_ids, finding.key
