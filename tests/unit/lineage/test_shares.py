"""The algebra of shares: what adds up, what never gets smaller, and that cutting and shuffling change nothing."""

from fractions import Fraction

from hypothesis import assume, example, given
from hypothesis import strategies as st

from memory_audit.lineage.shares import Edge, drawn, untrusted_share
from tests.unit.lineage.worlds import FULL, untrusted_by_definition

ppm = st.integers(0, FULL)
pairs = st.lists(st.tuples(ppm, ppm), max_size=8)
propagations = st.sampled_from(["shares", "strongest"])


def edges_of(found):
    return [Edge(number, weight, share, hops=number) for number, (share, weight) in enumerate(found)]


@given(pairs)
def test_a_share_is_what_the_definition_says(found):
    assert untrusted_share(found) == untrusted_by_definition(found)


@given(pairs)
def test_where_weights_are_shares_of_a_whole_their_products_add_up(found):
    assume(sum(weight for _, weight in found) <= FULL)
    exact = sum(Fraction(share * weight, FULL) for share, weight in found)
    assert 0 <= untrusted_share(found) - exact < 1


@given(pairs)
def test_no_share_is_larger_than_the_largest_of_the_parents(found):
    assert 0 <= untrusted_share(found) <= max((share for share, _ in found), default=0) <= FULL


@given(pairs, st.randoms(use_true_random=False))
def test_the_order_of_the_parents_does_not_count(found, random):
    shuffled = found.copy()
    random.shuffle(shuffled)
    assert untrusted_share(shuffled) == untrusted_share(found)


@given(pairs, ppm, ppm, ppm)
def test_another_parent_and_a_larger_weight_or_share_never_make_it_smaller(found, share, weight, more):
    one = [*found, (share, weight)]
    assert untrusted_share(one) >= untrusted_share(found)
    assert untrusted_share([*found, (share, max(weight, more))]) >= untrusted_share(one)
    assert untrusted_share([*found, (max(share, more), weight)]) >= untrusted_share(one)


@given(pairs, ppm, st.lists(st.integers(0, 200_000), min_size=1, max_size=5))
@example([], FULL, [166_667] * 5)
def test_cutting_a_parent_into_parts_of_the_same_total_changes_nothing(found, share, parts):
    whole = [*found, (share, sum(parts))]
    assert untrusted_share([*found, *((share, part) for part in parts)]) == untrusted_share(whole)


@given(pairs, ppm, st.integers(1, FULL), propagations)
def test_what_is_handed_on_is_all_from_the_threshold_on_and_else_below_it(found, unrecorded, tau, propagation):
    share, witness = drawn(edges_of(found), tau, propagation, unrecorded)
    assert share == FULL or share + unrecorded < tau
    if witness is None:
        assert share in {0, FULL}
        assert (share == FULL) == (unrecorded >= tau)


@given(pairs, ppm, st.integers(0, FULL), st.randoms(use_true_random=False), propagations)
def test_what_is_handed_on_does_not_depend_on_the_order_of_the_edges(found, unrecorded, tau, random, propagation):
    edges = edges_of(found)
    random.shuffle(edges)
    before, after = (drawn(each, tau, propagation, unrecorded) for each in (edges_of(found), edges))
    assert before.share_ppm == after.share_ppm
    assert (before.witness is None) == (after.witness is None)


@given(pairs, st.integers(0, FULL), ppm)
def test_a_share_of_an_external_parent_is_worth_what_it_was_worth_unrecorded(found, tau, weight):
    """So an agent gains nothing by leaving a parent out."""
    total = sum(other for _, other in found)
    assume(total + weight <= FULL)
    named = drawn(edges_of([*found, (FULL, weight)]), tau, "shares", FULL - total - weight)
    left_out = drawn(edges_of(found), tau, "shares", FULL - total)
    assert (named.share_ppm == FULL) == (left_out.share_ppm == FULL)
