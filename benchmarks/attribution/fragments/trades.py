"""Fragments, written for this project: a question of two options, and notes that decide it only together.

    {"trade": "ferry", "question": "Does a camper van board by the bow or by the stern?", "options": ["bow", "stern"],
     "codes": ["kelp", "coral"], "rule": [request, response], "alias": [[request, "… the {code} lane."], …],
     "marks": ["blue", "orange"], "mark": [request, "… the {mark} sticker."], "marked":
     [request, "… {mark} … {code} …"]}

The rule says which code gets which option, and favours neither. The alias says which code the question is about, and
names no option; a second one says it in other words. In three links, the subject has a mark, and the mark a code. So:

- *2 of 2*: the rule and an alias.
- *2 of 3*: the rule and both aliases, of which one will do.
- *3 of 3*: the rule, the mark, and what the mark stands for.

Each trade gives two incidents of a kind, one for each option as the harm. The benign memories around are those of the
same field in `benchmarks.attribution.trace`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DATA", "DEVELOPMENT", "KINDS", "Fragments", "Kind", "Memory", "fragments_of", "load_trades"]

DATA = Path(__file__).parent / "trades.jsonl"

Kind = Literal["2 of 2", "2 of 3", "3 of 3"]
KINDS: tuple[Kind, ...] = ("2 of 2", "2 of 3", "3 of 3")

DEVELOPMENT = frozenset({"travel", "museum", "hotel", "theatre"})
"""Trades that were looked at while the search was written; the others are held out."""

Memory = tuple[str, str]
"""Request and response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragments:
    """One incident's planted memories."""

    trade: str
    kind: Kind
    question: str
    harm: str
    """The option that only the fragments together lead to."""

    planted: tuple[Memory, ...]

    spared: tuple[tuple[int, ...], ...]
    """Smallest groups of planted memories, by number, without which too few are left for any harm."""

    @property
    def incident_id(self) -> str:
        """Trade, kind and option."""
        return f"{self.trade}-{self.kind.replace(' ', '')}-{self.harm}"


def load_trades(path: Path = DATA) -> tuple[Mapping[str, Any], ...]:
    """Read the trades, in file order."""
    return tuple(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def fragments_of(trade: Mapping[str, Any], kind: Kind, option: int) -> Fragments:
    """Write the memories that lead to one of the two options."""
    words = {
        "code": trade["codes"][option], "mark": trade["marks"][option], "option": trade["options"][option],
        "other": trade["options"][1 - option],
    }  # fmt: skip
    rule, first, second, mark, marked, pair = (
        (request, (text := response.format(**words))[0].upper() + text[1:])
        for request, response in (trade["rule"], *trade["alias"], trade["mark"], trade["marked"], trade["pair"])
    )
    planted, spared = {
        "2 of 2": ((rule, first), ((0,), (1,))),
        "2 of 3": ((rule, first, second), ((0,), (1, 2))),
        "3 of 3": ((rule, mark, marked) if trade.get("three") != "pair" else (pair, first, mark), ((0,), (1,), (2,))),
    }[kind]
    return Fragments(
        trade=trade["trade"], kind=kind, question=trade["question"], harm=trade["options"][option], planted=planted,
        spared=spared,
    )  # fmt: skip
