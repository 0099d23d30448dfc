"""Small derivation graphs for tests, and the definitions of shares and labels written from the rules' words."""

import networkx as nx
from hypothesis import strategies as st

from memory_audit.entry import Entry, Parent
from memory_audit.lineage.trust import TrustRules

RULES = TrustRules(unattributed="trusted")
PAPER = TrustRules(unattributed="trusted", propagation="strongest")
ALL_RULES = (RULES, PAPER, TrustRules(), TrustRules(propagation="strongest"))
FULL = 1_000_000
WEIGHTS = (0, 1, 100_000, 199_999, 200_000, 500_000, 1_000_000)


def entry(entry_id, *parents, source="agent", principal="bot", tenant="acme", text=""):  # noqa: ANN002
    return Entry(
        tenant=tenant, entry_id=entry_id, principal=principal, source=source, request=f"about {entry_id}",
        response=text, created_at_ms=1,
        parents=tuple(Parent(entry_id=name, weight_ppm=weight) for name, weight in parents),
    )  # fmt: skip


@st.composite
def histories(draw, largest=12):
    """Entries in append order, each drawing on some earlier ones."""
    entries = []
    for number in range(draw(st.integers(1, largest))):
        parents = draw(st.lists(st.integers(0, number - 1), max_size=4, unique=True)) if number else []
        entries.append(
            entry(
                f"e{number}", *((f"e{parent}", draw(st.sampled_from(WEIGHTS))) for parent in parents),
                source=draw(st.sampled_from(["user", "agent", "agent", "external", "tool"])),
            )
        )  # fmt: skip
    return entries


def strong_graph(entries, tau_ppm):
    graph = nx.DiGraph()
    for item in entries:
        graph.add_node(item.entry_id)
        graph.add_edges_from((p.entry_id, item.entry_id) for p in item.parents if p.weight_ppm >= tau_ppm)
    return graph


def untrusted_by_definition(pairs):
    """Of (share, weight) pairs, the most that may be untrusted: at each level the weight of what is at least so bad."""
    total, below = 0, 0
    for level in sorted({share for share, _ in pairs}):
        total += (level - below) * min(FULL, sum(weight for share, weight in pairs if share >= level))
        below = level
    return -(-total // FULL)


def shares_by_definition(entries, tau_ppm, sources, propagation="shares", unrecorded=lambda _: 0):
    """How much of each entry is untrusted, taking `sources` for untrusted: all of it from τ on."""
    shares = {}
    for item in entries:
        pairs = [(shares[parent.entry_id], parent.weight_ppm) for parent in item.parents]
        strong = any(share == FULL and weight >= tau_ppm for share, weight in pairs)
        share = untrusted_by_definition(pairs) if propagation == "shares" else 0
        whole = item.entry_id in sources or strong or share + unrecorded(item) >= max(tau_ppm, 1)
        shares[item.entry_id] = FULL if whole else share
    return shares


def labels_by_definition(entries, tau_ppm, rules=RULES, removed=()):
    """Of entries that are untrusted: external by the writer or a removal, or for want of parents; else derived."""
    external = {item.entry_id for item in entries if rules.distrust_writer(item)} | set(removed)
    shares = shares_by_definition(entries, tau_ppm, external, rules.propagation, rules.unrecorded_ppm)
    labels = {}
    for item in entries:
        pairs = [(shares[parent.entry_id], parent.weight_ppm) for parent in item.parents]
        strong = any(share == FULL and weight >= tau_ppm for share, weight in pairs)
        derived = strong or (rules.propagation == "shares" and untrusted_by_definition(pairs) >= max(tau_ppm, 1))
        missing = rules.unrecorded_ppm(item) >= max(tau_ppm, 1)
        labels[item.entry_id] = (
            "trusted" if shares[item.entry_id] < FULL
            else "external" if item.entry_id in external or (missing and not derived)
            else "derived-untrusted"
        )  # fmt: skip
    return labels
