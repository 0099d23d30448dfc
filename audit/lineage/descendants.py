"""What goes with a removed memory: the closure of S over derivation edges, and the labels the report shows.

1. A live entry that draws τ or more on S by signed edges is a descendant, be it over one strong edge or by shares that
   add up (`memory_audit.lineage.dag`); the policy says whether it is proposed for removal, for quarantine, or only
   reported.
2. Two kinds of descendants are quarantined at most: those that are none without estimated edges (`audit --edges`; an
   estimate removes nothing), and those of an entry that an earlier run removed (that run decided about them).
3. Labels count signed edges alone. An estimated parent would make an agent's entry look attributed, hence trusted
   (rule 2 of `memory_audit.lineage.trust`): an estimate may lower trust, and never raise it.

The closure takes all descendants of S at once, so closing a closed set adds nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.counted import counted
from memory_audit.entry import PARTS_PER_MILLION
from memory_audit.lineage.dag import Lineage
from memory_audit.lineage.trust import parse_trust_rules
from memory_audit.lineage.verified import VerifiedLineage
from memory_audit.result import PATH_HEAD, PATH_TAIL, DescendantFinding, EntryTrust, LineageStep, steps_left_out

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.lineage.dag import Descendant
    from memory_audit.lineage.edges_file import EstimatedEdge
    from memory_audit.result import Proposal
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Derivation", "derivation_of"]


@dataclass(frozen=True, slots=True)
class _Path:
    """A derivation path that keeps its ends alone: whole paths of a chain of n entries would be n² steps."""

    head: tuple[LineageStep, ...] = ()
    tail: tuple[LineageStep, ...] = ()
    left_out: int = 0

    def extended(self, step: LineageStep) -> _Path:
        """Return the path with one more step at its end."""
        if len(self.head) < PATH_HEAD:
            return _Path((*self.head, step))
        kept = (*self.tail, step)[-PATH_TAIL:]
        return _Path(self.head, kept, self.left_out + len(self.tail) + 1 - len(kept))

    def steps(self) -> tuple[LineageStep, ...]:
        """Return it as results hold it (see `memory_audit.result`)."""
        return (*self.head, *((steps_left_out(self.left_out),) if self.left_out else ()), *self.tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """What derives from what among one tenant's entries."""

    signed: Lineage
    """Edges that writers signed."""

    combined: Lineage
    """Those, and the estimated ones; the same object where there are none."""

    removed_earlier: frozenset[str] = frozenset()
    """Entries that earlier runs removed."""

    policy: Proposal = "remove"
    estimated_edges: int = 0

    def closure(self, removed: Collection[str]) -> tuple[DescendantFinding, ...]:
        """Return what descends from `removed`, from what earlier runs removed, or from both, in log order.

        Raises:
            UsageError: `removed` names an entry that is not there.
        """
        found = self._findings(self.signed, removed, self.policy)
        lesser: Proposal = "quarantine" if self.policy == "remove" else self.policy
        # Signed edges first: what they reach is no estimate, be there a shorter path with an estimated edge.
        for lineage in (self.signed, self.combined):
            if self.removed_earlier or lineage is not self.signed:
                found = self._findings(lineage, self.removed_earlier.union(removed), lesser) | found
        return tuple(found[entry_id] for entry_id, _ in self.signed.labels() if entry_id in found)

    def trust(self) -> tuple[EntryTrust, ...]:
        """Labels of all live entries, in log order."""
        paths: dict[str, _Path] = {}
        found = []
        for entry_id, label in self.signed.labels():
            if (edge := self.signed.witness(entry_id)) is not None:  # of an earlier entry, so its path is known
                parent, weight_ppm = edge
                before = paths.get(parent) or _Path().extended(self._step(parent, None))
                paths[entry_id] = before.extended(self._step(entry_id, weight_ppm))
            steps = paths[entry_id].steps() if entry_id in paths and label != "trusted" else ()
            found.append(EntryTrust(entry_id=entry_id, trust=label, path=steps))
        return tuple(found)

    def _findings(self, lineage: Lineage, seeds: Collection[str], proposal: Proposal) -> dict[str, DescendantFinding]:
        """Return a finding for each descendant, by entry id; parents come before their children, as in the log."""
        paths: dict[str, _Path] = {}
        weak: set[str] = set()
        estimated = lineage is not self.signed  # what signed edges reach alone is found by them
        found = {}
        for item in lineage.descendants(seeds):
            # A removed entry has no parents in a verified log, so every parent but the seed is among these itself.
            before = paths[item.parent] if item.parent != item.seed else _Path().extended(self._step(item.seed, None))
            paths[item.entry_id] = before.extended(self._step(item.entry_id, item.weight_ppm))
            if item.weight_ppm < lineage.tau_ppm or item.parent in weak:
                weak.add(item.entry_id)
            if item.strong:
                found[item.entry_id] = DescendantFinding(
                    entry_id=item.entry_id, proposal=proposal, path=paths[item.entry_id].steps(), estimated=estimated,
                    reason=self._reason(item, weak=item.entry_id in weak, estimated=estimated),
                )  # fmt: skip
        return found

    def _reason(self, item: Descendant, *, weak: bool, estimated: bool) -> str:
        edges = counted(item.steps, "edge" if weak else "strong edge")
        reason = f"derived from {item.seed} over {edges}" + (", some of them estimated" if estimated else "")
        reason += ", with others whose shares add up" if weak else ""
        return reason + ("; an earlier run removed that entry" if item.seed in self.removed_earlier else "")

    def _step(self, entry_id: str, weight_ppm: int | None) -> LineageStep:
        return LineageStep(
            entry_id=entry_id, trust=self.signed.label(entry_id), removed=entry_id in self.removed_earlier,
            weight=None if weight_ppm is None else weight_ppm / PARTS_PER_MILLION,
        )  # fmt: skip


