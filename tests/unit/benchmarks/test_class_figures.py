"""Classes with many attributes, and fields that another file writes, on small trees whose truth is known."""

from __future__ import annotations

import pytest

from benchmarks.systems.class_figures import MOST_ATTRIBUTES, wide_classes, written_elsewhere

STATE = """
from dataclasses import dataclass

@dataclass(slots=True)
class State:
    asked: int = 0
    seen: dict = None

    def ask(self):
        self.asked += 1

@dataclass(frozen=True)
class Outcome:
    harm: bool
"""


@pytest.fixture
def tree(tmp_path):
    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("audit/search/state.py", STATE)
    return write


@pytest.mark.parametrize(
    "body",
    [
        "\n".join(f"    a{number}: int" for number in range(MOST_ATTRIBUTES)) + "\n    {}",
        "    def __init__(self):\n"
        + "\n".join(f"        self.a{number} = 0" for number in range(MOST_ATTRIBUTES))
        + "\n        {}",
    ],
    ids=["fields", "set on self"],
)
@pytest.mark.parametrize(
    ("last", "wide"),
    [("last: int", True), ("self.last, x = 1, 2", True), ("pass", False), ("a1: int = 0", False), ("LAST = 1", False)],
)
def test_fields_and_what_methods_set_are_attributes_and_each_counts_once(tree, tmp_path, body, last, wide):
    if "self." in last and "def" not in body:
        body += "\n    def set(self):\n        self.last, x = 1, 2"
        last = "pass"
    if "def" in body and last in {"last: int", "a1: int = 0"}:
        last = f"self.{last}"
    tree("audit/search/wide.py", "class Wide:\n" + body.replace("{}", last))
    assert wide_classes(tmp_path, ["audit/search"]) == (["audit/search/wide.py: Wide (13)"] if wide else [])
    assert wide_classes(tmp_path, ["audit/other"]) == []


def test_members_of_enumerations_and_class_variables_are_no_attributes(tree, tmp_path):
    members = "\n".join(f"    A{number}: int = {number}" for number in range(20))
    tree("audit/search/kinds.py", f"class Kind(enum.StrEnum):\n{members}\n")
    tree("audit/search/names.py", "class Names:\n" + "\n".join(f"    a{n}: ClassVar[int] = 1" for n in range(20)))
    assert wide_classes(tmp_path, ["audit"]) == []


@pytest.mark.parametrize(
    "line",
    [
        "state.asked = 1", "state.asked += 1", "state.seen['a'] = 1", "state.seen['a']['b'] = 1", "del state.asked",
        "a, (state.asked, *b) = 1, (2, 3)", "setattr(state, 'asked', 1)", "run.states['e'].asked = 1",
        "for state.asked in range(3): pass", "with x as state.asked: pass",
    ],
)  # fmt: skip
def test_each_way_of_writing_to_a_field_is_seen(tree, tmp_path, line):
    tree("jobs/run.py", f"def run(state):\n    {line}\n")
    ((where, what),) = written_elsewhere(tmp_path, ["audit/search"]).items()
    assert where == "audit/search/state.py: State"
    assert what[0].endswith("in jobs/run.py:2")
    assert written_elsewhere(tmp_path, ["audit/other"]) == {}


@pytest.mark.parametrize(
    "text",
    [
        "def run(state):\n    return state.asked, state.seen['a']\n",
        "def run(other: Other):\n    other.asked = 1\n",
        "def run(outcome):\n    outcome.harm = True\n",
        "class Mine:\n    asked: int\n\ndef run(mine):\n    mine.asked = 1\n",
        "class More(State):\n    def ask(self):\n        self.asked = 1\n",
    ],
    ids=["reads", "of another class", "frozen", "of a class of that file", "of itself"],
)
def test_what_writes_to_no_field_of_another_file_is_not_told(tree, tmp_path, text):
    tree("jobs/run.py", text)
    assert written_elsewhere(tmp_path, ["audit"]) == {}


@pytest.mark.parametrize("kind", ["State", "state.State", '"State"', "State | None"])
def test_an_annotation_tells_whose_field_it_is(tree, tmp_path, kind):
    tree("jobs/run.py", f"class Mine:\n    asked: int\n\ndef run(given: {kind}):\n    given.asked = 1\n")
    assert list(written_elsewhere(tmp_path, ["audit"])) == ["audit/search/state.py: State"]
