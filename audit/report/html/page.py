"""The result as HTML: nothing from a network, nothing from memory that is not escaped.

A run of at most FEW tenants is one self-contained page. One of more is an index, those that need a person first, with
a page for each tenant; its one script, which sorts and filters the table, is allowed by its hash.

Memory text is written by attackers and read by the people they attacked. Four rules hold: jinja2 escapes every value;
each page has a Content-Security-Policy that allows nothing but its own styles, and that script; anchors, classes, ids
and file names are made here from numbers, never from memory; hidden characters become visible labels
(`memory_audit.report.untrusted`). Every list is bounded, and says what it leaves out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from memory_audit.report.confidence import confidence_note, recorded_note
from memory_audit.report.drawing import Drawing, draw_graph, draw_scatter
from memory_audit.report.html.environment import render
from memory_audit.report.summary import Concern, concern, headline, summarise, worst_tenants
from memory_audit.report.views import Removed, TenantView, tenant_view

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.report.views import ReadTenant
    from memory_audit.result import AuditResult, EventFinding, TenantSummary

__all__ = ["FEW", "render_html", "render_index", "render_tenant", "report_files"]

FEW = 10
"""Tenants that fit on one page."""

MAX_INDEX = 5_000
"""Tenants on an index, those that need a person first; of more no browser sorts a table at once."""

MAX_CARDS = 60
MAX_EVENTS = 100
MAX_LEAD = 12
"""Lines under the verdict."""

COLUMNS = (
    ("Tenant", ""), ("State", ""), ("Memories", "num"), ("Events", "num"), ("Harm", "num"), ("To remove", "num"),
    ("Suspected", "num"), ("Cost", "num"),
)  # fmt: skip
"""Of the index: heading, and whether it is a number."""


class Placed(NamedTuple):
    """One event and where it is on the page."""

    anchor: str
    """Empty where the event is beyond those with a place of their own."""

    event: EventFinding


class Card(NamedTuple):
    """One removed entry."""

    anchor: str
    memory: Removed
    events: Sequence[Placed]
    """All events it helped to cause, those with both outputs first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Removed entries of one writer with one reason: a line under the verdict."""

    tenant: str
    principal: str
    reason: str
    cards: Sequence[Card]
    events: int
    """Events that any of them helped to cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One tenant's part of the page."""

    anchor: str
    view: TenantView
    hrefs: dict[str, str]
    """Entry id to the link to its card."""

    cards: Sequence[Card]
    events: Sequence[Placed]
    """Those with a place on the page, the worst first."""

    scatter: Drawing | None
    """None where it is not drawn, as the graph."""

    graph: Drawing | None


class IndexRow(NamedTuple):
    """One tenant on the index."""

    tenant: TenantSummary
    concern: Concern
    href: str
    """Of its page; empty where it has none."""