def derivation_of(  # noqa: PLR0913 - the store, three rules, and what somebody estimated
    snapshot: VerifiedSnapshot,
    tenant: str,
    *,
    trust: Mapping[str, object],
    tau: float,
    policy: Proposal = "remove",
    estimated: Sequence[EstimatedEdge] = (),
) -> Derivation | None:
    """Return the derivation of one tenant's entries; None where no entry names a parent and no edge was estimated.

    Args:
        snapshot: Verified.
        tenant: Whose.
        trust: Base labels, as a configuration has them.
        tau: Share, 0 to 1, from which an entry derives from others.
        policy: What becomes of descendants by signed edges.
        estimated: Checked against the snapshot (`memory_audit.lineage.edges_file.check_edges`); other tenants' edges
            are skipped.

    Raises:
        UsageError: base labels that are not those of `memory_audit.lineage.trust`.
        VerificationError: the tenant's log does not verify.
    """
    mine = [edge for edge in estimated if edge.tenant == tenant]
    if not mine and not any(entry.parents for entry in snapshot.entries(tenant)):
        return None
    rules, tau_ppm = parse_trust_rules(trust, "configuration: trust"), round(tau * PARTS_PER_MILLION)
    signed = VerifiedLineage(snapshot, tenant, rules, tau_ppm).dag
    log = snapshot.log(tenant)
    removed_earlier = {item.tombstone.removed_index: item.tombstone.entry_id for item in log.tombstones}
    combined = signed
    if mine:
        by_child: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for edge in mine:
            by_child[edge.child][edge.parent] = edge.weight_ppm
        combined = Lineage(tenant, rules, tau_ppm)
        order: dict[int, Entry | str] = {item.index: item.entry for item in log.entries}
        for _, item in sorted({**order, **removed_earlier}.items()):
            if isinstance(item, str):
                combined.append_removed(item)
            else:
                combined.append(item, by_child.get(item.entry_id, {}))
    return Derivation(
        signed=signed, combined=combined, removed_earlier=frozenset(removed_earlier.values()), policy=policy,
        estimated_edges=len(mine),
    )  # fmt: skip
