"""Thresholds come from labelled texts, and the packaged ones are well-formed."""

from __future__ import annotations

import pytest

from audit.errors import UsageError
from audit.forget.hazard import default_taxonomy
from models.hazard_calibration import calibration_texts, parse_labelled, thresholds


def test_the_packaged_texts_have_known_labels_and_both_kinds_for_each():
    names = set(default_taxonomy().names)
    texts = calibration_texts()
    assert len({item.text for item in texts}) == len(texts)
    assert all(item.labels <= names for item in texts)
    for name in names:
        assert sum(name in item.labels for item in texts) >= 5
    assert sum(not item.labels for item in texts) >= 25


def test_a_threshold_parts_the_labelled_from_the_rest():
    taxonomy = default_taxonomy()
    examples = [(dict.fromkeys(taxonomy.names, margin), truth) for margin, truth in (
        (5.0, frozenset(taxonomy.names)), (4.0, frozenset(taxonomy.names)), (2.0, frozenset()), (-1.0, frozenset()),
    )]  # fmt: skip
    assert thresholds(examples, taxonomy) == dict.fromkeys(taxonomy.names, 3.0)


def test_a_label_without_both_kinds_keeps_its_threshold():
    taxonomy = default_taxonomy()
    examples = [(dict.fromkeys(taxonomy.names, 1.0), frozenset())]
    assert thresholds(examples, taxonomy) == {}


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"text": 1, "labels": []}', b'{"text": "x", "labels": "a"}', b"\xff"])
def test_a_line_that_breaks_a_rule_is_named(line):
    with pytest.raises(UsageError, match="file, line 2"):
        list(parse_labelled([b'{"text": "x", "labels": []}', line], "file"))
