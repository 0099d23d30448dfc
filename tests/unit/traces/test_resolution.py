"""Which entry a retrieved document is."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.entry import Entry
from memory_audit.traces.records import Document
from memory_audit.traces.resolution import Memories, Resolved

LONG = "Refunds of more than fifty euros are paid back to the card within ten days."


def entry(name, response, at=1_000, request="asked"):
    return Entry(tenant="acme", entry_id=name, principal="p", source="agent", request=request, response=response,
                 created_at_ms=at)  # fmt: skip


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (Document(entry_id="m-1"), Resolved("m-1", "id")),
        (Document(entry_id="m-1", text="Something that no entry says."), Resolved("m-1", "id with another text")),
        (Document(entry_id="m-1", text=LONG[:40]), Resolved("m-1", "id")),
        (Document(entry_id="m-1", text=f"Note 1: {LONG} (by Ann)"), Resolved("m-1", "id")),
        (Document(entry_id="gone", text="Whatever it said."), Resolved("gone", "id")),
        (Document(entry_id="chunk-7", keys=("x", "m-1")), Resolved("m-1", "metadata")),
        (Document(text=LONG), Resolved("m-1", "content")),
        (Document(text=f"asked\n {LONG} "), Resolved("m-1", "content")),
        (Document(entry_id="uuid", text=LONG[:-1] + "!!"), Resolved("m-1", "near")),
        (Document(entry_id="gone"), Resolved("gone", "id")),
        (Document(text="Refunds"), None),
        (Document(entry_id="uuid", text="A text that is long enough and that no entry has at all."), None),
        (Document(), None),
    ],
)
def test_a_document_is_known_by_id_then_metadata_then_content_then_near_text(document, found):
    assert Memories([entry("m-1", LONG)], gone={"gone"}).resolve(document, 5_000) == found


def test_an_id_whose_memory_was_edited_in_place_gives_way_to_the_entry_that_has_the_text():
    memories = Memories([entry("m-1", "We deliver on Mondays."), entry("m-1 of May", "We deliver daily.", at=2_000)])
    shown = Document(entry_id="m-1", text="We deliver daily.")
    assert memories.resolve(shown, 3_000) == Resolved("m-1 of May", "content")
    assert memories.resolve(Document(entry_id="m-1", text="We deliver on Mondays."), 1_500) == Resolved("m-1", "id")


@pytest.mark.parametrize(("at", "found"), [(500, "old"), (1_500, "old"), (2_000, "new"), (9_000, "new"), (0, "old")])
def test_of_several_with_one_text_it_is_the_newest_that_existed_then(at, found):
    memories = Memories([entry("new", LONG, at=2_000), entry("old", LONG, at=1_000)])
    assert memories.resolve(Document(text=LONG), at) == Resolved(found, "content")


@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=6), st.data())
def test_whatever_an_entry_says_is_found_by_its_text(texts, data):
    entries = [
        entry(f"m-{n}", text, at=n) for n, text in enumerate(unicodedata.normalize("NFC", text) for text in texts)
    ]
    memories = Memories(entries)
    chosen = data.draw(st.sampled_from(entries))
    found = memories.resolve(Document(text=chosen.text), 10_000)
    assert found is not None
    assert found.means == "content"
    (same,) = [item for item in entries if item.entry_id == found.entry_id]
    wanted = chosen.text.split()
    assert wanted in (same.text.split(), same.response.split())
