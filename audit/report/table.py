"""The result on a terminal, as rich renderables.

Text from memory is never parsed as rich markup, and its control characters, escapes and hidden characters are shown as
labels (`memory_audit.report.untrusted`). Long lists are cut, and say by how much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memory_audit.counted import counted
from memory_audit.report.confidence import confidence_note, p_text, recorded_note
from memory_audit.report.nights import nights_headline
from memory_audit.report.summary import compared_note, headline, path_line, untold, worst_tenants
from memory_audit.report.untrusted import as_line
from memory_audit.report.views import tenant_view
from memory_audit.result import TrustLabel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.events import EventVerdict
    from memory_audit.report.nights import Nights
    from memory_audit.report.views import ReadTenant, Removed, TenantView
    from memory_audit.result import AuditResult, DescendantFinding, EventFinding

__all__ = ["nights_table", "render_table"]

MAX_ROWS = 40
"""Rows of one table: what fits a screen; the HTML and JSON reports have more."""

MAX_TENANTS = 40

ID_CELLS = 36
"""Ids up to this long, a UUID's, stay in one piece on 80 columns; longer ones fold."""

SCORED_ID_CELLS = 24
"""The same beside four columns of figures."""

_LEAST_SHOWN = 0.001
"""Of a smaller number only the sign is shown."""

_TONE = {"good": "bold green", "warn": "bold yellow", "bad": "bold red"}
_VERDICT_STYLE: dict[EventVerdict, str] = {
    "cleared": "green",
    "contributed": "yellow",
    "not cleared": "bold red",
    "memory is not the cause": "yellow",
    "not reproduced": "yellow",
    "not examined": "yellow",
}


def render_table(result: AuditResult, read: ReadTenant) -> RenderableType:
    """Return the whole report for `rich.console.Console.print`."""
    tone, sentence = headline(result)
    parts: list[RenderableType] = [
        Text(sentence, style=_TONE[tone]),
        Text(
            f"store {as_line(result.store)}, snapshot {result.snapshot_version}, run {as_line(result.run_id)}, "
            f"{result.seconds:.1f} s",
            style="dim",
        ),
        Text(confidence_note(result.calibration), style="dim"),
    ]
    if note := recorded_note(result.models):
        parts.append(Text(note, style="bold yellow"))
    for tenant in worst_tenants(result.tenants)[:MAX_TENANTS]:
        if tenant.failure is None:
            parts.extend(_tenant(tenant_view(tenant, read)))
        else:
            parts.append(
                Text(
                    f"\nTenant {as_line(tenant.tenant)}: not audited: {as_line(tenant.failure, 300)}", style="bold red"
                )
            )
    parts.extend(_left_out(len(result.tenants) - MAX_TENANTS, "tenants"))
    if result.counters:
        counts = ", ".join(f"{as_line(name)} {value:,}" for name, value in sorted(result.counters.items()))
        parts.append(Text(f"\n{counts}", style="dim"))
    return Group(*parts)


def nights_table(nights: Nights) -> RenderableType:
    """Return nights side by side, the last one first, and what it shows, for `rich.console.Console.print`."""
    tone, sentence = nights_headline(nights)
    table = Table(title="Nights", title_justify="left", title_style="bold")
    table.add_column("run", overflow="fold")
    for name in ("tenants", "events", "harm", "named", "taken out", "new", "known", "back", "replays"):
        table.add_column(name, justify="right", no_wrap=True)
    for total in nights.totals[: -MAX_ROWS - 1 : -1]:
        counts = total.counts
        table.add_row(
            Text(as_line(total.name)), f"{total.tenants:,}", f"{counts.events:,}",
            f"{counts.harmful_before:,} → {counts.harmful_after:,}", f"{counts.removed + counts.quarantined:,}",
            f"{total.taken:,}", f"{total.new:,}", f"{total.known:,}", f"{total.back:,}",
            f"{total.counters.get('replays', 0):,}",
        )  # fmt: skip
    lines = [
        Text(
            f"{item.state}: {as_line(item.tenant)}/{as_line(item.entry_id)}, first named by "
            f"{as_line(nights.totals[item.since].name)}"
            + (f" as {as_line(item.as_id)}" if item.as_id != item.entry_id else ""),
            style="yellow" if item.state == "known" else "red",
        )
        for item in nights.last[:MAX_ROWS]
    ]
    left = _left_out(len(nights.last) - MAX_ROWS, "memories")
    return Group(Text(sentence, style=_TONE[tone]), table, *lines, *left)


