"""Rows of the cache that nobody could have written are as none."""

import sqlite3

import pytest

from models.signature_cache import SignatureCache, parse_margins


@pytest.mark.parametrize(
    "text",
    [None, b"{}", 5, "", "[]", '{"a": "x"}', '{"a": NaN}', '{"a": 1e999}', '{"a": 1' + "0" * 400 + "}", "[" * 5_000],
)
def test_what_is_not_margins_is_none(text):
    assert parse_margins(text) is None


def test_a_damaged_row_is_asked_again(tmp_path):
    path = tmp_path / "cache.sqlite"
    cache = SignatureCache(path)
    cache.put("k", {"a": 1.5})
    cache.close()
    with sqlite3.connect(path) as database:
        database.execute("insert into margins values ('null', null), ('blob', x'ff')")
    database.close()
    cache = SignatureCache(path)
    assert (cache.get("k"), cache.get("null"), cache.get("blob")) == ({"a": 1.5}, None, None)
    cache.close()
