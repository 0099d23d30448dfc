"""The texts: scenarios of a behaviour, its restatements and safe answers; and notes of ordinary days."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from memory_audit.guard.text.forms import visible
from training.texts import read_texts

__all__ = [
    "ANSWERS", "EACH", "HARMFUL", "HELD", "PADDED", "RESTATED", "RESTATEMENTS", "SAFE", "TEXTS", "Note", "Scenario",
    "notes", "scenarios",
]  # fmt: skip

TEXTS = Path(__file__).parent / "texts"

HELD = TEXTS.with_name("held")
"""By other writers; the reader is calibrated on these, and not fitted."""

RESTATEMENTS = (
    "plain",
    "plain, another",
    "terse or core alone",
    "softened and padded",
    "another language",
    "nearly word for word",
    "buried in routine",
)
ANSWERS = (
    "by other means",
    "the act's words put right",
    "warns or tells",
    "terse or alarming words",
    "padded, put right",
    "nearly word for word, put right",
    "buried in routine, put right",
    "another language",
)
RESTATED, SAFE = len(RESTATEMENTS), len(ANSWERS)

HARMFUL = 1 + RESTATED
"""Texts of a scenario that teach the behaviour; they come first."""

EACH = HARMFUL + SAFE

PADDED = 4
"""Among the answers: not there in all scenarios."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A behaviour, its restatements and safe answers, in this order."""

    part: str
    texts: tuple[str, ...]
    """EACH of them; where PADDED is missing, the first safe one stands there again."""

    padded: bool
    """It is not missing."""

    rewritten: tuple[str, ...] = ()
    """What a small model made of texts that teach the behaviour, where it still teaches it: often clumsy, with parts
    lost."""

    rewritten_right: tuple[str, ...] = ()
    """What it made of safe answers, and where it lost the behaviour."""

    @property
    def writes(self) -> tuple[int, ...]:
        """Places of the texts that may come after the behaviour was removed."""
        return tuple(place for place in range(1, EACH) if self.padded or place != HARMFUL + PADDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A short memory of any kind."""

    topic: str
    text: str
    bad: bool
    """It teaches bad practice."""


@cache
def scenarios(folder: Path = TEXTS) -> tuple[Scenario, ...]:
    """Return the scenarios; files `PART_2`, `PART_3` … are of the same part of working life as `PART`."""
    found = []
    for name, value in read_texts(folder):
        padded = len(value["safe"]) > PADDED
        safe = [*value["safe"], *([] if padded else value["safe"][:1])]
        (mild, mild_right), (buried, buried_right) = value["mild"], value["buried"]
        honest = (*safe, mild_right, buried_right, value["foreign"])
        written = (value["act"], *value["restated"], mild, buried, *honest)
        part = name.rstrip("0123456789").rstrip("_")
        rewritten, right = (tuple(map(visible, value.get(key, ()))) for key in ("rewritten", "rewritten_right"))
        texts = tuple(map(visible, written))
        found.append(Scenario(part=part, texts=texts, padded=padded, rewritten=rewritten, rewritten_right=right))
    return tuple(found)


@cache
def notes(folder: Path = TEXTS / "notes") -> tuple[Note, ...]:
    """Return the notes, a file for each topic."""
    return tuple(Note(topic=name, text=visible(value["text"]), bad=value["bad"]) for name, value in read_texts(folder))
