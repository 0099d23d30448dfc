"""Small derivation graphs for tests, and the definition of a label written from the rule's words."""

import networkx as nx
from hypothesis import strategies as st

from audit.entry import Entry, Parent
from audit.lineage.trust import TrustRules

RULES = TrustRules(unattributed="trusted")
WEIGHTS = (0, 100_000, 199_999, 200_000, 500_000, 1_000_000)


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


def labels_by_definition(entries, tau_ppm, rules=RULES, removed=()):
    """External by itself or removed; else derived-untrusted where a strong path leads from such an entry; else not."""
    graph = strong_graph(entries, tau_ppm)
    external = {item.entry_id for item in entries if rules.base_label(item) == "external"} | set(removed)
    below = set().union(*(nx.descendants(graph, name) for name in external)) if external else set()
    return {
        item.entry_id: "external" if item.entry_id in external
        else "derived-untrusted" if item.entry_id in below else "trusted"
        for item in entries
    }  # fmt: skip
