"""Figures of a source tree, on small ones whose truth is known."""

from __future__ import annotations

import pytest

from benchmarks.systems.source_figures import import_circles, repeated_lines, sentences, source_figures

BODY = [f"value_{number} = {number}" for number in range(6)]


@pytest.fixture
def tree(tmp_path):
    for name, text in {
        "audit/entry.py": "from memory_audit.models import loading\n",
        "models/loading.py": "import os\n",
        "jobs/cli/main.py": "\n" * 30,
        "docs/page.md": "One two three. Four five.\n",
        "README.md": "# Title\n\nA word.\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_figures_of_a_small_tree(tree):
    assert source_figures(tree) == {
        "lines of production code": 32, "files in the fullest folder": 1, "lines of the longest file": 30,
        "repeated lines": 0, "import circles": 0, "words of the README": 4, "words of the longest sentence": 3,
        "sentences over 30 words": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "circles"),
    [
        ("from memory_audit.entry import Entry\n", 1),
        ("from audit.entry import Entry\n", 1),
        ("def late():\n    from memory_audit.entry import Entry\n", 0),
        ("if TYPE_CHECKING:\n    from memory_audit.entry import Entry\n", 0),
        ("try:\n    import memory_audit.entry\nexcept ImportError:\n    pass\n", 1),
    ],
)
def test_a_circle_is_of_modules_that_import_each_other_as_they_are_loaded(tree, text, circles):
    (tree / "models" / "loading.py").write_text(text)
    assert import_circles(tree) == circles


def test_six_lines_that_stand_twice_are_repeated_and_five_are_not():
    assert repeated_lines([BODY, ["x = 1", *BODY, "y = 2"]]) == 12
    assert repeated_lines([BODY[:5], BODY[:5]]) == 0
    assert repeated_lines([BODY]) == 0


def test_blank_lines_indents_and_imports_do_not_tell_repeats_apart():
    nested = ["if value:", *(f"    {line}" for line in BODY)]
    assert repeated_lines([nested, [BODY[0], "", *BODY[1:]]]) == 12
    imports = [f"import module_{number}" for number in range(6)]
    assert repeated_lines([imports, imports]) == 0


def test_sentences_are_of_running_text_alone():
    page = "# No. Title\n\nOne `two` three. Four\nfive!\n\n```\nCode.\n```\n| A table. |\n\n- An item. [Link](x.y)\n"
    assert sentences(page) == ["One two three.", "Four five!", "An item.", "Link"]
