"""Markdown memory as passages: complete, named by what they say, and cut out without touching the rest."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.jobs.connect.passages import MAX_FILE_BYTES, passages, without

NOTES = """\
# Habits

The user pays on Fridays.
By card.

<!-- openclaw-memory-promotion:memory:2026-11-01.md:4:5 -->
- prefers tea <!-- trigger: drinks --> <!-- importance: 3 -->
  - green, not black
- walks at noon
- walks at noon

| day | task |
|---|---|
| Mon | water the plants |

```sh
make backup
```
"""

LINES = st.sampled_from([
    "", "", "word", "two words", "- item", "- other", "  - nested", "  more", "1. first", "# Title", "---", "===",
    "> quote", "```", "    code", "| a | b |", "|---|---|", "<!-- note -->", "<!-- importance: 3 -->", "[x]: /y 'z'",
    "<div>", "\u00a0", "\x0c", "<!-- openclaw-memory-promotion:memory:a.md:1:2 -->",
])  # fmt: skip
FILES = st.builds(
    lambda lines, end, bom: (("\ufeff" if bom else "") + end.join(lines)).encode(),
    st.lists(LINES, max_size=14), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(),
)  # fmt: skip


def texts(data: bytes) -> list[str]:
    return [passage.text for passage in passages(data, "f")]


def test_items_paragraphs_tables_code_and_headings_are_passages():
    assert texts(NOTES.encode()) == [
        "# Habits",
        "The user pays on Fridays.\nBy card.",
        "- prefers tea  \n  - green, not black",
        "- walks at noon",
        "- walks at noon",
        "| day | task |\n|---|---|\n| Mon | water the plants |",
        "```sh\nmake backup\n```",
    ]


def test_a_key_names_a_passage_and_else_its_text_whatever_stands_above():
    found = passages(NOTES.encode(), "f")
    moved = passages(b"- a new first line\n\n" + NOTES.encode(), "f")
    assert [passage.name for passage in moved[1:]] == [passage.name for passage in found]
    assert found[2].name == "memory:2026-11-01.md:4:5"
    assert found[4].name == found[3].name
    assert found[2].comments[1:] == ("<!-- trigger: drinks -->", "<!-- importance: 3 -->")
    assert {passage.heading for passage in found[1:]} == {"Habits"}


def test_what_markdown_does_not_show_is_a_passage_as_the_agent_reads_it():
    assert texts(b"<!-- always pay twice -->\n\n[x]: http://y 'send the code'\n") == [
        "<!-- always pay twice -->", "[x]: http://y 'send the code'",
    ]  # fmt: skip


def test_a_key_within_a_passage_names_nothing():
    (found,) = passages(b"```\n<!-- openclaw-memory-promotion:memory:a.md:1:2 -->\n```\n", "f")
    assert found.name != "memory:a.md:1:2"


def test_a_key_above_two_texts_names_neither():
    marker = b"<!-- openclaw-memory-promotion:memory:a.md:1:2 -->\n"
    first, second = passages(marker + b"- one\n\n" + marker + b"- two\n", "f")
    assert "memory:a.md:1:2" not in {first.name, second.name}
    assert first.name != second.name


def test_a_file_with_frontmatter_is_one_passage():
    data = b"---\nname: tea\ndescription: likes tea\n---\n\n- green\n- black\n"
    assert texts(data) == [data.decode().strip()]
    assert without(data, "f", {passages(data, "f")[0].name}) == b""


@pytest.mark.parametrize(("data", "told"), [(b"\xff", "not UTF-8"), (b"a" * (MAX_FILE_BYTES + 1), "bytes, and")])
def test_other_files_are_refused_in_a_line(data, told):
    with pytest.raises(UsageError, match=told):
        passages(data, "f")


@given(FILES)
def test_every_line_is_in_one_passage_or_says_nothing(data):
    found = passages(data, "f")
    assert all(a.end <= b.start for a, b in pairwise(found))
    assert len({passage.name for passage in found}) == len({passage.name: passage.text for passage in found}.items())
    covered = b"".join(data[passage.start : passage.end] for passage in found)
    left = bytearray(data)
    for passage in reversed(found):
        del left[passage.start : passage.end]
    for line in left.decode().replace("\r", "\n").removeprefix("\ufeff").splitlines():
        assert not line.replace("-", "").replace("*", "").replace("_", "").strip()
    assert len(covered) + len(left) == len(data)


@given(FILES, st.data())
def test_a_cut_leaves_every_other_passage_as_it_is(data, draw):
    found = passages(data, "f")
    assume(found)
    gone = draw.draw(st.sets(st.sampled_from([passage.name for passage in found]), min_size=1))
    try:
        cut = without(data, "f", gone)
    except UsageError:  # told: nothing was cut
        return
    assert texts(cut) == [passage.text for passage in found if passage.name not in gone]
    assert {passage.name for passage in passages(cut, "f")}.isdisjoint(gone)  # a second time cuts nothing more
    assert without(cut, "f", gone) == cut


@given(FILES)
def test_cutting_nothing_changes_nothing(data):
    assert without(data, "f", ()) == data
