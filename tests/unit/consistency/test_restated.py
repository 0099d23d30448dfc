"""What says the same is joined with what it repeats, and another fact is not, however alike it is put."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.consistency.neighbours import nearest
from memory_audit.consistency.restated import ALIKE, CLOSE, Statement, agree, restated

SAME = [
    ("The user prefers dark mode.", "Dark mode is what the user prefers."),
    ("The user prefers dark mode.", "Note: the user prefers dark mode!"),
    ("Anna lives in Berlin, at 4 Mill Street.", "At 4 Mill Street in Berlin lives Anna."),
    ("The search service listens on port 80", "The search service can be reached on port 80"),
    ("Anna was born on 3 May.", "Anna has a birthday on 3 May."),
    ("Never delete the backups.", "The backups must never be deleted, it was said; delete none of the backups."),
]
OTHER = [
    ("A is 5", "A is 6"),
    ("A is 5", "The value of A is 6"),
    ("The door code is 4711.", "The door code is 4711 until 2027."),
    ("The door is red", "The door is blue"),
    ("Anna likes tea.", "Bob likes tea."),
    ("Anna has a tortoise at home", "Anna has two rabbits at home"),
    ("Anna drinks green tea in the morning", "Anna drinks black coffee in the morning"),
    ("The bill goes to Anna.", "It is Bob to whom the bill goes."),
    ("Delete the backups on Friday.", "Do not delete the backups on Friday."),
    ("The export is safe.", "The export isn't safe."),
    ("a = b + 4", "a = b - 4"),
    ("pay.example is ours", "pay-example is ours"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_another_order_and_an_opening_say_the_same(one, other):
    assert agree(Statement.of(one), Statement.of(other), CLOSE)
    assert agree(Statement.of(other), Statement.of(one), CLOSE)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_another_number_name_denial_or_filling_is_another_fact(one, other):
    assert not agree(Statement.of(one), Statement.of(other), CLOSE)
    assert not agree(Statement.of(other), Statement.of(one), CLOSE)


def test_a_word_may_be_exchanged_in_texts_that_are_alike():
    one, other = (Statement.of(f"Every evening the nightly job {does} all tables") for does in ("copies", "saves"))
    assert agree(one, other, ALIKE)
    assert not agree(one, other, ALIKE - 0.01)


def test_texts_that_share_few_words_are_not_joined():
    one, other = Statement.of("Offers go out by post"), Statement.of("Letters are how we answer customers who ask")
    assert not agree(one, other, 0.99)


def joined(vectors, texts, contradicting=(), neighbours=100):
    found = nearest(vectors, neighbours)
    weights = np.array([0.9 if tuple(pair) in contradicting else 0.0 for pair in found.pairs.tolist()])
    return restated(vectors, texts, found, weights).tolist()


def unit(rows):
    wide = np.asarray(rows, np.float32)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


def on_circle(*degrees: float):
    angles = np.deg2rad(degrees)
    return unit(np.stack([np.cos(angles), np.sin(angles)], axis=1))


ORDERS = ["the same said once", "once the same said", "said the same once", "once said the same", "same once the said"]


def test_no_chain_leads_from_one_kept_text_to_another():
    """Neighbours of 35 degrees have cosine 0.82, the next 0.34."""
    assert joined(on_circle(0, 35, 70, 105), ORDERS[:4]) == [0, 0, 2, 2]


def test_groups_that_are_close_on_average_are_one_with_the_first_kept():
    """The second is 45 degrees from the first (0.71), and 28 on average from those that joined it."""
    vectors = on_circle(0, 45, 30, 35, 38)
    assert joined(vectors[:2], ORDERS[:2]) == [0, 1]
    assert joined(vectors, ORDERS) == [0, 0, 0, 0, 0]
    assert joined(vectors, ORDERS, {(0, 1)}) == [0, 1, 1, 1, 1]


def test_what_contradicts_one_that_joined_is_kept():
    vectors, texts = unit([[1, 0]] * 3), ORDERS[:3]
    assert joined(vectors, texts) == [0, 0, 0]
    assert joined(vectors, texts, {(1, 2)}) == [0, 0, 2]
    assert restated(vectors, texts, nearest(vectors, 2)).tolist() == [0, 0, 0]


def test_wordings_that_fill_their_own_neighbour_lists_are_one_group():
    """Forty texts of each of two wordings, 20 degrees apart: none has a neighbour of the other wording."""
    degrees = [20 * (place % 2) + 0.01 * place for place in range(80)]
    texts = [
        ("the same was said by {}", "it was the same said by {}")[place % 2].format("x" * place) for place in range(80)
    ]
    vectors = on_circle(*degrees)
    assert all(
        (found - place) % 2 == 0 for place, row in enumerate(nearest(vectors, 5).lists.tolist()) for found in row
    )
    assert set(joined(vectors, texts, neighbours=5)) == {0}


WORDS = st.lists(st.sampled_from(["anna", "Anna", "likes", "tea", "5", "6", "not"]), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS.map(" ".join), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_groups_have_a_first_one_numbers_in_common_and_none_that_should_be_joined(texts, random):
    vectors = unit([[random.random() + 0.01, random.random()] for _ in texts])
    found = np.array(joined(vectors, texts))
    assert joined(vectors, texts) == found.tolist()
    assert (found <= np.arange(len(texts))).all()
    assert (found[found] == found).all()
    statements = [Statement.of(text) for text in texts]
    assert all(statements[one].numbers == statements[kept].numbers for one, kept in enumerate(found.tolist()))
    alone = [one for one in range(len(texts)) if (found == found[one]).sum() == 1]
    for one in alone:
        for other in alone:
            cosine = round(float(vectors[one] @ vectors[other]), 6)
            assert one == other or cosine < CLOSE or not agree(statements[one], statements[other], cosine)


def test_one_text_and_none_are_kept():
    assert joined(unit([[1, 0]]), ["a"]) == [0]
    assert joined(np.zeros((0, 2), np.float32), []) == []
