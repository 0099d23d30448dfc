"""The README's table of attack and repair says what the committed rows say."""

from itertools import takewhile
from pathlib import Path

from benchmarks.harness.headline import lines

README = Path(__file__).parents[3] / "README.md"


def test_the_readmes_table_has_every_line_that_the_rows_have_and_no_other():
    table = lines()
    written = README.read_text(encoding="utf-8").splitlines()

    shown = list(takewhile(lambda line: line.startswith("|"), written[written.index(table[0]) :]))

    assert shown == table
