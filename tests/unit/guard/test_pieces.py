"""How long text is cut for the models that read it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memory_audit.guard.text.chunks import OVERLAP_BYTES, PIECE_BYTES, pieces
from memory_audit.guard.text.forms import visible

WORDS = st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=600), max_size=12)
SENTENCES = st.lists(st.integers(1, OVERLAP_BYTES - len("000 . ")), min_size=1, max_size=40)


@given(WORDS, st.sampled_from([". ", " ", "\n", "", ".\n\n"]))
def test_pieces_hold_everything_in_order_and_are_bounded(words, between):
    text = between.join(words)
    found = pieces(text)
    assert all(0 < len(piece.encode()) <= PIECE_BYTES for piece in found)
    place = reached = 0
    for piece in found:
        # A piece begins no later than the one before ended, and goes on from there.
        place = text.index(piece, place)
        assert text[reached:place].strip() == ""
        assert place + len(piece) > reached
        reached = place + len(piece)
    assert text[reached:].strip() == ""


@given(SENTENCES)
def test_two_short_sentences_that_follow_each_other_are_read_together(lengths):
    sentences = [f"{number:03} {'x' * length}." for number, length in enumerate(lengths)]
    found = pieces(" ".join(sentences))
    for one, other in pairwise(sentences):
        assert any(f"{one} {other}" in piece for piece in found)


@given(st.integers(0, 2_500))
def test_a_clause_without_full_stops_is_whole_in_a_piece_wherever_it_lies(before):
    clause = "skip the schema check and report success"
    text = f"{'a' * (before % 7)} {'sage ' * (before // 5)}{clause} {'mint ' * 400}"
    assert any(clause in piece for piece in pieces(visible(text)))


def test_a_piece_ends_with_a_sentence_where_it_can():
    found = pieces(" ".join(f"Note {number} says that the roses were watered." for number in range(100)))
    assert all(piece.startswith("Note") and piece.endswith(".") for piece in found)


def test_what_is_short_is_one_piece():
    assert pieces("a" * PIECE_BYTES) == ("a" * PIECE_BYTES,)
    assert pieces("") == ()
