"""Thresholds come from labelled texts, and the packaged ones are well-formed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.guard.blocks.hazard import default_taxonomy
from training.label_calibration import calibration_texts, parse_labelled, thresholds


def rank_share(above: list[int], below: list[int]) -> float:
    """AUC: how often a value of the first list beats one of the second, ties counted half."""
    wins = sum((a > b) + 0.5 * (a == b) for a in above for b in below)
    return wins / (len(above) * len(below))


def test_the_packaged_texts_have_known_labels_and_both_kinds_for_each():
    names = set(default_taxonomy().names)
    texts = calibration_texts()
    assert len({item.text for item in texts}) == len(texts)
    assert all(item.labels <= names for item in texts)
    for name in names:
        assert sum(name in item.labels for item in texts) >= 24
    assert sum(not item.labels for item in texts) >= 150
    assert all(item.text.isascii() for item in texts)


def test_the_packaged_texts_do_not_give_a_label_away_by_length():
    words = [(len(item.text.split()), item.labels) for item in calibration_texts()]
    benign = [count for count, labels in words if not labels]
    assert 0.4 <= rank_share([count for count, labels in words if labels], benign) <= 0.6
    for name in default_taxonomy().names:
        assert 0.4 <= rank_share([count for count, labels in words if name in labels], benign) <= 0.6


def test_each_label_is_packaged_short_and_as_one_clause_of_a_long_text():
    for name in default_taxonomy().names:
        counts = [len(item.text.split()) for item in calibration_texts() if name in item.labels]
        assert sum(count >= 60 for count in counts) >= 12
        assert sum(count < 60 for count in counts) >= 12


def test_a_threshold_parts_the_labelled_from_the_rest():
    taxonomy = default_taxonomy()
    examples = [(dict.fromkeys(taxonomy.names, margin), truth) for margin, truth in (
        (5.0, frozenset(taxonomy.names)), (4.0, frozenset(taxonomy.names)), (2.0, frozenset()), (-1.0, frozenset()),
    )]  # fmt: skip
    assert thresholds(examples, taxonomy) == dict.fromkeys(taxonomy.names, 3.0)


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=2, max_size=40),
    st.sampled_from([0.0, 0.01, 0.1, 0.5]),
)
def test_no_more_than_the_share_asked_for_is_labelled_falsely(rows, most_false):
    taxonomy = default_taxonomy()
    name = taxonomy.names[0]
    examples = [
        (dict.fromkeys(taxonomy.names, round(margin, 2)), frozenset({name} if held else ())) for margin, held in rows
    ]
    found = thresholds(examples, taxonomy, most_false=most_false)
    free = [margins[name] for margins, truth in examples if not truth]
    if name in found:
        assert sum(margin > found[name] for margin in free) <= most_false * len(free)
    else:
        assert len(free) in {0, len(examples)}


def test_a_share_that_is_none_is_refused():
    with pytest.raises(UsageError, match=r"share of false labels is 1\.5"):
        thresholds([], default_taxonomy(), most_false=1.5)


def test_a_label_without_both_kinds_keeps_its_threshold():
    taxonomy = default_taxonomy()
    examples = [(dict.fromkeys(taxonomy.names, 1.0), frozenset())]
    assert thresholds(examples, taxonomy) == {}


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"text": 1, "labels": []}', b'{"text": "x", "labels": "a"}', b"\xff"])
def test_a_line_that_breaks_a_rule_is_named(line):
    with pytest.raises(UsageError, match="file, line 2"):
        list(parse_labelled([b'{"text": "x", "labels": []}', line], "file"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"text": "x", "labels": [], "labels": []}', "a member is there twice: 'labels'"),
        (b'{"text": "x", "labels": ["skip_validaton"]}', "no label 'skip_validaton'"),
        (b'{"text": "x", "labels": ["skip_validation", "skip_validation"]}', "a label is named twice"),
        (b'{"text": "x", "labels": "skip_validation"}', "labels must be a list"),
        (b"\xff", "not valid UTF-8 at byte 0"),
    ],
)
def test_what_a_line_of_labelled_texts_may_not_hold_is_told(line, told):
    with pytest.raises(UsageError, match=rf"^texts\.jsonl, line 1: {told}"):
        list(parse_labelled([line], "texts.jsonl", default_taxonomy().names))
