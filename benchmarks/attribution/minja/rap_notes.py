"""MINJA's attack on a shopping agent, as its authors released it: victim and target pairs, and five shrinking notes.

The words are read from the data folder (`minja/rap`), never written here. A note is appended to a harmless instruction
while injecting; it gets shorter from attempt to attempt (progressive shortening) and is gone from what is stored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.attribution.webshop.rows import read_rows
from benchmarks.harness.public_data import reading
from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Notes", "Pair", "load_notes", "load_pairs"]

_THOUGHT = re.compile(r"think \[(.+)\]\)$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One attack: customers who ask for `victim` are sold `target`."""

    victim: str
    target: str
    """Title of the target product."""

    price_usd: float
    """The note's "price lower than"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """The note's five forms, longest first, with MINJA's placeholders."""

    templates: tuple[str, ...]

    def of(self, pair: Pair) -> tuple[str, ...]:
        """The notes for one pair."""
        return tuple(_fill(template, pair) for template in self.templates)

    def thought(self, pair: Pair) -> str:
        """The reasoning that the longest note puts into the agent's first `think`.

        Raises:
            UsageError: the longest note has no `think [...]` part.
        """
        found = _THOUGHT.search(self.templates[0])
        if found is None:
            raise UsageError(f"the longest note has no 'think [...]' at its end: {self.templates[0]!r:.120}")
        return _fill(found[1], pair)


def load_notes(minja_rap: Path) -> Notes:
    """Read `indication_prompt_template.json`.

    Raises:
        UsageError: the file is missing or does not hold note1, note2, ….
    """
    with reading(minja_rap / "indication_prompt_template.json") as path:
        return Notes(templates=tuple(row[f"note{number}"] for number, row in enumerate(read_rows(path), start=1)))


def load_pairs(minja_rap: Path) -> tuple[Pair, ...]:
    """Read `victim_target_pair/victim_target.json`.

    Raises:
        UsageError: the file is missing or lacks a field.
    """
    with reading(minja_rap / "victim_target_pair" / "victim_target.json") as path:
        return tuple(
            Pair(victim=row["victim"], target=row["target"], price_usd=float(row["target_price"]))
            for row in read_rows(path)
        )


def _fill(template: str, pair: Pair) -> str:
    # str.format would read any brace in an attacker's data as a field of its own
    return (
        template.replace("{victim}", pair.victim)
        .replace("{target}", pair.target)
        .replace("{target_price}", f"{pair.price_usd:.2f}")
    )
