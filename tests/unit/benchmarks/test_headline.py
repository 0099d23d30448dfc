"""The README's table of attack and repair says what the committed rows say."""

from pathlib import Path

from benchmarks.headline import lines

README = Path(__file__).parents[3] / "README.md"


def test_every_line_of_the_table_stands_in_the_readme():
    written = README.read_text(encoding="utf-8").splitlines()

    missing = [line for line in lines() if line not in written]

    assert missing == []


def test_the_readme_has_no_line_that_the_rows_do_not_have():
    table = lines()
    written = README.read_text(encoding="utf-8").splitlines()
    start = written.index(table[0])

    assert written[start : start + len(table) + 1] == [*table, ""]
