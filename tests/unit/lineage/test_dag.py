"""What the label of an entry says of its ancestors, however the graph came about."""

import dataclasses
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import EntryError, UsageError
from memory_audit.lineage.dag import DEFAULT_TAU_PPM, Lineage
from memory_audit.lineage.trust import TrustRules
from tests.unit.lineage.worlds import (
    ALL_RULES,
    FULL,
    PAPER,
    RULES,
    WEIGHTS,
    entry,
    histories,
    labels_by_definition,
    shares_by_definition,
    strong_graph,
)

taus = st.sampled_from([0, 150_000, 200_000, 200_001, 1_000_000])
all_rules = st.sampled_from(ALL_RULES)


def strong(lineage, seeds):
    return tuple(item for item in lineage.descendants(seeds) if item.strong)


@given(histories(), taus, all_rules)
def test_a_label_is_what_the_definition_says(entries, tau, rules):
    assert dict(Lineage.of("acme", entries, rules, tau).labels()) == labels_by_definition(entries, tau, rules)


@given(histories(), taus)
def test_by_the_rule_of_the_paper_strong_edges_alone_hand_on_distrust(entries, tau):
    graph = strong_graph(entries, tau)
    external = {item.entry_id for item in entries if PAPER.distrust(item) is not None}
    below = set().union(*(nx.descendants(graph, name) for name in external)) if external else set()
    assert dict(Lineage.of("acme", entries, PAPER, tau).labels()) == {
        item.entry_id: "external" if item.entry_id in external
        else "derived-untrusted" if item.entry_id in below else "trusted"
        for item in entries
    }  # fmt: skip


@given(
    st.lists(st.integers(0, 1_000_000), min_size=1, max_size=40),
    st.integers(0, 1_000_000),
    st.sampled_from([RULES, PAPER]),
)
def test_untrusted_path_persistence_no_number_of_strong_steps_launders(weights, tau, rules):
    chain = [entry("e0", source="external")]
    chain += [entry(f"e{k}", (f"e{k - 1}", weight)) for k, weight in enumerate(weights, start=1)]
    labels = dict(Lineage.of("acme", chain, rules, tau).labels())
    unbroken = True
    for k, weight in enumerate(weights, start=1):
        unbroken = unbroken and weight >= tau
        assert labels[f"e{k}"] == ("derived-untrusted" if unbroken else "trusted")


@given(histories(), st.data())
def test_untrusted_path_persistence_whatever_else_is_in_the_store(entries, data):
    """A strong path from an external entry is untrusted to its end, with any other parents beside it."""
    chain = [entry("x0", source="external")]
    for k in range(1, data.draw(st.integers(2, 8))):
        others = data.draw(st.lists(st.sampled_from([item.entry_id for item in entries]), max_size=3, unique=True))
        beside = [(name, data.draw(st.sampled_from(WEIGHTS))) for name in others]
        chain.append(entry(f"x{k}", *beside, (f"x{k - 1}", DEFAULT_TAU_PPM)))
    lineage = Lineage.of("acme", entries + chain, RULES)
    assert {lineage.label(item.entry_id) for item in chain[1:]} == {"derived-untrusted"}


@given(histories(), taus, taus, all_rules)
def test_a_higher_threshold_never_distrusts_more(entries, one, other, rules):
    low, high = sorted((one, other))
    strict, loose = (dict(Lineage.of("acme", entries, rules, tau).labels()) for tau in (low, high))
    assert {name for name in loose if loose[name] != "trusted"} <= {
        name for name in strict if strict[name] != "trusted"
    }


@given(histories(), taus, all_rules)
def test_the_path_is_one_from_an_external_entry_over_edges_that_weigh_something(entries, tau, rules):
    lineage = Lineage.of("acme", entries, rules, tau)
    weights = {(parent.entry_id, item.entry_id): parent.weight_ppm for item in entries for parent in item.parents}
    for name, label in lineage.labels():
        path = lineage.path(name)
        if label == "trusted":
            assert path == ()
            continue
        assert (path[0].label, path[0].weight_ppm, path[-1].entry_id) == ("external", None, name)
        names = [step.entry_id for step in path]
        assert [step.weight_ppm for step in path[1:]] == [weights[pair] for pair in pairwise(names)]
        assert all(step.weight_ppm >= min(tau, 1) for step in path[1:])
        assert [step.label for step in path] == [lineage.label(step) for step in names]


