"""Trust labels, and the base label that an entry has before its ancestors are looked at.

Three labels, from best to worst: `trusted`, `derived-untrusted` (the entry itself is trusted, an ancestor is not),
`external`. The review of MemLineage (arXiv 2605.14421) names them and leaves the base label open; decided here:

1. An entry is trusted by itself only if its `source` *and* its principal are trusted; both are claims that the
   principal's signature makes its own, so an unknown principal cannot vouch for a source.
2. An agent's entry that names no parents is `external` unless the rules say otherwise: a summary whose origin nobody
   recorded looks exactly like a home-made thought. Where the agent records parents for everything it derives, "none"
   means none, and `unattributed: trusted` says so.
3. A removed entry is `external` for ever, whatever it was: an audit found it at fault, its tombstone keeps neither
   source nor parents, and what was derived from it must not become clean by the removal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from audit.entry import Entry, Source

__all__ = ["ANY_PRINCIPAL", "BaseLabel", "TrustLabel", "TrustRules"]

TrustLabel = Literal["trusted", "derived-untrusted", "external"]
BaseLabel = Literal["trusted", "external"]

ANY_PRINCIPAL = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRules:
    """Who is trusted by themselves. The default trusts what users and the agent wrote, and no tool or web page."""

    sources: frozenset[Source] = frozenset({"user", "agent"})
    principals: frozenset[str] = frozenset({ANY_PRINCIPAL})
    """Names, or `*` for all: right only where every writer is one of the owner's."""

    except_principals: frozenset[str] = frozenset()
    """Never trusted, also where `principals` is `*`."""

    unattributed: BaseLabel = "external"
    """Base label of an agent's entry that names no parents (rule 2)."""

    def base_label(self, entry: Entry) -> BaseLabel:
        """Label of an entry as if it had no ancestors."""
        return "trusted" if self.distrust(entry) is None else "external"

    def distrust(self, entry: Entry) -> str | None:
        """Return why an entry is external by itself, in words without its text; None where it is trusted."""
        if entry.source not in self.sources:
            return f"source {entry.source} is not trusted"
        principal = entry.principal
        if principal in self.except_principals or not self.principals & {ANY_PRINCIPAL, principal}:
            return "its principal is not trusted"
        if entry.source == "agent" and not entry.parents and self.unattributed == "external":
            return "the agent recorded no parents for it"
        return None
