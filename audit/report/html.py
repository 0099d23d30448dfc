"""The result as ONE self-contained HTML file: no script, no network, nothing from memory that is not escaped.

Memory text is written by attackers and read by the people they attacked. Four rules hold: jinja2 escapes every value;
the page has a Content-Security-Policy that allows nothing but its own inline styles; anchors, classes and ids are made
here from numbers, never from memory; hidden characters become visible labels (`memory_audit.report.untrusted`). Every
list is bounded, and says what it leaves out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING

import jinja2

from memory_audit.events import HARMFUL
from memory_audit.report.drawing import HEIGHT, WIDTH, GraphDrawing, Scatter, draw_graph, draw_scatter
from memory_audit.report.summary import (
    Summary,
    headline,
    lineage_notes,
    path_line,
    removed_of,
    summarise,
    untold,
    worst_events,
    worst_tenants,
)
from memory_audit.report.untrusted import NAME_CHARS, as_html, as_line
from memory_audit.result import text_name

if TYPE_CHECKING:
    from memory_audit.result import (
        AuditResult,
        DescendantFinding,
        EntryScore,
        EntryTrust,
        EventFinding,
        ProbeFinding,
        TenantResult,
    )

__all__ = ["render_html"]

MAX_TENANTS = 40
"""Tenants with a section of their own, those with findings first; more would make a page no browser scrolls."""

MAX_OVERVIEW = 500
MAX_CARDS = 60
MAX_EVENTS = 100
MAX_ROWS = 100
PAIRS_PER_CARD = 3
"""Counterfactual pairs repeated on one card; further events are linked."""

MAX_LEAD = 12
"""Lines under the verdict."""

MAX_LEAD_NAMES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """One event and where it is on the page."""

    anchor: str
    """Empty where the event is beyond those with a place of their own."""

    event: EventFinding
    causes: tuple[tuple[str, str], ...]
    """(entry id, href or empty)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One removed entry."""

    anchor: str
    score: EntryScore
    reason: str
    text: dict[str, str]
    events: tuple[EventView, ...]
    """All events it helped to cause, those with both outputs first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Removed entries of one writer with one reason: a line under the verdict."""

    tenant: str
    principal: str
    reason: str
    cards: tuple[Card, ...]
    events: int
    """Events that any of them helped to cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """One tenant's section."""

    anchor: str
    tenant: TenantResult
    counts: Summary
    cards: tuple[Card, ...]
    cards_left_out: int
    events: tuple[EventView, ...]
    """Those with a place on the page, the worst first."""

    probes: tuple[ProbeFinding, ...]
    """Those whose answer changes first, then the unknown."""

    scatter: Scatter
    graph: GraphDrawing
    trust: dict[str, EntryTrust]
    """By entry id; empty where the tenant has no lineage."""

    descent: dict[str, DescendantFinding]
    staying: tuple[DescendantFinding, ...]
    """Descendants of removed entries that are quarantined or only reported."""

    notes: tuple[str, ...]


def render_html(result: AuditResult) -> str:
    """Return the page. The same result gives the same bytes."""
    tone, sentence = headline(result)
    tenants = worst_tenants(result.tenants)
    views = [_tenant_view(index, tenant, result) for index, tenant in enumerate(tenants[:MAX_TENANTS])]
    sections = {view.tenant.tenant: view.anchor for view in views}
    leads = _leads(views)
    page = _environment().get_template("page.html.j2")
    return page.render(
        result=result,
        tone=tone,
        headline=sentence,
        total=summarise(result.tenants),
        lead=leads[:MAX_LEAD],
        lead_left_out=len(leads) - MAX_LEAD,
        overview=[(tenant, summarise([tenant]), sections.get(tenant.tenant, "")) for tenant in tenants[:MAX_OVERVIEW]],
        views=views,
        css=_asset("page.css"),
        size=(WIDTH, HEIGHT),
        rows=MAX_ROWS,
        pairs=PAIRS_PER_CARD,
        names=MAX_LEAD_NAMES,
        harmful=HARMFUL,
    )


