"""Trust labels, and the base label that an entry has before its ancestors are looked at.

Three labels, from best to worst: `trusted`, `derived-untrusted` (the entry itself is trusted, an ancestor is not),
`external`. The review of MemLineage (arXiv 2605.14421) names them and leaves the base label open; decided here:

1. An entry is trusted by itself only if its `source` *and* its principal are trusted; both are claims that the
   principal's signature makes its own, so an unknown principal cannot vouch for a source.
2. An agent's entry is `external` where its parents do not account for it: a summary whose origin nobody recorded looks
   exactly like a home-made thought. Its parents' weights are shares of it, and what they leave is *unrecorded*. An
   unrecorded share of τ or more is distrusted as an external parent of that weight would be: else leaving a parent out,
   or lowering its weight, would make an entry cleaner than the truth does. No parents, or parents of weight 0, leave
   all of it. Where everything that was derived has its parents recorded, the rest is the agent's own thought, and
   `unattributed: trusted` says so.
3. Whose word parents are, the principal says, and its key. An agent can leave out what it drew on, told so by a text
   that it reads. Where its *runtime* records them, under a principal of its own (`memory_audit.gate.gate.Gate.stamp`),
   `principals` names that one and not the agent's: what the agent wrote by itself is then external.
4. A removed entry is `external` for ever, whatever it was: an audit found it at fault, its tombstone keeps neither
   source nor parents, and what was derived from it must not become clean by the removal.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from memory_audit.entry import PARTS_PER_MILLION, Source
from memory_audit.errors import UsageError
from memory_audit.formats.members import Name, as_members
from memory_audit.formats.records import convert

if TYPE_CHECKING:
    from memory_audit.entry import Entry

__all__ = ["ANY_PRINCIPAL", "DEFAULT_TAU_PPM", "BaseLabel", "Propagation", "TrustRules", "parse_trust_rules"]

BaseLabel = Literal["trusted", "external"]
Propagation = Literal["shares", "strongest"]

DEFAULT_TAU_PPM = 200_000
"""τ: an equal share of five retrieved memories, the k of both papers' agents, is still a strong edge."""

ANY_PRINCIPAL = "*"


class TrustRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is trusted by themselves. The default trusts what users and the agent wrote, and no tool or web page."""

    sources: frozenset[Source] = frozenset({"user", "agent"})
    principals: frozenset[Name] = frozenset({ANY_PRINCIPAL})
    """Names, or `*` for all: right only where every writer is one of the owner's."""

    except_principals: frozenset[Name] = frozenset()
    """Never trusted, also where `principals` is `*`."""

    unattributed: BaseLabel = "external"
    """What the unrecorded share of an agent's entry counts as (rule 2)."""

    propagation: Propagation = "shares"
    """How distrust is handed on (`lineage.dag`): shares of untrusted parents add up, or the strongest edge counts
    alone, which is MemLineage's rule and lets many weak edges through."""

    def __post_init__(self) -> None:
        if ANY_PRINCIPAL in self.except_principals:
            raise UsageError("except_principals: '*' stands for all only in principals: name each one")
        for member, names in (("principals", self.principals), ("except_principals", self.except_principals)):
            for name in names:
                if name != name.strip():
                    raise UsageError(f"{member}: {name!r:.60} begins or ends with a blank")

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
    members = {name: _normalised(item) for name, item in as_members(value, where).items()}
    return convert(as_members(members, where), TrustRules, where)


def _normalised(value: Any) -> Any:
    """Return a list with its texts as those of entries are: in form NFC."""
    if not isinstance(value, list):
        return value
    return [unicodedata.normalize("NFC", item) if isinstance(item, str) else item for item in value]
