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
from typing import TYPE_CHECKING, NamedTuple

import jinja2

from memory_audit.events import HARMFUL
from memory_audit.report.confidence import confidence_note, p_text
from memory_audit.report.drawing import Drawing, draw_graph, draw_scatter
from memory_audit.report.summary import compared_note, headline, path_line, summarise, untold, worst_tenants
from memory_audit.report.untrusted import NAME_CHARS, as_html, as_line
from memory_audit.report.views import Removed, TenantView, tenant_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.result import AuditResult, EventFinding

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

    scatter: Drawing
    graph: Drawing


def render_html(result: AuditResult) -> str:
    """Return the page. The same result gives the same bytes."""
    tone, sentence = headline(result)
    tenants = worst_tenants(result.tenants)
    sections = [_section(index, tenant_view(tenant, result)) for index, tenant in enumerate(tenants[:MAX_TENANTS])]
    leads = _leads(sections)
    page = _environment().get_template("page.html.j2")
    return page.render(
        result=result,
        tone=tone,
        headline=sentence,
        confidence=confidence_note(result.calibration),
        total=summarise(result.tenants),
        lead=leads[:MAX_LEAD],
        lead_left_out=len(leads) - MAX_LEAD,
        overview=[
            *((section.view.tenant, section.view.counts, section.anchor) for section in sections),
            *((tenant, summarise([tenant]), "") for tenant in tenants[MAX_TENANTS:MAX_OVERVIEW]),
        ],
        sections=sections,
        css=_asset("page.css"),
        rows=MAX_ROWS,
        pairs=PAIRS_PER_CARD,
        names=MAX_LEAD_NAMES,
        harmful=HARMFUL,
    )


def _section(index: int, view: TenantView) -> Section:
    shown, usual = view.removed[:MAX_CARDS], view.tenant.usual_cas
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
        scatter=draw_scatter(view.tenant.scores, hrefs, view.removed_ids, None if usual is None else usual.unusual),
        graph=draw_graph(view.tenant.scores, view.tenant.edges, hrefs, view.removed_ids),
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
        p=p_text,
        count=lambda value: f"{value:,}",
        total=lambda value: f"{value:,.1f}",
        when=_when,
        untold=untold,
        compared=compared_note,
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
