"""What an entry may be."""

from __future__ import annotations

import pickle
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.entry import MAX_NAME_BYTES, MAX_TEXT_BYTES, MAX_TIME_MS, Entry, Parent
from memory_audit.errors import EntryError

GOOD = {
    "tenant": "t", "entry_id": "m", "principal": "p", "source": "agent", "request": "q", "response": "a",
    "created_at_ms": 1,
}  # fmt: skip
NFC = (
    st.text(max_size=20)
    .map(lambda text: unicodedata.normalize("NFC", text))
    .filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))
)


@given(NFC, NFC, st.integers(0, MAX_TIME_MS), st.dictionaries(NFC.filter(bool), NFC, max_size=3))
def test_entries_survive_the_way_between_processes(request_text, response, created, metadata):
    entry = Entry(**GOOD | {"request": request_text, "response": response, "created_at_ms": created}, metadata=metadata)
    copy = pickle.loads(pickle.dumps(entry))  # noqa: S301 - our own bytes
    assert copy == entry
    assert dict(copy.metadata) == metadata
    assert entry.text == f"{request_text}\n{response}"


def test_metadata_cannot_be_changed_from_outside():
    metadata = {"channel": "chat"}
    entry = Entry(**GOOD, metadata=metadata)
    metadata["channel"] = "changed"
    assert entry.metadata == {"channel": "chat"}
    with pytest.raises(TypeError):
        entry.metadata["channel"] = "changed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tenant": ""}, "tenant is empty"),
        ({"entry_id": ""}, "entry_id is empty"),
        ({"principal": 5}, "principal is int, expected text"),
        ({"source": "admin"}, "source is 'admin', expected one of user, agent, tool, external"),
        ({"request": "a" * (MAX_TEXT_BYTES + 1)}, f"request has {MAX_TEXT_BYTES + 1} characters"),
        ({"response": "é" * (MAX_TEXT_BYTES // 2 + 1)}, f"response has {MAX_TEXT_BYTES + 2} bytes"),
        ({"entry_id": "i" * (MAX_NAME_BYTES + 1)}, "entry_id has 257 characters"),
        ({"response": "\ud800"}, "not valid Unicode at character 0"),
        ({"request": "e\u0301"}, "not in Unicode normal form NFC"),
        ({"created_at_ms": -1}, "created_at_ms is -1"),
        ({"created_at_ms": MAX_TIME_MS + 1}, "expected a whole number from 0 to"),
        ({"created_at_ms": True}, "created_at_ms is True"),
        ({"created_at_ms": 1.0}, "created_at_ms is 1.0"),
        ({"parents": (Parent(entry_id="m", weight_ppm=1),)}, "is named twice or is the entry itself"),
        ({"parents": (Parent(entry_id="a", weight_ppm=1),) * 2}, "is named twice"),
        ({"parents": (Parent(entry_id="a", weight_ppm=1_000_001),)}, "parent weight_ppm is 1000001"),
        ({"parents": tuple(Parent(entry_id=f"p{n}", weight_ppm=0) for n in range(257))}, "257 parents, at most 256"),
        ({"metadata": {"": "x"}}, "metadata key is empty"),
        ({"metadata": {"k": "v" * 4097}}, "metadata value has 4097 characters"),
        ({"metadata": {f"k{n}": "" for n in range(65)}}, "65 metadata items, at most 64"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(changes, message):
    with pytest.raises(EntryError) as failure:
        Entry(**GOOD | changes)
    assert message in str(failure.value)
    assert "\n" not in str(failure.value)


def test_an_entry_of_ten_megabytes_is_refused_without_being_repeated():
    with pytest.raises(EntryError) as failure:
        Entry(**GOOD | {"entry_id": "x" * 10_000_000})
    assert len(str(failure.value)) < 300


def test_the_largest_texts_are_accepted():
    entry = Entry(**GOOD | {"request": "", "response": "é" * (MAX_TEXT_BYTES // 2), "tenant": "t" * MAX_NAME_BYTES})
    assert len(entry.response.encode()) == MAX_TEXT_BYTES