def _tenant(view: TenantView) -> list[RenderableType]:
    tenant, counts = view.tenant, view.counts
    lines: list[RenderableType] = [
        Text(f"\nTenant {as_line(tenant.tenant)}", style="bold"),
        Text(
            f"{counts.removed} of {tenant.entries} entries to remove; harm in {counts.harmful_before} of "
            f"{counts.judged} replayed events before, {counts.harmful_after} after"
            + (f" ({left})" if (left := untold(counts)) else "")
            + f"; {counts.probes_kept} of {counts.probes} probes kept"
            + (f", {counts.probes_unknown} unknown" if counts.probes_unknown else "")
        ),
    ]
    if tenant.usual_cas is not None:
        lines.append(Text(compared_note(tenant)))
    if tenant.lineage is not None:
        labels = [item.trust for item in tenant.lineage.entries]
        trust = ", ".join(f"{labels.count(label):,} {label}" for label in get_args(TrustLabel))
        lines.append(Text(f"{counted(tenant.lineage.edges, 'derivation edge')}; memories by trust: {trust}"))
    if view.removed:
        lines.append(_removed_table(view.removed[:MAX_ROWS]))
        lines.extend(_left_out(len(view.removed) - MAX_ROWS, "entries to remove"))
    suspected = list(tenant.removal.suspected.items())
    lines.extend(
        Text(f"suspected, and kept: {as_line(name, 40)}: {as_line(why, 200)}", style="yellow")
        for name, why in suspected[:MAX_ROWS]
    )
    lines.extend(_left_out(len(suspected) - MAX_ROWS, "suspected entries"))
    if view.staying:
        lines.append(_staying_table(view.staying[:MAX_ROWS]))
        lines.extend(_left_out(len(view.staying) - MAX_ROWS, "derived entries"))
    lines.extend(Text(as_line(note, 400), style="yellow") for note in view.notes)
    if view.events:
        events = view.events[:MAX_ROWS]
        lines.append(_event_table(events))
        lines.extend(_reasons(events))
        lines.extend(_left_out(len(view.events) - MAX_ROWS, "events"))
    lost = [probe for probe in tenant.probes if probe.kept is False]
    lines.extend(Text(f"probe {as_line(probe.event_id)}: its answer changes", style="red") for probe in lost[:MAX_ROWS])
    lines.extend(_left_out(len(lost) - MAX_ROWS, "probes whose answer changes"))
    lines.extend(Text(f"not examined: {as_line(line, 200)}", style="yellow") for line in tenant.not_examined[:MAX_ROWS])
    lines.extend(_left_out(len(tenant.not_examined) - MAX_ROWS, "lines on what was not examined"))
    return lines


def _staying_table(staying: Sequence[DescendantFinding]) -> Table:
    """Descendants that stay; those that go are among the removed."""
    table = Table(title="Derived from removed memories", title_justify="left", title_style="bold yellow")
    _add_id_column(table, "entry", [item.entry_id for item in staying], ID_CELLS)
    for name in ("proposal", "trust", "derivation"):
        table.add_column(name, overflow="fold")
    for item in staying:
        path = path_line(item.path) + (" (estimated)" if item.estimated else "")
        table.add_row(Text(as_line(item.entry_id)), item.proposal, item.path[-1].trust, Text(path))
    return table


def _removed_table(removed: Sequence[Removed]) -> Table:
    table = Table(title="To remove", title_justify="left", title_style="bold red")
    for name in ("rank", "influ-\nence\nCMIS", "incon-\nsistency\nCAS", "score\nDS"):
        table.add_column(name, justify="right", no_wrap=True)  # the texts beside them fold instead
    _add_id_column(table, "entry", [memory.score.entry_id for memory in removed], SCORED_ID_CELLS)
    has_trust = removed[0].trust is not None
    has_p = any(memory.score.p_value is not None for memory in removed)
    if has_p:
        table.add_column("p", justify="right", no_wrap=True)
    for name in ("writer", *(("trust",) if has_trust else ()), "why"):
        table.add_column(name, overflow="fold")
    for memory in removed:
        score = memory.score
        table.add_row(
            str(score.rank),
            _number(score.cmis),
            _number(score.cas) + (" *" if score.cas_flagged else ""),
            f"{score.ds:.3f}",
            Text(as_line(score.entry_id)),
            *([p_text(score.p_value)] if has_p else []),
            Text(as_line(memory.principal)),
            *([memory.trust] if has_trust else []),
            Text(as_line(memory.reason, 200)),
        )
    if any(memory.score.cas_flagged for memory in removed):
        table.caption = "* inconsistency above mean + 2 standard deviations"
    return table


def _event_table(events: Sequence[EventFinding]) -> Table:
    table = Table(title="Harmful events", title_justify="left", title_style="bold")
    _add_id_column(table, "event", [event.event_id for event in events], ID_CELLS)
    for name in ("verdict", "caused by"):
        table.add_column(name, overflow="fold")
    table.add_column("harm", justify="right")
    has_p = any(event.p_value is not None for event in events)
    if has_p:
        table.add_column("p", justify="right", no_wrap=True)
    for event in events:
        table.add_row(
            Text(as_line(event.event_id)),
            Text(event.verdict, style=_VERDICT_STYLE[event.verdict]),
            Text(", ".join(as_line(name, 24) for name in event.causes[:6]) + (" …" if len(event.causes) > 6 else "")),  # noqa: PLR2004
            Text(f"{_number(event.harm_before)} → {_number(event.harm_after)}"),
            *([p_text(event.p_value)] if has_p else []),
        )
    return table


def _reasons(events: Sequence[EventFinding]) -> list[RenderableType]:
    """Only where the verdict does not say it all; below the table, where on 80 columns they take room from nothing."""
    return [
        Text(f"{as_line(event.event_id)}: {as_line(event.reason, 160)}", style=_VERDICT_STYLE[event.verdict])
        for event in events
        if event.verdict != "cleared" and event.reason
    ]


def _add_id_column(table: Table, name: str, ids: Sequence[str], most_cells: int) -> None:
    """Add a column whose ids stay in one piece while other columns fold, unless one is too long for that."""
    cells = max(cell_len(as_line(item)) for item in (name, *ids))
    table.add_column(name, overflow="fold", width=cells if cells <= most_cells else None)


def _number(value: float | None) -> str:
    """Return three digits without an exponent, which a narrow column would cut off."""
    if value is None:
        return "unknown"
    if 0 < abs(value) < _LEAST_SHOWN:
        return f"<{_LEAST_SHOWN}" if value > 0 else f">-{_LEAST_SHOWN}"
    return f"{value + 0.0:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"  # noqa: PLR2004 - there .3g turns to exponents


def _left_out(count: int, what: str) -> list[Text]:
    return [Text(f"… {count:,} more {what}: see the HTML report", style="dim")] if count > 0 else []