@given(histories(), taus)
def test_by_the_rule_of_the_paper_the_path_is_a_shortest_strong_one(entries, tau):
    lineage = Lineage.of("acme", entries, PAPER, tau)
    graph = strong_graph(entries, tau)
    labels = labels_by_definition(entries, tau, PAPER)
    external = [name for name, label in labels.items() if label == "external"]
    for name, label in labels.items():
        path = lineage.path(name)
        if label == "trusted":
            assert path == ()
            continue
        assert (path[0].label, path[0].weight_ppm, path[-1].entry_id) == ("external", None, name)
        names = [step.entry_id for step in path]
        assert nx.is_path(graph, names)
        shortest = min(
            nx.shortest_path_length(graph, root, name) for root in external if nx.has_path(graph, root, name)
        )
        assert len(path) == shortest + 1


@given(histories(), taus, all_rules, st.data())
def test_removing_while_it_grows_equals_building_from_what_the_log_keeps(entries, tau, rules, data):
    """A grown graph knows the edges of what was removed, a new one only the ids: the labels are the same."""
    removed = data.draw(st.sets(st.sampled_from([item.entry_id for item in entries])))
    grown = Lineage("acme", rules, tau)
    early = data.draw(st.sets(st.sampled_from(sorted(removed)))) if removed else set()
    for item in entries:
        grown.append(item)
        if item.entry_id in early:
            grown.remove(item.entry_id)
    for name in data.draw(st.permutations(sorted(removed - early))):
        grown.remove(name)
    rebuilt = Lineage("acme", rules, tau)
    for item in entries:
        if item.entry_id in removed:
            rebuilt.append_removed(item.entry_id)
        else:
            rebuilt.append(item)
    assert dict(grown.labels()) == dict(rebuilt.labels())
    assert dict(grown.labels()) == {
        name: label for name, label in labels_by_definition(entries, tau, rules, removed).items() if name not in removed
    }
    for name, _ in rebuilt.labels():
        assert grown.path(name) == rebuilt.path(name)


@given(histories(), all_rules, st.data())
def test_a_removal_makes_nothing_trusted(entries, rules, data):
    lineage = Lineage.of("acme", entries, rules)
    before = dict(lineage.labels())
    lineage.remove(data.draw(st.sampled_from([item.entry_id for item in entries])))
    after = dict(lineage.labels())
    assert all(before[name] == "trusted" for name in after if after[name] == "trusted")


@given(histories(), taus, all_rules, st.data())
def test_strong_descendants_draw_the_threshold_or_more_on_what_was_asked_about(entries, tau, rules, data):
    names = [item.entry_id for item in entries]
    seeds, removed = (data.draw(st.sets(st.sampled_from(names))) for _ in range(2))
    lineage = Lineage.of("acme", entries, rules, tau)
    for name in removed:
        lineage.remove(name)
    shares = shares_by_definition(entries, tau, seeds, rules.propagation)
    apart = seeds | removed
    found = {item.entry_id: item.share_ppm for item in lineage.descendants(sorted(seeds))}
    assert found == {name: share for name, share in shares.items() if share and name not in apart}
    assert [item.entry_id for item in strong(lineage, sorted(seeds))] == [
        name for name in names if shares[name] == FULL and name not in apart
    ]


