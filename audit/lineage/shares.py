"""How much of an entry is untrusted, given its derivation edges: the algebra of shares.

An edge of weight w says that the entry draws at most the share w on that parent; a share s of the parent is untrusted.
What its writer says of several parents need not add up to 1: a writer that gives each memory of its prompt the weight 1
says "up to all of it". So an entry is untrusted by the most that its edges allow: the largest Σ aᵢ·sᵢ with aᵢ ≤ wᵢ and
Σ aᵢ ≤ 1, which takes from the most untrusted parents first.

- Where weights add up to at most 1, that is Σ wᵢ·sᵢ: cutting a parent into many of the same total changes nothing.
- It is at most 1, and at most the largest sᵢ: passing on what is a little untrusted, at whatever weights, adds nothing.
- Another parent, a larger weight and a larger share never make it smaller; the order of the parents does not count.

Whole numbers, rounded up once for an entry: the same on every machine, and never less than what was said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memory_audit.entry import PARTS_PER_MILLION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.lineage.trust import Propagation

__all__ = ["Drawn", "Edge", "drawn", "untrusted_share"]


class Edge(NamedTuple):
    """An edge to a parent that is judged. A tuple, since there is one for each edge of a log."""

    number: int
    weight_ppm: int
    share_ppm: int
    """Untrusted share of the parent."""

    hops: int
    """Edges between the parent and where that share comes from."""


class Drawn(NamedTuple):
    """What an entry hands on as untrusted."""

    share_ppm: int
    """All of it from τ on."""

    witness: Edge | None
    """The edge that shows it; None for no share, and for one that nobody recorded."""


def untrusted_share(edges: Iterable[tuple[int, int]]) -> int:
    """Return the untrusted share of an entry in parts per million.

    Args:
        edges: Of each the untrusted share of its parent, and its weight, both in parts per million.
    """
    left, total = PARTS_PER_MILLION, 0
    for share, weight in sorted(edges, reverse=True):
        taken = min(weight, left)
        total += taken * share
        left -= taken
    return -(-total // PARTS_PER_MILLION)


def drawn(edges: Iterable[Edge], tau_ppm: int, propagation: Propagation, unrecorded_ppm: int = 0) -> Drawn:
    """Return the share that an entry hands on as untrusted, and its evidence.

    The evidence is a strong edge to an untrusted parent, of several the one with the fewest hops, then the heaviest,
    then the first. Where there is none, it is the edge that adds most to the share.

    Args:
        edges: To its parents, in their order; those without an untrusted share may be left out.
        tau_ppm: The share from which an entry is untrusted as a whole.
        propagation: Whether the shares of weak edges count.
        unrecorded_ppm: The share that no parent accounts for. It counts beside the untrusted share; below τ it is not
            handed on, since an agent's own words at each of many steps are no sign of an outsider.
    """
    threshold = max(tau_ppm, 1)
    strong: Edge | None = None
    weak: Edge | None = None
    weak_edges = []
    for edge in edges:
        if edge.share_ppm == PARTS_PER_MILLION and edge.weight_ppm >= tau_ppm:
            if strong is None or (edge.hops, -edge.weight_ppm) < (strong.hops, -strong.weight_ppm):
                strong = edge
        elif edge.share_ppm and edge.weight_ppm and propagation == "shares":
            weak_edges.append((edge.share_ppm, edge.weight_ppm))
            if weak is None or _adds(edge) > _adds(weak):
                weak = edge
    if strong is not None:
        return Drawn(PARTS_PER_MILLION, strong)
    share = untrusted_share(weak_edges)
    if share < threshold <= unrecorded_ppm:
        return Drawn(PARTS_PER_MILLION, None)
    return Drawn(PARTS_PER_MILLION if share + unrecorded_ppm >= threshold else share, weak)


def _adds(edge: Edge) -> tuple[int, int]:
    return edge.share_ppm * edge.weight_ppm, -edge.hops
