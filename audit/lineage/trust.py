"""Trust labels, and the base label that an entry has before its ancestors are looked at.

Three labels, from best to worst: `trusted`, `derived-untrusted` (the entry itself is trusted, an ancestor is not),
`external`. The review of MemLineage (arXiv 2605.14421) names them and leaves the base label open; decided here:

1. An entry is trusted by itself only if its `source` *and* its principal are trusted; both are claims that the
   principal's signature makes its own, so an unknown principal cannot vouch for a source.
2. An agent's entry is `external` where its parents do not account for it: a summary whose origin nobody recorded looks
   exactly like a home-made thought. Its parents' weights are shares of it, and what they leave is *unrecorded*. An
   unrecorded share of τ or more is distrusted as an external parent of that weight would be: else leaving a parent out,
   or lowering its weight, would make an entry cleaner than the truth does. No parents, or parents of weight 0, leave
   all of it. Where the agent records parents for everything it derives, the rest is its own thought, and
   `unattributed: trusted` says so.
3. A removed entry is `external` for ever, whatever it was: an audit found it at fault, its tombstone keeps neither
   source nor parents, and what was derived from it must not become clean by the removal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from memory_audit.entry import PARTS_PER_MILLION, Source
from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from memory_audit.entry import Entry

__all__ = ["ANY_PRINCIPAL", "DEFAULT_TAU_PPM", "BaseLabel", "Propagation", "TrustRules", "parse_trust_rules"]

BaseLabel = Literal["trusted", "external"]
Propagation = Literal["shares", "strongest"]

DEFAULT_TAU_PPM = 200_000
"""τ: an equal share of five retrieved memories, the k of both papers' agents, is still a strong edge."""

ANY_PRINCIPAL = "*"
MAX_NAMES = 10_000
"""Of sources and principals, each list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRules:
    """Who is trusted by themselves. The default trusts what users and the agent wrote, and no tool or web page."""

    sources: frozenset[Source] = frozenset({"user", "agent"})
    principals: frozenset[str] = frozenset({ANY_PRINCIPAL})
    """Names, or `*` for all: right only where every writer is one of the owner's."""

    except_principals: frozenset[str] = frozenset()
    """Never trusted, also where `principals` is `*`."""

    unattributed: BaseLabel = "external"
    """What the unrecorded share of an agent's entry counts as (rule 2)."""

    propagation: Propagation = "shares"
    """How distrust is handed on (`lineage.dag`): shares of untrusted parents add up, or the strongest edge counts
    alone, which is MemLineage's rule and lets many weak edges through."""

    def base_label(self, entry: Entry, tau_ppm: int = DEFAULT_TAU_PPM) -> BaseLabel:
        """Label of an entry as if it had no ancestors."""
        return "trusted" if self.distrust(entry, tau_ppm) is None else "external"

    def distrust(self, entry: Entry, tau_ppm: int = DEFAULT_TAU_PPM) -> str | None:
        """Return why an entry is external by itself, in words without its text; None where it is trusted."""
        writer = self.distrust_writer(entry)
        if writer is not None:
            return writer
        unrecorded = self.unrecorded_ppm(entry)
        if unrecorded == PARTS_PER_MILLION:
            return "the agent recorded no parents for it" + (" that weigh anything" if entry.parents else "")
        if unrecorded >= max(tau_ppm, 1):
            recorded = PARTS_PER_MILLION - unrecorded
            return f"the agent recorded parents for {recorded / PARTS_PER_MILLION:g} of it alone"
        return None

    def distrust_writer(self, entry: Entry) -> str | None:
        """Return why an entry is external whatever its parents are, as `distrust`; None where it is not."""
        if entry.source not in self.sources:
            return f"source {entry.source} is not trusted"
        principal = entry.principal
        if principal in self.except_principals or not self.principals & {ANY_PRINCIPAL, principal}:
            return "its principal is not trusted"
        return None

    def unrecorded_ppm(self, entry: Entry) -> int:
        """Share of an agent's entry that no parent accounts for, in parts per million; 0 where that is trusted."""
        if entry.source != "agent" or self.unattributed == "trusted":
            return 0
        return max(PARTS_PER_MILLION - sum(parent.weight_ppm for parent in entry.parents), 0)


def parse_trust_rules(value: Any, where: str) -> TrustRules:
    """Read a `trust` block, of a gate policy or of an audit's configuration; what it leaves out is the default.

        sources: [user, agent]
        principals: ["*"]
        except_principals: []
        unattributed: external      # or trusted
        propagation: shares         # or strongest

    Args:
        value: As YAML gave it.
        where: The file and the place in it, for messages.

    Raises:
        UsageError: not a mapping, an unknown member, a list that is not one of different non-empty texts, a text with
            an outer blank, a source that entries cannot have, `*` among those excepted, or another base label or
            propagation.
    """
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: expected a mapping of names to values")
    unknown = next((name for name in value if name not in _MEMBERS), None)
    if unknown is not None:
        raise UsageError(f"{where}: unknown member {unknown!r:.60}; known are {', '.join(_MEMBERS)}")
    lists = {name: _names(value[name], f"{where}: {name}") for name in _LISTS if name in value}
    foreign = sorted(lists.get("sources", frozenset()) - set(get_args(Source)))
    if foreign:
        raise UsageError(f"{where}: source {foreign[0]!r:.60}, expected some of {', '.join(get_args(Source))}")
    default = TrustRules()
    if ANY_PRINCIPAL in lists.get("except_principals", frozenset()):
        raise UsageError(f"{where}: except_principals: '*' stands for all only in principals: name each one")
    words = {name: value.get(name, getattr(default, name)) for name in _WORDS}
    for name, word in words.items():
        if not isinstance(word, str) or word not in _WORDS[name]:
            raise UsageError(f"{where}: {name} is {word!r:.60}, expected one of {', '.join(_WORDS[name])}")
    return TrustRules(
        sources=lists.get("sources", default.sources),  # type: ignore[arg-type]
        principals=lists.get("principals", default.principals),
        except_principals=lists.get("except_principals", default.except_principals),
        unattributed=words["unattributed"],
        propagation=words["propagation"],
    )


_LISTS = ("sources", "principals", "except_principals")
_WORDS = {"unattributed": get_args(BaseLabel), "propagation": get_args(Propagation)}
_MEMBERS = (*_LISTS, *_WORDS)


def _names(value: Any, where: str) -> frozenset[str]:
    if not isinstance(value, list) or len(value) > MAX_NAMES:
        raise UsageError(f"{where} is {value!r:.60}, expected a list of at most {MAX_NAMES} different texts")
    for item in value:
        if not isinstance(item, str) or not item:
            raise UsageError(f"{where}: {item!r:.60} must be text and not empty (quote it)")
        if item != item.strip():
            raise UsageError(f"{where}: {item!r:.60} begins or ends with a blank")
    names = frozenset(unicodedata.normalize("NFC", item) for item in value)  # as those of entries are
    if len(names) != len(value):
        raise UsageError(f"{where} names something twice, expected a list of different texts")
    return names