@given(histories(), taus, st.data())
def test_by_the_rule_of_the_paper_they_are_the_closure_over_strong_edges(entries, tau, data):
    names = [item.entry_id for item in entries]
    seeds, removed = (data.draw(st.sets(st.sampled_from(names))) for _ in range(2))
    lineage = Lineage.of("acme", entries, PAPER, tau)
    for name in removed:
        lineage.remove(name)
    graph = strong_graph(entries, tau)
    expected = set().union(*(nx.descendants(graph, seed) for seed in seeds)) - seeds - removed
    found = strong(lineage, sorted(seeds))
    assert [item.entry_id for item in found] == [name for name in names if name in expected]
    for item in found:
        assert graph.has_edge(item.parent, item.entry_id)
        assert item.seed in seeds
        assert item.steps == min(
            nx.shortest_path_length(graph, seed, item.entry_id)
            for seed in seeds
            if nx.has_path(graph, seed, item.entry_id)
        )


def test_an_edge_at_the_threshold_is_strong():
    chain = [entry("e0", source="tool"), entry("e1", ("e0", 300_000))]
    assert Lineage.of("acme", chain, RULES, 300_000).label("e1") == "derived-untrusted"
    assert Lineage.of("acme", chain, RULES, 300_001).label("e1") == "trusted"


def test_of_two_shortest_paths_the_one_with_the_heavier_last_edge_is_shown():
    entries = [entry("a", source="tool"), entry("b", source="tool"), entry("c", ("a", 300_000), ("b", 400_000))]
    assert [step.entry_id for step in Lineage.of("acme", entries, RULES).path("c")] == ["b", "c"]


def test_lineage_through_a_removed_entry_does_not_vanish():
    lineage = Lineage.of("acme", [entry("e0", source="user"), entry("e1", ("e0", 900_000))], RULES)
    assert lineage.label("e1") == "trusted"
    lineage.remove("e0")
    assert lineage.label("e1") == "derived-untrusted"
    assert [(step.entry_id, step.removed) for step in lineage.path("e1")] == [("e0", True), ("e1", False)]
    assert [name for name, _ in lineage.labels()] == ["e1"]
    assert lineage.is_removed("e0")


def test_an_unknown_parent_is_refused_and_nothing_is_added():
    lineage = Lineage.of("acme", [entry("e0")], RULES)
    with pytest.raises(EntryError, match="names parent 'ghost', which is no earlier entry"):
        lineage.append(entry("e1", ("e0", 1), ("ghost", 1)))
    assert "e1" not in lineage
    assert (len(lineage), lineage.edges) == (1, 0)
    assert lineage.append(entry("e1", ("e0", 1_000_000))) == "trusted"


def test_two_entries_that_derive_from_each_other_are_refused():
    with pytest.raises(EntryError, match=r"names parent 'y', which is no earlier entry \(unknown, or a cycle\)"):
        Lineage.of("acme", [entry("x", ("y", 1)), entry("y", ("x", 1))], RULES)


def test_another_tenants_entry_is_refused():
    with pytest.raises(EntryError, match="is of tenant 'globex'"):
        Lineage("acme", RULES).append(entry("e", tenant="globex"))


def test_an_id_is_used_once_even_after_its_entry_was_removed():
    lineage = Lineage.of("acme", [entry("e")], RULES)
    lineage.remove("e")
    with pytest.raises(EntryError, match="is or was there already"):
        lineage.append(entry("e"))
    with pytest.raises(EntryError, match="is there already"):
        lineage.append_removed("e")


@pytest.mark.parametrize("question", ["label", "path", "remove", "is_removed"])
def test_questions_about_unknown_entries_are_refused(question):
    with pytest.raises(UsageError, match="no entry 'ghost' in the lineage of tenant 'acme'"):
        getattr(Lineage("acme", RULES), question)("ghost")


@pytest.mark.parametrize("tau", [-1, 1_000_001])
def test_a_threshold_outside_the_weights_is_refused(tau):
    with pytest.raises(UsageError, match="expected 0 to 1000000"):
        Lineage("acme", TrustRules(), tau)


