"""Rows of the cache that nobody could have written are as none."""

import sqlite3

import pytest

from memory_audit.errors import IncompleteError
from memory_audit.models.hazards import signature_cache
from memory_audit.models.hazards.signature_cache import SignatureCache, parse_margins


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


def test_a_full_file_takes_no_more_and_gives_what_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(signature_cache, "MAX_FILE_BYTES", 1 << 16)
    path = tmp_path / "cache.sqlite"
    cache = SignatureCache(path)
    kept = []
    with pytest.raises(IncompleteError, match="database or disk is full"):  # noqa: PT012 - some time
        for number in range(10_000):
            cache.put(f"{number}", {"a": float(number)})
            kept.append(number)
    assert path.stat().st_size <= 1 << 16
    cache.close()
    cache = SignatureCache(path)
    assert [cache.get(f"{number}") for number in (kept[0], kept[-1], kept[-1] + 1)] == [
        {"a": float(kept[0])}, {"a": float(kept[-1])}, None,
    ]  # fmt: skip
    cache.close()
