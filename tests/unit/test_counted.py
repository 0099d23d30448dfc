"""A count agrees with its noun."""

from __future__ import annotations

import pytest

from memory_audit.counted import counted


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 memories"), (1, "1 memory"), (2, "2 memories"), (1_024, "1,024 memories")]
)
def test_one_is_singular_and_any_other_number_plural(count, words):
    assert counted(count, "memory") == words


def test_most_nouns_only_add_an_s():
    assert (counted(1, "tenant"), counted(3, "tenant")) == ("1 tenant", "3 tenants")
