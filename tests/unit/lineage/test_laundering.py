"""Weights launder nothing: not by being nearly none, not by being many, not by being left out, not over many steps."""

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.entry import Parent
from memory_audit.lineage.dag import Lineage
from memory_audit.lineage.trust import TrustRules
from tests.unit.lineage.worlds import FULL, RULES, WEIGHTS, entry, histories

STRICT = TrustRules()
SHARES = st.sampled_from([RULES, STRICT])


def trusted_of(entries, rules, tau=200_000):
    return {name for name, label in Lineage.of("acme", entries, rules, tau).labels() if label == "trusted"}


def with_parents(item, parents):
    return dataclasses.replace(
        item, parents=tuple(Parent(entry_id=name, weight_ppm=weight) for name, weight in parents)
    )


def pairs_of(item):
    return [(parent.entry_id, parent.weight_ppm) for parent in item.parents]


@st.composite
def worlds(draw):
    """A store that begins with a page from outside, and the place of an entry in it."""
    entries = [entry("page", source="external"), *draw(histories(8))]
    return entries, draw(st.integers(1, len(entries) - 1))


@pytest.mark.parametrize(
    ("parents", "label"),
    [
        ([("own", 0)], "external"),
        ([("own", 1)], "external"),
        ([("own", 800_000)], "external"),
        ([("own", 800_001)], "trusted"),
        ([("own", FULL)], "trusted"),
        ([("own", 900_000), ("page", 0)], "trusted"),
        ([("own", 900_000), ("page", 100_000)], "trusted"),
        ([("own", 800_000), ("page", 200_000)], "derived-untrusted"),
        ([("own", 750_000), ("page", 100_000)], "derived-untrusted"),  # 0.15 unrecorded beside it
        ([("page", 166_667)], "external"),
        ([("page", 600_000)], "derived-untrusted"),
    ],
)
def test_an_agents_entry_is_trusted_for_what_its_trusted_parents_account_for(parents, label):
    entries = [entry("own", source="user"), entry("page", source="external"), entry("note", *parents)]
    assert Lineage.of("acme", entries, STRICT).label("note") == label