def _tenant_view(index: int, tenant: TenantResult, result: AuditResult) -> TenantView:
    removed = removed_of(tenant)
    anchors = {score.entry_id: f"t{index}-m{place}" for place, score in enumerate(removed[:MAX_CARDS])}
    hrefs = {name: f"#{anchor}" for name, anchor in anchors.items()}
    events = [
        EventView(
            anchor=f"t{index}-e{place}" if place < MAX_EVENTS else "",
            event=event,
            causes=tuple((name, hrefs.get(name, "")) for name in event.causes[:MAX_ROWS]),
        )
        for place, event in enumerate(worst_events(tenant))
    ]
    caused: defaultdict[str, list[EventView]] = defaultdict(list)
    for view in events:
        for name in view.event.causes:
            caused[name].append(view)
    cards = tuple(
        Card(
            anchor=anchors[score.entry_id],
            score=score,
            reason=tenant.removal.removed[score.entry_id],
            text=result.entries_text.get(text_name(tenant.tenant, score.entry_id), {}),
            events=tuple(
                sorted(
                    caused[score.entry_id],
                    key=lambda view: view.event.output_before is None or view.event.output_after is None,
                )
            ),
        )
        for score in removed[:MAX_CARDS]
    )
    return TenantView(
        anchor=f"t{index}",
        tenant=tenant,
        counts=summarise([tenant]),
        cards=cards,
        cards_left_out=len(removed) - len(cards),
        events=tuple(events[:MAX_EVENTS]),
        scatter=draw_scatter(tenant.scores, hrefs, tenant.removal.removed),
        graph=draw_graph(tenant.scores, tenant.edges, hrefs, tenant.removal.removed),
        trust={} if tenant.lineage is None else {item.entry_id: item for item in tenant.lineage.entries},
        descent={} if tenant.lineage is None else {item.entry_id: item for item in tenant.lineage.descendants},
        probes=tuple(sorted(tenant.probes, key=lambda probe: (probe.kept is not False, probe.kept is not None))),
        staying=() if tenant.lineage is None
        else tuple(item for item in tenant.lineage.descendants if item.proposal != "remove"),
        notes=tuple(lineage_notes(tenant)),
    )  # fmt: skip


def _leads(views: list[TenantView]) -> list[Lead]:
    """Join entries with one tenant, writer and reason, those behind most events first."""
    groups: dict[tuple[str, str, str], list[Card]] = {}
    for view in views:
        for card in view.cards:
            key = (view.tenant.tenant, card.text.get("principal", "unknown"), card.reason)
            groups.setdefault(key, []).append(card)
    leads = [
        Lead(
            tenant=tenant,
            principal=principal,
            reason=reason,
            cards=tuple(cards),
            events=len({view.event.event_id for card in cards for view in card.events}),
        )
        for (tenant, principal, reason), cards in groups.items()
    ]
    leads.sort(key=lambda lead: (-lead.events, -max(card.score.ds for card in lead.cards), lead.cards[0].anchor))
    return leads


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_asset),
    )
    environment.filters.update(
        text=as_html,
        name=lambda value, limit=NAME_CHARS: as_html(value, limit),
        line=as_line,
        path=path_line,
        score=_score,
        count=lambda value: f"{value:,}",
        total=lambda value: f"{value:,.1f}",
        when=_when,
        untold=untold,
    )
    return environment


def _asset(name: str) -> str:
    return files("memory_audit.report").joinpath(name).read_text(encoding="utf-8")


def _score(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "unknown"
    return f"{value + 0.0:.{digits}g}".replace("-", "−")  # + 0.0 turns -0.0 into 0


def _when(started_ms: int) -> str:
    try:
        return datetime.fromtimestamp(started_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return f"{started_ms} ms after 1970"
