"""A plan as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from memory_audit.counted import counted
from memory_audit.jobs.plan.plan import UNITS
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.jobs.plan.estimate import Bounds, TenantEstimate
    from memory_audit.jobs.plan.plan import Plan

__all__ = ["plan_table", "rate_lines"]

MAX_TENANTS = 20
UNBOUNDED, UNKNOWN = "any", "?"
MAX_NAME = 40


def plan_table(plan: Plan) -> Table:
    """Return the plan's first tenants, and all; each cell is least, typical and most."""
    table = Table(box=None, pad_edge=False, caption_justify="left")
    for title in ("tenant", "events", "replays", "tokens", "NLI pairs", "texts", "time"):
        table.add_column(title, justify="left" if title == "tenant" else "right")
    for item in plan.tenants[:MAX_TENANTS]:
        if item.failure is None:
            table.add_row(as_line(item.tenant, MAX_NAME), *_cells(plan, item))
        else:
            table.add_row(as_line(item.tenant, MAX_NAME), f"{item.events:,}", as_line(item.failure, MAX_NAME))
    if (more := len(plan.tenants) - MAX_TENANTS) > 0:
        table.add_row(f"and {counted(more, 'tenant')} more")
    table.add_row("all", *_cells(plan, plan.total), style="bold")
    return table


def _cells(plan: Plan, item: TenantEstimate) -> list[str]:
    of = (item.replays, item.tokens, item.pairs, item.texts)
    unbounded = item.replays.most is None
    times = [_time(value) for value in plan.seconds(item).values()]
    if unbounded and times[1] != UNKNOWN:
        times[2] = UNBOUNDED
    return [_short(item.events), *map(_bounds, of), "-".join(times)]


def _bounds(bounds: Bounds) -> str:
    most = UNBOUNDED if bounds.most is None else _short(bounds.most)
    return f"{_short(bounds.least)}-{_short(bounds.typical)}-{most}"


def _short(count: float) -> str:
    """Return a count in few characters, of three digits from ten thousand on."""
    for unit in ("", "k", "M", "G"):
        if count < 10_000 or unit == "G":  # noqa: PLR2004 - as said above
            break
        count /= 1_000
    return f"{count:,.0f}{unit}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    for unit, size in (("s", 1), ("min", 60), ("h", 3_600)):
        if seconds < 120 * size or unit == "h":
            break
    return f"{seconds / size:,.0f}{unit}"


def rate_lines(plan: Plan) -> Iterator[str]:
    """Say what the columns are, and which rates the times are by."""
    yield "least-typical-most: no harm is reproduced, all of it is, and what the settings allow"
    if plan.budget is not None:
        yield f"the run ends after {plan.budget:,} replays: tenants are served in the order of this table"
    for role, rate in plan.rates.items():
        model = f"{role} {as_line(plan.models[role])} on {as_line(plan.machine)}"
        if rate is None:
            yield f"{model}: no rate known yet; an audit there measures it"
        else:
            yield f"{model}: {rate:,.3g} {UNITS[role]} a second"
