"""A memory that is mostly said again: few facts, each once as it is, then copied and restated by hand-written frames.

Ten kinds of fact with 22 of each. Many differ in one word or number only: the same person's things, the same port of
another service. What is said again how often follows Zipf's law, as where one file is extracted night after night.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from memory_audit.entry import Entry

__all__ = ["Said", "flood"]

PEOPLE = (
    "Anna Keller", "Bruno Lang", "Carla Voss", "Dmitri Orlov", "Elif Demir", "Farid Haddad", "Greta Holm", "Hugo Marsh",
    "Ines Prado", "Jonas Beck", "Kira Novak", "Liam Walsh", "Mina Sato", "Noor Aziz", "Olga Petrova", "Pablo Ruiz",
    "Quentin Roy", "Rosa Conti", "Samir Nair", "Tara Singh", "Ulrich Frey", "Vera Lind",
)  # fmt: skip
SERVICES = (
    "billing", "search", "invoice", "login", "upload", "mail", "ledger", "catalogue", "shipping", "pricing", "audit",
    "gateway", "session", "report", "profile", "webhook", "backup", "cache", "queue", "export", "import", "metrics",
)  # fmt: skip
DRINKS = ("green tea", "black coffee", "orange juice", "hot chocolate", "mint tea", "sparkling water", "oat milk")
STREETS = ("Rose Lane", "Mill Street", "Harbour Road", "Church Hill", "Station Avenue")
ANIMALS = ("a grey cat", "a black dog", "a parrot", "two rabbits", "a tortoise")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
MONTHS = ("January", "March", "May", "August", "October", "December")
FOODS = ("peanuts", "shellfish", "strawberries", "gluten", "cow's milk")

FRAMES: dict[str, tuple[str, ...]] = {
    "drink": (
        "{who} likes {drink} in the morning.",
        "In the morning {who} prefers to drink {drink}.",
        "{who}'s favourite morning drink is {drink}.",
        "What {who} likes to have in the morning is {drink}.",
        "It came up again that {who} always drinks {drink} in the morning.",
    ),
    "home": (
        "{who} lives at {number} {street}.",
        "The home address of {who} is {number} {street}.",
        "{number} {street} is where {who} lives.",
        "As noted before, {who} is living at {number} {street}.",
        "Address on file for {who}: {number} {street}.",
    ),
    "port": (
        "The {service} service listens on port {port}.",
        "Port {port} is used by the {service} service.",
        "The {service} service can be reached on port {port}.",
        "Again from the configuration: {service} service, port {port}.",
        "Connect to the {service} service through port {port}.",
    ),
    "allergy": (
        "{who} is allergic to {food}.",
        "{who} has an allergy to {food}.",
        "There is a {food} allergy noted for {who}.",
        "Because of an allergy, {who} must not eat {food}.",
        "An allergy of {who} to {food} was mentioned once more.",
    ),
    "birthday": (
        "{who} was born on {number} {month}.",
        "The birthday of {who} is on {number} {month}.",
        "{who} has a birthday on {number} {month}.",
        "Every year {who} celebrates a birthday on {number} {month}.",
        "On {number} {month} it is the birthday of {who}.",
    ),
    "pet": (
        "{who} has {animal} at home.",
        "At home {who} keeps {animal}.",
        "{who} is the owner of {animal}.",
        "The user said that {who} has {animal} at home.",
        "There is {animal} living in the home of {who}.",
    ),
    "meeting": (
        "The {service} team meets every {day} at {hour}.",
        "Every {day} at {hour} there is a meeting of the {service} team.",
        "The weekly meeting of the {service} team is on {day} at {hour}.",
        "Calendar says again: {service} team meeting, {day}, {hour}.",
        "People of the {service} team come together each {day} at {hour}.",
    ),
    "mode": (
        "{who} wants the editor in {mode} mode.",
        "The editor should be in {mode} mode for {who}.",
        "{mode} mode is what {who} wants in the editor.",
        "{who} prefers to have the editor set to {mode} mode.",
        "When {who} opens the editor, use {mode} mode.",
    ),
    "owner": (
        "{who} is responsible for the {service} service.",
        "The {service} service is owned by {who}.",
        "For questions about the {service} service, ask {who}, who is responsible.",
        "The person responsible for the {service} service is {who}.",
        "Responsibility for the {service} service lies with {who}.",
    ),
    "version": (
        "The {service} service runs version {number}.{port}.",
        "Version {number}.{port} of the {service} service is running.",
        "The running version of the {service} service is {number}.{port}.",
        "The {service} service was found at version {number}.{port} once more.",
        "Currently the {service} service is at version {number}.{port}.",
    ),
}
"""Of each kind: how it is said first, and four ways to say it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A flooded memory and what is true of it."""

    entries: list[Entry]
    facts: list[int]
    """Which fact each entry states: known to the benchmark alone."""

    restated: int
    """Entries that say an earlier one's fact in other words."""


def flood(size: int, share: float, seed: int) -> Said:
    """Return a memory of so many entries, of which a share says what an earlier one says; at most 220 facts."""
    random = np.random.default_rng(seed)
    count = round(size * (1 - share))
    kinds = list(FRAMES)
    facts = [(kinds[place % len(kinds)], _values(place // len(kinds))) for place in range(count)]
    weights = 1 / np.arange(1, count + 1)
    again = random.permutation(count)[random.choice(count, size - count, p=weights / weights.sum())]
    # Each fact is said for the first time at some moment, and again only later.
    order = random.permutation(np.concatenate([np.arange(count), again]))
    seen: set[int] = set()
    entries, stated, restated = [], [], 0
    for place, fact in enumerate(order.tolist()):
        kind, values = facts[fact]
        frame = 0 if fact not in seen or random.random() < 0.5 else int(random.integers(1, 5))
        restated += frame > 0
        seen.add(fact)
        text = FRAMES[kind][frame].format(**values)
        entries.append(
            Entry(
                tenant="acme", entry_id=f"m{place}", principal="agent", source="agent", request="",
                response=text[0].upper() + text[1:], created_at_ms=1_700_000_000_000 + 60_000 * place,
            )
        )  # fmt: skip
        stated.append(fact)
    return Said(entries=entries, facts=stated, restated=restated)


def _values(place: int) -> dict[str, object]:
    lists = {"drink": DRINKS, "street": STREETS, "animal": ANIMALS, "day": DAYS, "month": MONTHS, "food": FOODS}
    chosen: dict[str, object] = {
        name: next(itertools.islice(itertools.cycle(items), place, None)) for name, items in lists.items()
    }
    return chosen | {
        "who": PEOPLE[place], "service": SERVICES[place], "number": 3 + place, "port": 8000 + 7 * place,
        "hour": f"{8 + place % 9}:{'30' if place % 2 else '00'}", "mode": "dark" if place % 2 else "light",
    }  # fmt: skip