def report_files(
    result: AuditResult, read: ReadTenant, main: str = "report.html", folder: str = "report", *, every: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield the files of a report, name and content, the main page last. The same result gives the same bytes.

    Args:
        result: The run.
        read: Reads its findings; tenants are asked for part by part.
        main: Name of the main page.
        folder: Name of the folder beside it for the tenants' pages.
        every: Of many tenants those that need no person have a page, too: what a night costs follows what it finds.
    """
    if len(result.tenants) <= FEW:
        yield main, render_html(result, read)
        return
    pages = {
        number: tenant
        for number, tenant in enumerate(result.tenants)
        if tenant.failure is None and (every or concern(tenant).needs_person)
    }
    for number, tenant in sorted(pages.items(), key=lambda item: item[1].part):
        yield f"{folder}/{number:04}.html", render_tenant(result, tenant, read, f"../{quote(main)}")
    yield main, render_index(result, {pages[number].tenant: f"{quote(folder)}/{number:04}.html" for number in pages})


def render_html(result: AuditResult, read: ReadTenant) -> str:
    """Return the page of a run of few tenants."""
    tenants = worst_tenants(result.tenants)
    audited = [tenant for tenant in tenants if tenant.failure is None]
    sections = {}
    for number, tenant in enumerate(audited):
        view = tenant_view(tenant, read)
        sections[tenant.tenant] = _section(number, view, drawn=bool(view.tenant.scores))
    leads = _leads(list(sections.values()))
    overview = [
        (tenant, summarise([tenant]), sections[tenant.tenant].anchor if tenant.tenant in sections else "")
        for tenant in tenants
    ]
    return render("page.html.j2", {
        **_verdict(result), "lead": leads[:MAX_LEAD], "lead_left_out": len(leads) - MAX_LEAD, "overview": overview,
        "sections": sections.values(),
    })  # fmt: skip


def render_index(result: AuditResult, pages: Mapping[str, str]) -> str:
    """Return the main page of a run of many tenants; `pages` is tenant to the link to its page."""
    tenants = worst_tenants(result.tenants)
    rows = [IndexRow(tenant, concern(tenant), pages.get(tenant.tenant, "")) for tenant in tenants[:MAX_INDEX]]
    return render("index.html.j2", {
        **_verdict(result), "lead": (), "lead_left_out": 0, "columns": COLUMNS, "rows_shown": rows,
        "left_out": len(tenants) - MAX_INDEX, "unlinked": len(tenants) - len(pages),
        "waiting": sum(concern(tenant).needs_person for tenant in tenants),
    }, script="index.js")  # fmt: skip


def render_tenant(result: AuditResult, tenant: TenantSummary, read: ReadTenant, index: str) -> str:
    """Return one tenant's page; `index` is the link to the main page.

    Evidence is drawn where it names a memory: of thousands of tenants most have nothing to show, and a graph takes a
    tenth of a second.
    """
    view, removal = tenant_view(tenant, read), tenant.removal
    drawn = bool(removal.removed or removal.quarantined or removal.suspected)
    return render("tenant_page.html.j2", {"result": result, "section": _section(0, view, drawn=drawn), "index": index})


def _verdict(result: AuditResult) -> dict[str, object]:
    tone, sentence = headline(result)
    note = confidence_note(result.calibration)
    return {
        "result": result, "tone": tone, "headline": sentence, "confidence": note, "total": summarise(result.tenants),
        "recorded": recorded_note(result.models),
    }  # fmt: skip


def _section(index: int, view: TenantView, *, drawn: bool) -> Section:
    shown, usual = view.removed[:MAX_CARDS], view.tenant.usual_cas
    unusual = None if usual is None else usual.unusual
    anchors = {memory.score.entry_id: f"t{index}-m{place}" for place, memory in enumerate(shown)}
    hrefs = {name: f"#{anchor}" for name, anchor in anchors.items()}
    events = [
        Placed(f"t{index}-e{place}" if place < MAX_EVENTS else "", event) for place, event in enumerate(view.events)
    ]
    caused: defaultdict[str, list[Placed]] = defaultdict(list)
    for placed in sorted(events, key=_lacks_an_output):
        for name in placed.event.causes:
            caused[name].append(placed)
    return Section(
        anchor=f"t{index}",
        view=view,
        hrefs=hrefs,
        cards=[Card(anchors[memory.score.entry_id], memory, caused[memory.score.entry_id]) for memory in shown],
        events=events[:MAX_EVENTS],
        scatter=draw_scatter(view.tenant.scores, hrefs, view.removed_ids, unusual) if drawn else None,
        graph=draw_graph(view.tenant.scores, view.tenant.edges, hrefs, view.removed_ids) if drawn else None,
    )


def _lacks_an_output(placed: Placed) -> bool:
    return placed.event.output_before is None or placed.event.output_after is None


def _leads(sections: Sequence[Section]) -> list[Lead]:
    """Join entries with one tenant, writer and reason, those behind most events first."""
    groups: defaultdict[tuple[str, str, str], list[Card]] = defaultdict(list)
    for section in sections:
        for card in section.cards:
            groups[section.view.tenant.tenant, card.memory.principal, card.memory.reason].append(card)
    leads = [
        Lead(
            tenant=tenant,
            principal=principal,
            reason=reason,
            cards=cards,
            events=len({placed.event.event_id for card in cards for placed in card.events}),
        )
        for (tenant, principal, reason), cards in groups.items()
    ]
    leads.sort(key=lambda lead: (-lead.events, -max(card.memory.score.ds for card in lead.cards), lead.cards[0].anchor))
    return leads
