"""Generated parts of the documentation say what code and results say now."""

from dataclasses import fields

import pytest

from benchmarks.harness.pages.listing import QUESTIONS, result_names
from benchmarks.harness.resultfile import RESULTS
from docs.generate import DOCS, FIGURES, ROOT, configuration, current_text, written_pages
from memory_audit.config import AuditConfig

PAGES = {str(page.relative_to(ROOT)): page for page in written_pages()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_is_generated_now(name):
    text = PAGES[name].read_text(encoding="utf-8")

    assert current_text(text) == text, "run: python -m docs.generate"


def test_a_changed_part_is_written_anew_and_the_words_around_it_stay():
    page = "before\n<!-- generated: exit codes -->\nold\n<!-- end -->\nafter\n"

    assert current_text(page) == current_text(page.replace("old", "older"))
    assert "| 4 | integrity or signature failure |" in current_text(page)
    assert current_text(page).startswith("before\n")
    assert current_text(page).endswith("\nafter\n")


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_results_own(name):
    assert (DOCS / "results" / name).read_bytes() == (RESULTS / name).read_bytes()


def test_every_option_of_an_audit_says_what_it_means():
    lines = configuration().splitlines()[2:]

    assert [line for line in lines if line.endswith("|  |")] == []
    assert len(lines) == len(fields(AuditConfig))


def test_every_committed_result_has_its_question_in_the_list():
    assert [name for name in result_names() if name not in QUESTIONS] == []