@pytest.mark.parametrize("rules", [STRICT, RULES])
@pytest.mark.parametrize("many", [6, 50, 256])
def test_equal_shares_of_external_parents_add_up(rules, many):
    pages = [entry(f"page{n}", source="external") for n in range(many)]
    digest = entry("digest", *((page.entry_id, FULL // many + 1) for page in pages))
    lineage = Lineage.of("acme", [*pages, digest], rules)
    assert lineage.label("digest") == "derived-untrusted"
    assert [step.entry_id for step in lineage.path("digest")] == ["page0", "digest"]
    assert lineage.shares("digest") == (FULL, 0)
    paper = msgspec.structs.replace(rules, propagation="strongest")
    assert Lineage.of("acme", [*pages, digest], paper).label("digest") == "trusted"


def test_what_stays_below_the_threshold_at_each_step_adds_up_along_a_chain():
    entries = [entry("own", source="user"), entry("page", source="external")]
    before = "own"
    for step in range(1, 6):
        entries.append(entry(f"e{step}", ("page", 100_000), (before, 900_000)))
        before = f"e{step}"
    lineage = Lineage.of("acme", entries, STRICT)
    labels = [lineage.label(f"e{step}") for step in range(1, 6)]
    assert labels == ["trusted", "trusted", "derived-untrusted", "derived-untrusted", "derived-untrusted"]
    assert [lineage.shares(f"e{step}")[0] for step in range(1, 4)] == [100_000, 190_000, 271_000]


def test_shares_that_come_over_trusted_entries_add_up_and_the_path_says_how():
    entries = [
        entry("x", source="external"),
        *(entry(f"half{n}", ("x", 150_000), source="user") for n in range(2)),
        entry("both", ("half0", 500_000), ("half1", 500_000)),
        entry("more", ("x", 100_000), ("half0", 800_000)),
    ]
    lineage = Lineage.of("acme", entries, STRICT)
    assert [lineage.label(name) for name in ("half0", "half1", "both")] == ["trusted"] * 3
    assert lineage.label("more") == "derived-untrusted"
    assert [(step.entry_id, step.label) for step in lineage.path("more")] == [
        ("x", "external"), ("half0", "trusted"), ("more", "derived-untrusted"),
    ]  # fmt: skip


def test_passing_on_what_is_a_little_untrusted_at_full_weight_makes_no_more_of_it():
    """A runtime that gives every memory of the prompt the weight 1 says "up to all", not "all of each"."""
    notes = [entry(f"n{k}", ("x", 50_000), source="user") for k in range(20)]
    prompt = [(note.entry_id, FULL) for note in notes]
    steps = [entry("s0", *prompt), *(entry(f"s{k}", *prompt, (f"s{k - 1}", FULL)) for k in range(1, 10))]
    lineage = Lineage.of("acme", [entry("x", source="external"), *notes, *steps], STRICT)
    assert {lineage.label(step.entry_id) for step in steps} == {"trusted"}
    assert lineage.shares("s9") == (50_000, 0)


@given(worlds(), SHARES, st.sampled_from(WEIGHTS))
def test_an_external_parent_more_makes_nothing_trusted(world, rules, weight):
    entries, place = world
    more = with_parents(entries[place], [*pairs_of(entries[place]), ("page", weight)])
    assert trusted_of([*entries[:place], more, *entries[place + 1 :]], rules) <= trusted_of(entries, rules)


@given(worlds(), SHARES, st.integers(0, FULL), st.integers(0, FULL))
def test_a_heavier_edge_to_an_external_parent_makes_nothing_trusted(world, rules, one, other):
    entries, place = world
    light, heavy = (
        [*entries[:place], with_parents(entries[place], [*pairs_of(entries[place]), ("page", weight)])]
        for weight in sorted((one, other))
    )
    rest = entries[place + 1 :]
    assert trusted_of([*heavy, *rest], rules) <= trusted_of([*light, *rest], rules)


@given(worlds(), SHARES, st.lists(st.integers(0, 200_000), min_size=1, max_size=5))
def test_an_external_parent_cut_into_many_changes_no_label(world, rules, parts):
    entries, place = world
    pages = [entry(f"page{n}", source="external") for n in range(len(parts))]
    chosen = entries[place]
    whole = with_parents(chosen, [*pairs_of(chosen), ("page", sum(parts))])
    cut = with_parents(
        chosen, [*pairs_of(chosen), *((page.entry_id, part) for page, part in zip(pages, parts, strict=True))]
    )
    one, other = (
        dict(Lineage.of("acme", [*pages, *entries[:place], item, *entries[place + 1 :]], rules).labels())
        for item in (whole, cut)
    )
    assert one == other


@given(histories(8), st.data())
def test_an_agents_entry_gets_no_cleaner_by_leaving_a_parent_out_or_making_it_lighter(entries, data):
    """Where its weights are shares of a whole."""
    names = data.draw(st.lists(st.sampled_from([item.entry_id for item in entries]), min_size=1, unique=True))
    cuts = sorted(data.draw(st.lists(st.integers(0, FULL), min_size=len(names), max_size=len(names))))
    parents = [(name, end - start) for name, start, end in zip(names, [0, *cuts], cuts, strict=False)]
    number = data.draw(st.integers(0, len(parents) - 1))
    name, weight = parents[number]
    lighter = (name, data.draw(st.integers(0, weight)))
    honest, sparing, silent = (
        "note" in trusted_of([*entries, entry("note", *parents[:number], *kept, *parents[number + 1 :])], STRICT)
        for kept in ([parents[number]], [lighter], [])
    )
    assert silent <= sparing <= honest


@given(worlds(), SHARES, st.data())
def test_labels_do_not_depend_on_the_order_of_parents(world, rules, data):
    entries, _ = world
    shuffled = [with_parents(item, data.draw(st.permutations(pairs_of(item)))) for item in entries]
    one, other = (dict(Lineage.of("acme", each, rules).labels()) for each in (entries, shuffled))
    assert one == other
