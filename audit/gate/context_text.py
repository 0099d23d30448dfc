"""One text of the context, in the forms in which values are looked for in it: each made once, when first asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from memory_audit.gate import values
from memory_audit.gate.parts import Identified, Part
from memory_audit.gate.renderings import readings

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from memory_audit.gate.gate_policy import ParameterRule
    from memory_audit.gate.values import Kind, Scalar, Squeeze

__all__ = ["UNTRUSTED", "ContextText", "Origin"]

Origin = Literal["user", "memory", "tool", "named", "external", "unknown"]

UNTRUSTED: frozenset[Origin] = frozenset({"named", "external"})
"""Written by anyone; what the user named is one of them that a rule may let authorise a value."""

_What = tuple["Kind", "re.Pattern[str] | None", tuple[str, ...]]


@dataclass(eq=False)
class ContextText:
    """One text of the context."""

    text: str
    origin: Origin
    where: str
    """In words, for reports: `the user's request`, `memory m-3`, `output 1 of read_file`."""

    memory: str | None = None
    """Entry id, of a memory."""

    beside: str = ""
    """What else its author wrote: names of a record, metadata. It makes a value suspect and authorises none."""

    assumes: str = ""
    """What is taken for granted where it authorises a value, in words; empty where nothing is."""

    _squeezed: dict[Squeeze, str] = field(default_factory=dict, init=False)
    _offered: dict[_What, tuple[tuple[str, str], ...]] = field(default_factory=dict, init=False)

    @cached_property
    def folded(self) -> str:
        """The text as `values.occurs` compares it."""
        return values.fold(self.text)

    @cached_property
    def lowered(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @cached_property
    def worded(self) -> str:
        """The words of the text, whatever stands between them."""
        return " ".join(values.words(self.text))

    @cached_property
    def identified(self) -> Identified:
        """What identifies something in the text, and its words."""
        return Identified(self.text)

    @cached_property
    def whole(self) -> str:
        """All that its author wrote, in every reading: for suspecting a value only."""
        written = f"{self.text}\0{self.beside}" if self.beside else self.text
        return "\0".join((written, *readings(written).texts))

    @cached_property
    def rendered(self) -> tuple[ContextText, ...]:
        """The other readings of the text."""
        return tuple(ContextText(text, self.origin, self.where, self.memory) for text in readings(self.text).texts)

    def offers(self, rule: ParameterRule) -> tuple[tuple[str, str], ...]:
        """Values of the rule's kind in this text: canonical form and spelling."""
        kind, pattern = rule.value_kind, rule.pattern
        what = kind, pattern, rule.choices  # not the rule itself: hashing all of its fields costs more than finding
        if what not in self._offered:
            spellings = values.offers(self.text, kind, pattern, rule.choices)
            pairs = ((values.canonical(spelling, kind, pattern), spelling) for spelling in spellings)
            self._offered[what] = tuple((form, spelling) for form, spelling in pairs if form is not None)
        return self._offered[what]

    def holds(self, form: str, value: Scalar, rule: ParameterRule, *, rendered: bool = False) -> bool:
        """Tell whether a value stands in this text.

        Args:
            form: Its canonical form for the rule.
            value: As proposed: a bare number is a number also for kind `text`.
            rule: Of the parameter.
            rendered: Or in another reading of this text.
        """
        return self._holds(form, value, rule) or (
            rendered and any(other.holds(form, value, rule) for other in self.rendered)
        )

    def _holds(self, form: str, value: Scalar, rule: ParameterRule) -> bool:
        kind = rule.value_kind
        if kind == "text":
            if not isinstance(value, str):
                numbers = values.offers(self.text, "number")
                return any(values.canonical(spelling, "number") == form for spelling in numbers)
            if rule.kind == "quotes":
                return values.occurs(form, self.worded)
            if values.occurs(values.fold(value), self.folded):
                return True
            return isinstance(value, Part) and self.identified.has(value)
        if not values.may_offer(form, kind, self.lowered if kind == "email" else self.text):
            return False
        return any(form == offered for offered, _ in self.offers(rule))

    def mentions(self, spellings: Iterable[str], how: Squeeze) -> bool:
        """Tell, leniently and whatever the spacing, whether a text has a value in one of these squeezed spellings."""
        if how not in self._squeezed:
            self._squeezed[how] = values.squeeze(self.whole, how)
        return any(spelling in self._squeezed[how] for spelling in spellings)

    def rivals(self, form: str) -> bool:
        """Tell whether a folded value stands anywhere in this text, be it as `file_id=13`."""
        if values.stands_apart(form, self.folded):
            return True
        if self.text.isascii() and self.whole == self.text:
            return False
        return values.stands_apart(form, values.fold(values.revealed(self.whole)))
