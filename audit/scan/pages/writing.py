"""The pages of a scan: a folder that needs no network, no server, and no script to be read.

    FOLDER/index.html            the store at a glance
    FOLDER/findings.html         all findings; further ones in findings-2.html …
    FOLDER/entries/0001.html …   the memories behind the worst ones
    FOLDER/nights.html           tenants by nights, where there are several

Memory text is written by attackers and read by the people they attacked. Four rules hold: jinja2 escapes every value; a
page's Content-Security-Policy allows one style and one script, by their hashes; names of files, anchors and classes are
made from numbers and this project's words; hidden characters become visible labels (`memory_audit.report.untrusted`).
Every list is bounded, and says what it leaves out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from memory_audit.counted import counted
from memory_audit.scan.finding import SEVERITIES
from memory_audit.scan.forms.words import described
from memory_audit.scan.pages.cards import cards_of
from memory_audit.scan.pages.environment import render
from memory_audit.scan.pages.figures import StoreFigures
from memory_audit.scan.pages.nights import MAX_NIGHTS, MAX_TENANTS, history, tenant_nights
from memory_audit.scan.pages.ranking import CARDS_OF_PAGE, STATES, card_href, ranked
from memory_audit.scan.pages.rows import pages_of_rows
from memory_audit.scan.pages.topics import HEIGHT, MAX_MAPPED, WIDTH, TopicMap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memory_audit.scan.detector import ScannedMemory
    from memory_audit.scan.pages.cards import Card
    from memory_audit.scan.pages.commands import Places
    from memory_audit.scan.pages.ranking import Ranked
    from memory_audit.scan.result import ScanResult

__all__ = ["INDEX", "headline", "page_files"]

INDEX = "index.html"
NIGHTS = "nights.html"

FIRST_SCREEN = 50
"""Findings that are readable without a script."""

LEADING = 8
"""Findings on the first page."""

OF_EACH_KIND = 2
"""Of those."""

CLOSED = frozenset({"accepted", "fixed"})


def page_files(
    result: ScanResult,
    memory_of: Callable[[str], ScannedMemory],
    places: Places,
    earlier: Sequence[ScanResult] = (),
) -> Iterator[tuple[str, str]]:
    """Yield the pages, name and content, the first page last.

    Args:
        result: The scan.
        memory_of: Reads a tenant's memory, each once, in the order of the result; with its graph there are a map and
            neighbours, with its lineage there is trust.
        places: What commands on the pages name.
        earlier: Scans of the same source, the oldest first.
    """
    order = ranked(result)
    figures, topics = StoreFigures(result.scanned_at_ms), TopicMap()
    nights = NIGHTS if earlier else ""
    frame = {"result": result, "places": places, "nights": nights}
    yield from _entry_pages(_cards(order, result, memory_of, places, figures, topics), order, earlier, frame)

    pages = list(pages_of_rows(order, result))
    names = ["findings.html", *(f"findings-{number}.html" for number in range(2, len(pages) + 1))]
    for name, rows in zip(names, pages, strict=True):
        first = order[rows.first : rows.first + rows.count][:FIRST_SCREEN]
        yield name, render("findings.html.j2", {
            **frame, "root": "", "rows": rows, "data": rows.to_json(), "pages": names, "this": name,
            "first": _linked(first, result), "total": len(order), "states": STATES,
        })  # fmt: skip
    if nights:
        scans = [*earlier, result]
        table = tenant_nights(scans)
        yield NIGHTS, render("nights.html.j2", {
            **frame, "root": "", "scans": scans[-MAX_NIGHTS:], "table": table[:MAX_TENANTS],
            "left_out_rows": len(table) - MAX_TENANTS,
        })  # fmt: skip

    is_open = [one for one in order if one.known.state not in CLOSED]
    tone, sentence = headline(result)
    cells, words = topics.drawn()
    yield INDEX, render("index.html.j2", {
        **frame, "root": "", "tone": tone, "headline": sentence, "open": len(is_open),
        "by_severity": Counter(one.known.finding.severity for one in is_open),
        "by_state": Counter(one.known.state for one in order), "states": STATES,
        "by_kind": _by_kind(is_open, result), "leading": _linked(_leading(is_open), result),
        "figures": figures, "cells": cells, "words": words, "size": (WIDTH, HEIGHT), "unmapped": topics.left_out,
        "max_mapped": MAX_MAPPED, "memories": sum(tenant.memories for tenant in result.tenants),
        "copies": sum(tenant.copies for tenant in result.tenants),
        "failed": [tenant for tenant in result.tenants if tenant.failure is not None],
    })  # fmt: skip


def headline(result: ScanResult) -> tuple[str, str]:
    """Return a tone, which is good, warn or bad, and what to know first, in a sentence or two."""
    memories = sum(tenant.memories for tenant in result.tenants)
    copies = sum(tenant.copies for tenant in result.tenants)
    found = [known for tenant in result.tenants for known in tenant.findings if known.state not in CLOSED]
    severe = Counter(known.finding.severity for known in found)
    new = sum(known.state in {"new", "returned"} for known in found)
    failed = sum(tenant.failure is not None for tenant in result.tenants)
    words = [f"{severe[severity]:,} {severity}" for severity in SEVERITIES if severe[severity]]
    sentence = f"{counted(len(found), 'finding')} in {counted(memories, 'memory')}"
    if found:
        sentence += f": {', '.join(words)}; {'all' if new == len(found) else f'{new:,}'} new"
    if copies and memories:
        sentence = f"{100 * copies / memories:.1f} % of the memories say what another one says. " + sentence
    if failed:
        sentence += f". {counted(failed, 'tenant')} could not be scanned"
    tone = "bad" if severe["high"] or failed else "warn" if found else "good"
    return tone, sentence + "."


def _cards(  # noqa: PLR0913, PLR0917 - what reading each memory once fills
    order: Sequence[Ranked],
    result: ScanResult,
    memory_of: Callable[[str], ScannedMemory],
    places: Places,
    figures: StoreFigures,
    topics: TopicMap,
) -> Iterator[Card]:
    """Yield all cards by their numbers; each memory is read once, and figures and map take it in passing."""
    by_tenant: defaultdict[str, list[Ranked]] = defaultdict(list)
    for one in order:
        if one.known.state != "fixed":
            by_tenant[one.known.finding.tenant].append(one)
    for tenant in result.tenants:
        if tenant.failure is not None:
            continue
        memory, found = memory_of(tenant.tenant), by_tenant[tenant.tenant]
        marks: dict[str, tuple[int, str, str]] = {}
        for one in found:
            if one.known.state in CLOSED:
                continue
            severity = one.known.finding.severity
            href = "" if one.card is None else card_href(one.card, f"f{one.number}")
            for place, name in enumerate(one.known.finding.entry_ids):
                marks.setdefault(name, (SEVERITIES.index(severity), severity, "" if place else href))
        figures.add(memory.entries, marks)
        topics.add(memory, marks)
        yield from cards_of(memory, found, result, places)


def _entry_pages(
    cards: Iterator[Card], order: Sequence[Ranked], earlier: Sequence[ScanResult], frame: dict[str, object]
) -> Iterator[tuple[str, str]]:
    seen = history(earlier, {one.known.finding.fingerprint for one in order if one.card is not None})
    pages: defaultdict[int, list[Card]] = defaultdict(list)
    last = max((one.card for one in order if one.card is not None), default=-1)
    for card in cards:
        number = card.number // CARDS_OF_PAGE
        pages[number].append(card)
        if len(pages[number]) == CARDS_OF_PAGE or card.number == last:
            yield f"entries/{number + 1:04}.html", render("entries.html.j2", {
                **frame, "root": "../", "cards": pages.pop(number), "number": number + 1,
                "of": last // CARDS_OF_PAGE + 1, "history": seen,
            })  # fmt: skip


def _linked(found: Sequence[Ranked], result: ScanResult) -> list[tuple[Ranked, str, str]]:
    """Return findings with the title of their kind, and the link to each, or nothing."""
    return [
        (
            one, described(result, one.known.finding.kind).title,
            "" if one.card is None else card_href(one.card, f"f{one.number}"),
        )
        for one in found
    ]  # fmt: skip


def _leading(found: Sequence[Ranked]) -> list[Ranked]:
    """Return the first ones, few of each kind."""
    seen: Counter[str] = Counter()
    chosen = []
    for one in found:
        seen[one.known.finding.kind] += 1
        if seen[one.known.finding.kind] <= OF_EACH_KIND:
            chosen.append(one)
    return chosen[:LEADING]


def _by_kind(found: Sequence[Ranked], result: ScanResult) -> list[tuple[str, str, int]]:
    """Return the kinds found with their worst severity and how many, the worst first."""
    counts = Counter(one.known.finding.kind for one in found)
    worst: dict[str, str] = {}
    for one in found:
        worst.setdefault(one.known.finding.kind, one.known.finding.severity)
    return [(described(result, kind).title, severity, counts[kind]) for kind, severity in worst.items()]
