"""Vectors of deleted documents are overwritten in Chroma's index, and nothing else of it is."""

from __future__ import annotations

import io
import pickle
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.jobs.connect import chroma_index

ROOM, WIDTH = 3, 2
VECTOR_AT = 4 + 4 * ROOM
LABEL_AT = VECTOR_AT + 4 * WIDTH
SIZE = LABEL_AT + 8
ROOM_FOR_MORE = b"what Chroma found in its memory"


def index_of(folder, elements, *, version=1, capacity=None, size=SIZE, names=None):
    """Write an index of elements, each (id or None, links, vector)."""
    count = len(elements)
    capacity = count + 2 if capacity is None else capacity
    head = struct.pack("<i6Q", version, 0, capacity, count, size, LABEL_AT, VECTOR_AT)
    (folder / "header.bin").write_bytes(head + bytes(48))
    labels = {name: number + 1 for number, (name, *_) in enumerate(elements) if name is not None}
    data = b"".join(
        struct.pack("<HH3I", len(links), name is None, *links, *(0,) * (ROOM - len(links)))
        + struct.pack("<2f", *vector) + struct.pack("<Q", number + 1)
        for number, (name, links, vector) in enumerate(elements)
    )  # fmt: skip
    (folder / "data_level0.bin").write_bytes(data + ROOM_FOR_MORE)
    (folder / "length.bin").write_bytes(bytes(4 * count) + ROOM_FOR_MORE)
    held = {"dimensionality": None, "id_to_label": labels} if names is None else names
    (folder / "index_metadata.pickle").write_bytes(pickle.dumps(held))
    return folder


def read(folder):
    with chroma_index.opened(folder) as index:
        return [(element.name, element.links, struct.unpack("<2f", element.vector)) for element in index]


NUMBERS = st.floats(-8, 8, width=32)
ELEMENTS = st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 9), max_size=ROOM), NUMBERS, NUMBERS), max_size=10)


@given(drawn=ELEMENTS, gone=st.sets(st.integers(0, 9)))
def test_vectors_that_are_not_live_become_those_of_a_live_neighbour_or_zeros(drawn, gone):
    elements = [
        (f"k{number}" if kept else None, tuple(link for link in links if link < len(drawn)), (x, y))
        for number, (kept, links, x, y) in enumerate(drawn)
    ]
    live = {name for number, (name, *_) in enumerate(elements) if name is not None and number not in gone}
    with tempfile.TemporaryDirectory() as place:
        folder = index_of(Path(place), elements)
        assert read(folder) == elements
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        for _ in range(2):  # again, it does nothing
            chroma_index.overwrite(folder, lambda element: element.name in live)
            after = read(folder)
            assert [(name, links) for name, links, _ in after] == [(name, links) for name, links, _ in elements]
            for name, links, vector in after:
                linked = [elements[link][2] for link in links if elements[link][0] in live]
                here = next(own for other, own_links, own in elements if (other, own_links) == (name, links))
                if name in live:
                    assert vector == here
                else:
                    assert vector == next(iter(linked), (0.0, 0.0))
        after_bytes = {path.name: path.read_bytes() for path in folder.iterdir()}
        del before["data_level0.bin"], after_bytes["data_level0.bin"]
        assert after_bytes == before


def test_an_index_that_was_never_written_is_empty(tmp_path):
    assert read(tmp_path) == []
    chroma_index.overwrite(index_of(tmp_path, []), lambda _: False)


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 2}, {"capacity": 0}, {"size": SIZE + 8}, {"names": {"labels": {}}}, {"names": [1]},
        {"names": io.StringIO},
    ],
    ids=str,
)  # fmt: skip
def test_another_form_is_refused(tmp_path, damage):
    index_of(tmp_path, [("a", (), (1.0, 2.0))], **damage)
    with pytest.raises(UsageError, match="unknown chromadb"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["header.bin", "data_level0.bin", "index_metadata.pickle"])
def test_a_damaged_file_is_refused(tmp_path, name):
    (index_of(tmp_path, [("a", (), (1.0, 2.0))]) / name).write_bytes(b"\x00\x01")
    with pytest.raises(UsageError):
        read(tmp_path)


def test_links_to_nowhere_are_passed_over(tmp_path):
    folder = index_of(tmp_path, [(None, (4_000_000_000, 1), (1.0, 2.0)), ("b", (0,), (3.0, 4.0))])
    chroma_index.overwrite(folder, lambda element: element.name is not None)
    assert [vector for *_, vector in read(folder)] == [(3.0, 4.0), (3.0, 4.0)]


@pytest.mark.parametrize("count", [0, 3])
def test_room_for_more_is_blanked_and_the_elements_stay(tmp_path, count):
    folder = index_of(tmp_path, [(f"k{number}", (), (number + 1.0, 2.0)) for number in range(count)])
    before = read(folder)
    chroma_index.blank(folder)
    assert read(folder) == before
    assert (folder / "data_level0.bin").stat().st_size == count * SIZE + len(ROOM_FOR_MORE)
    assert all(b"found in its memory" not in path.read_bytes() for path in folder.iterdir())
