"""Which records did the user name? Not every word of a request is a name, and whoever writes a record may name it too.

A record (an output with `names`) is named by a text where one of its names

- has substance: it looks like the name of one thing and not like words that a request may have anyway, such as an
  article or a topic. It has six letters and digits, a letter among them, and a dot, an underscore or an @ within its
  last word, beside a letter (`bill.txt`, `team_notes`, `December bill.txt`); or it is one word that begins with a
  letter and has three digits (`INC-4411`). Numbers, dates and accounts are values, not names. A policy's `names`, a
  regular expression for whole names, decides instead where it is given;
- stands there whole, as `memory_audit.gate.values.occurs` says: `bill.txt` is not in `my-bill.txt`;
- is that record's alone. A name that another record has too names none, nor do two names of different records one of
  which is part of the other (`bill.txt`, `December bill.txt`), as far as both are in the text: the user meant one.
  Outputs with the same text are one record; one that came in parts belongs into one output.

A text that names more than MAX_NAMED records is a list, which points at none.

Not decided: whether a stranger's record has the name that the user meant. Where strangers choose names, `bill.txt` is
soon guessed; `named` should then authorise nothing that matters.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from memory_audit.gate import values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.gate.call import ToolOutput

__all__ = ["MAX_NAMED", "named_records"]

LEAST_SIGNS = 6
"""Letters and digits of a name: `u.s.a.`, `10 p.m.` and `a.m.` have fewer, `bill.txt` has seven."""

LEAST_DIGITS = 3
"""Of a name without a dot: `covid-19` is a topic."""

MAX_NAMED = 100
"""A request speaks of a few records; a listing names all, and its length must not become comparisons squared."""

MAX_NAME_CHARS = 2_048
"""The longest web address that is passed on everywhere; the policy's expression is not asked about longer names."""

MAX_LOOKED_THROUGH = 1 << 31
"""Characters looked through, names times texts, as for one argument; beyond it no record is named."""

_MARKED = re.compile(r"[^\W\d_][._@]+[^\W_]|[^\W_][._@]+[^\W\d_]")
_VALUES: tuple[values.Kind, ...] = ("number", "date", "iban")


def named_records(
    outputs: Sequence[ToolOutput], texts: Sequence[str], pattern: re.Pattern[str] | None = None
) -> frozenset[int]:
    """Return the places of the outputs that a text names.

    Args:
        outputs: All of the context, trusted ones too: they share names.
        texts: Those that may name a record, folded.
        pattern: Of the policy, for whole names; None for what the module says.
    """
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for output in outputs:
        for name in output.names:
            folded = values.canonical(name, "text")
            if folded is not None and len(name) <= MAX_NAME_CHARS and _has_substance(name, folded, pattern):
                owners[folded].add(output.text)
    if not owners or len(owners) * sum(map(len, texts)) > MAX_LOOKED_THROUGH:
        return frozenset()
    found = {name for text in texts for name in _pointed_at(text, owners)}
    return frozenset(
        place
        for place, output in enumerate(outputs)
        if output.names and any(values.canonical(name, "text") in found for name in output.names)
    )


def _pointed_at(text: str, owners: dict[str, set[str]]) -> list[str]:
    """Return the names in a text that are one record's alone."""
    there = [name for name in owners if values.occurs(name, text)]
    if len(there) > MAX_NAMED:
        return []
    return [
        name
        for name in there
        if len(owners[name]) == 1
        and not any(
            owners[other] != owners[name] and (values.occurs(name, other) or values.occurs(other, name))
            for other in there
        )
    ]


def _has_substance(name: str, folded: str, pattern: re.Pattern[str] | None) -> bool:
    if pattern is not None:
        return pattern.fullmatch(name.strip()) is not None
    signs = sum(map(str.isalnum, folded))
    if signs < LEAST_SIGNS or any(values.canonical(name.strip().upper(), kind) is not None for kind in _VALUES):
        return False
    if _MARKED.search(folded.rpartition(" ")[2]):
        return True
    return " " not in folded and folded[0].isalpha() and sum(map(str.isdigit, folded)) >= LEAST_DIGITS
