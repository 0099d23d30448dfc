"""Rows of tokens: no text sees another, and what is laid out is what was given."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.models.activations.packing import BOTH_WAYS, CAUSAL, Rows

OPENING = [7, 8]


def rows_of(texts):
    return Rows.of([[[*OPENING, *tokens] for tokens in row] for row in texts], len(OPENING), "cpu")


@given(
    texts=st.lists(st.lists(st.lists(st.integers(10, 99), max_size=5), min_size=1, max_size=3), min_size=1, max_size=3)
)
def test_what_is_read_is_each_text_without_its_opening(texts):
    rows = rows_of(texts)
    wanted = [token for row in texts for tokens in row for token in (tokens or OPENING[-1:])]
    assert rows.ids[rows.read].tolist() == wanted
    assert rows.place[rows.text > 0].tolist() == [
        place for row in texts for tokens in row for place in range(len(OPENING) + len(tokens))
    ]  # fmt: skip


def test_a_token_sees_its_own_text_alone():
    rows = rows_of([[[11, 12], [13]], [[14]]])
    for kind, later in ((CAUSAL, False), (BOTH_WAYS, True)):
        seen = rows.masks()[kind][:, 0]
        for row, text in enumerate(rows.text):
            for token in range(len(text)):
                others = set(torch.nonzero(seen[row, token]).ravel().tolist())
                mine = {other for other in range(len(text)) if text[other] == text[token]}
                said = rows.place[row, token] >= len(OPENING)
                assert others == (mine if later and said else {other for other in mine if other <= token})
    assert rows.masks()[BOTH_WAYS].any(dim=-1).all()  # else attention divides by nothing
