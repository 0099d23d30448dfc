"""Which finding comes first on the pages, and which memories have a card of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memory_audit.scan.finding import SEVERITIES

if TYPE_CHECKING:
    from memory_audit.scan.result import KnownFinding, ScanResult, State

__all__ = ["CARDS_OF_PAGE", "MAX_CARDS", "STATES", "Ranked", "card_href", "ranked"]

MAX_CARDS = 5_000
"""Memories with a card, those with the worst findings: nobody reads more."""

CARDS_OF_PAGE = 25
STATES: tuple[State, ...] = ("new", "returned", "known", "accepted", "fixed")
"""Those that want attention first."""


class Ranked(NamedTuple):
    """A finding and its place."""

    number: int
    """Rank, and the number in its anchor."""

    known: KnownFinding
    card: int | None
    """Number of the card of its first memory; None where that has none."""


def ranked(result: ScanResult) -> list[Ranked]:
    """Return all findings: open before closed, the worst first, new before known.

    Cards are numbered in the order of tenants, so that a tenant's memory is read once, for all its cards.
    """
    found = [known for tenant in result.tenants for known in tenant.findings]
    found.sort(key=_rank)
    read = {tenant.tenant for tenant in result.tenants if tenant.failure is None}
    wanted: dict[tuple[str, str], None] = {}
    for known in found:
        if known.finding.tenant in read and _has_card(known) and len(wanted) < MAX_CARDS:
            wanted[_first(known)] = None
    order = {tenant.tenant: place for place, tenant in enumerate(result.tenants)}
    cards = {key: number for number, key in enumerate(sorted(wanted, key=lambda key: order[key[0]]))}
    return [
        Ranked(number, known, cards.get(_first(known)) if _has_card(known) else None)
        for number, known in enumerate(found)
    ]


def card_href(card: int, anchor: str) -> str:
    """Return the link to a card, from the folder's main pages."""
    return f"entries/{card // CARDS_OF_PAGE + 1:04}.html#{anchor}"


def _rank(known: KnownFinding) -> tuple[bool, int, int, str]:
    state = STATES.index(known.state)
    return state >= STATES.index("accepted"), SEVERITIES.index(known.finding.severity), state, known.finding.tenant


def _has_card(known: KnownFinding) -> bool:
    return known.state != "fixed" and bool(known.finding.entry_ids)


def _first(known: KnownFinding) -> tuple[str, str]:
    return known.finding.tenant, known.finding.entry_ids[0]
