"""What one write costs at the guard: with labels read, with its behaviour alone, with neither, and decided before.

The backbone is asked without the store of answers, one write at a time, about texts that it has not seen in this run: a
reference number is appended to each. Its prefix cache holds what is common to all questions, as it would in service.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.guard.hst.guarding import entry_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.guard.hst.corpus import Write
    from memory_audit.guard.decide.guard_decision import GuardDecision
    from memory_audit.guard.guard import WriteGuard

__all__ = ["latency_rows"]


async def latency_rows(guard: WriteGuard, writes: Sequence[Write]) -> list[dict[str, Any]]:
    """Check each write twice, one after the other; the guard must not know them."""
    first = replace(writes[0], write_id="latency-warm", response=f"{writes[0].response} Reference 9999.")
    await guard.check_async(entry_of(first))  # loads what is loaded on first use
    timings: dict[str, list[float]] = {
        "labels read": [], "act read": [], "no model call": [], "decided before": []
    }  # fmt: skip
    for number, write in enumerate(writes):
        numbered = replace(
            write, write_id=f"latency-{number}", response=f"{write.response} Reference {1_000 + number}."
        )
        entry = entry_of(numbered)
        began = time.perf_counter()
        decision = await guard.check_async(entry)
        timings[_path(decision)].append(time.perf_counter() - began)
        began = time.perf_counter()
        await guard.check_async(entry)
        timings["decided before"].append(time.perf_counter() - began)
    return [
        {"path": name, "n": len(seconds), "p50_ms": _ms(seconds, 0.5), "p95_ms": _ms(seconds, 0.95),
         "mean_ms": round(1_000 * statistics.fmean(seconds), 3)}
        for name, seconds in timings.items()
        if seconds
    ]  # fmt: skip


def _path(decision: GuardDecision) -> str:
    if decision.labels is not None:
        return "labels read"
    return "act read" if decision.restated_nats is not None else "no model call"


def _ms(seconds: Sequence[float], share: float) -> float:
    ordered = sorted(seconds)
    return round(1_000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)], 3)
