"""The memories behind findings, one card each: text, writer, neighbours, derivation, and the findings with evidence."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from memory_audit.consistency.graph import CONTRADICTION_WEIGHT
from memory_audit.entry import PARTS_PER_MILLION
from memory_audit.scan.forms.words import described
from memory_audit.scan.pages.commands import commands
from memory_audit.scan.pages.ranking import card_href

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Kind, ScannedMemory
    from memory_audit.scan.pages.commands import Command, Places
    from memory_audit.scan.pages.ranking import Ranked
    from memory_audit.scan.result import ScanResult

__all__ = ["Card", "cards_of"]

MAX_NEAR = 5
MAX_LINKED = 12
"""Parents, children, steps of a path, and memories that a finding names."""


class Named(NamedTuple):
    """Another memory, by its id."""

    entry_id: str
    text: str
    """Empty where it is not live."""

    href: str
    """Of its card; empty where it has none."""

    note: str = ""
    """In this project's words, such as its share."""


class Near(NamedTuple):
    """A neighbour in the memory graph."""

    named: Named
    cosine: float
    contradiction: float
    """From 0 to 1."""


class Told(NamedTuple):
    """One finding on a card."""

    ranked: Ranked
    kind: Kind
    commands: Sequence[Command]
    others: Sequence[Named]
    """Further memories that it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """See the module; all text is untrusted."""

    number: int
    tenant: str
    entry_id: str
    entry: Entry | None
    """None where no such memory is live."""

    findings: Sequence[Told]
    near: Sequence[Near]
    compared: bool
    """Whether neighbours are known at all."""

    parents: Sequence[Named]
    children: Sequence[Named]
    label: str | None
    """Its trust, where lineage was read."""

    path: Sequence[Named]
    """From an external memory to this one, where that makes it untrusted."""


def cards_of(memory: ScannedMemory, ranked: Collection[Ranked], result: ScanResult, places: Places) -> Iterator[Card]:
    """Yield the cards of a tenant's memories; `ranked` are its findings, those without a card included."""
    numbers: dict[str, int] = {}
    found: defaultdict[str, list[Ranked]] = defaultdict(list)
    for one in ranked:
        if one.card is not None:
            name = one.known.finding.entry_ids[0]
            numbers[name] = one.card
            found[name].append(one)
    live = {entry.entry_id: entry for entry in memory.entries}

    def named(name: str, note: str = "") -> Named:
        href = card_href(numbers[name], f"m{numbers[name]}").partition("/")[2] if name in numbers else ""
        return Named(name, live[name].text if name in live else "", href, note)

    children: defaultdict[str, list[Named]] = defaultdict(list)
    for entry in memory.entries:
        for parent in entry.parents:
            if parent.entry_id in numbers and len(children[parent.entry_id]) < MAX_LINKED:
                children[parent.entry_id].append(named(entry.entry_id, _share(parent.weight_ppm)))
    near = _near(memory, numbers)
    for name, number in sorted(numbers.items(), key=lambda item: item[1]):
        own = live.get(name)
        label, path = _lineage(memory, name)
        yield Card(
            number=number, tenant=memory.tenant, entry_id=name, entry=own,
            findings=[
                Told(
                    one, described(result, one.known.finding.kind), commands(one.known.finding, places),
                    [named(other) for other in one.known.finding.entry_ids[1 : MAX_LINKED + 1]],
                )
                for one in found[name]
            ],
            near=[Near(named(other), cosine, weight) for other, cosine, weight in near.get(name, ())],
            compared=name in near,
            parents=[named(one.entry_id, _share(one.weight_ppm)) for one in (own.parents if own else ())[:MAX_LINKED]],
            children=children[name], label=label, path=[named(step) for step in path],
        )  # fmt: skip


def _near(memory: ScannedMemory, names: Mapping[str, int]) -> dict[str, list[tuple[str, float, float]]]:
    """Return the nearest memories of some, with cosine and contradiction; of copies the first stands for all."""
    graph = memory.graph
    if graph is None or not graph.pairs:
        return {}
    first: dict[str, str] = {}
    for entry in memory.entries:
        first.setdefault(entry.text, entry.entry_id)
    places = graph.places
    own = {name: first[memory.entries[places[name]].text] for name in names if name in places}
    wanted = set(own.values())
    pairs: defaultdict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for a, b, cosine, contradiction in graph.edges():
        if a in wanted:
            pairs[a].append((b, cosine, contradiction))
        if b in wanted:
            pairs[b].append((a, cosine, contradiction))
    # What contradicts a memory is what a reader looks for: it comes first, then what is nearest.
    for found in pairs.values():
        found.sort(key=lambda pair: (pair[2] < CONTRADICTION_WEIGHT, -pair[1]))
    return {name: pairs[stands][:MAX_NEAR] for name, stands in own.items()}


def _lineage(memory: ScannedMemory, name: str) -> tuple[str | None, list[str]]:
    if memory.lineage is None or name not in memory.lineage:
        return None, []
    return memory.lineage.label(name), [step.entry_id for step in memory.lineage.path(name, MAX_LINKED)]


def _share(weight_ppm: int) -> str:
    return f"{100 * weight_ppm / PARTS_PER_MILLION:.0f} %"