def test_estimated_edges_count_beside_the_signed_ones_and_vouch_for_nothing():
    lineage = Lineage("acme", TrustRules(sources=frozenset({"user", "agent"})))
    for name in ("u1", "u2"):
        lineage.append(entry(name, source="user"))
    lineage.append(entry("x", source="external"))
    lineage.append(entry("a", ("u1", 900_000), ("u2", 100_000)), {"u1": 100_000, "u2": 500_000, "x": 200_000})
    assert lineage.edges == 3
    assert [step.entry_id for step in lineage.path("a")] == ["x", "a"]
    found = {seed: [item.weight_ppm for item in strong(lineage, [seed])] for seed in ("u1", "u2", "x")}
    assert found == {"u1": [900_000], "u2": [500_000], "x": [200_000]}
    assert lineage.append(entry("b"), {"u1": 900_000}) == "external"  # the agent itself recorded no parents
    with pytest.raises(EntryError, match="names parent 'later', which is no earlier entry"):
        lineage.append(entry("c"), {"later": 1})
    for weight in (-1, 1_000_001, 0.5, float("nan"), True):
        with pytest.raises(EntryError, match=r"estimated weight of parent 'u1' is .*, expected a whole number"):
            lineage.append(entry("c", ("u2", 1)), {"u1": weight})
    assert "c" not in lineage
    assert lineage.edges == 3 + 1


@given(histories(), taus, st.data())
def test_removing_many_at_once_is_removing_each(entries, tau, data):
    removed = data.draw(st.lists(st.sampled_from([item.entry_id for item in entries])))
    one_by_one, at_once = (Lineage.of("acme", entries, RULES, tau) for _ in range(2))
    for name in removed:
        one_by_one.remove(name)
    at_once.remove(*removed)
    assert dict(at_once.labels()) == dict(one_by_one.labels())
    for item in entries:
        assert at_once.path(item.entry_id) == one_by_one.path(item.entry_id)


def test_a_chain_that_goes_as_a_whole_is_judged_once(monkeypatch):
    chain = [entry("e0", source="external"), *(entry(f"e{n}", (f"e{n - 1}", 900_000)) for n in range(1, 500))]
    lineage = Lineage.of("acme", [*chain, entry("left", ("e499", 900_000))], RULES)
    judged = []
    monkeypatch.setattr(
        Lineage, "_judge", lambda self, node, judge=Lineage._judge: (judged.append(node), judge(self, node))[1]
    )
    lineage.remove(*(item.entry_id for item in chain))
    assert len(judged) <= 501
    assert [step.entry_id for step in lineage.path("left")] == ["e499", "left"]


def test_none_is_removed_where_one_is_unknown():
    lineage = Lineage.of("acme", [entry("e")], RULES)
    with pytest.raises(UsageError, match="no entry 'ghost'"):
        lineage.remove("e", "ghost")
    assert not lineage.is_removed("e")


@given(histories(), taus, st.integers(2, 6), st.data())
def test_a_bounded_path_is_the_ends_of_the_whole_one_also_after_removals(entries, tau, most, data):
    """A removal may change where a path begins and leave its length as it was."""
    lineage = Lineage.of("acme", entries, RULES, tau)
    for name in data.draw(st.lists(st.sampled_from([item.entry_id for item in entries]), max_size=3)):
        lineage.remove(name)
        for item in entries:
            whole, bounded = lineage.path(item.entry_id), lineage.path(item.entry_id, most)
            if len(whole) <= most:
                assert bounded == whole
                continue
            first, cut, *last = bounded
            assert (first, *last) == (whole[0], *whole[len(whole) - most + 2 :])
            assert cut == dataclasses.replace(whole[1 - most], left_out=len(whole) - most)


def test_a_path_begins_where_its_entries_say():
    entries = [
        entry("a", source="tool"),
        entry("b"),
        entry("c", ("a", 300_000), ("b", 400_000)),
        entry("d", ("c", 1_000_000)),
    ]
    lineage = Lineage.of("acme", entries, RULES)
    lineage.remove("b")
    assert [step.entry_id for step in lineage.path("d")] == ["b", "c", "d"]
    assert [(step.entry_id, step.left_out) for step in lineage.path("d", 2)] == [("b", 0), ("d", 1)]
