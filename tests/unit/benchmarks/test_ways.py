"""Before and after are measured by turns, and what is compared is each turn's own."""

from __future__ import annotations

import pytest

from benchmarks.systems import ways
from benchmarks.systems.house import HERE
from memory_audit.errors import UsageError

COMMAND = ("-m", "benchmarks.systems.ways_guard")


@pytest.fixture
def trees(tmp_path):
    """Two trees, of which each has a command of its own of that name."""
    made = {"before": tmp_path / "old", "after": tmp_path / "new"}
    for when, printed in (("before", 'said\\n{"p50_ms": 4, "p99_ms": 8, "other": 1}'), ("after", '{"p50_ms": 2}')):
        folder = made[when] / "benchmarks" / "systems"
        folder.mkdir(parents=True)
        (folder / "ways_guard.py").write_text(f"print('{printed}')\n")
    return made


def test_each_tree_runs_its_own_command_and_its_last_line_counts(trees):
    found = ways.of_both(dict.fromkeys(trees, COMMAND), trees)
    assert found == {"before": {"p50_ms": 4.0, "p99_ms": 8.0}, "after": {"p50_ms": 2.0}}


@pytest.mark.parametrize("printed", ["print()", "print('no figures')", "print('[1]')", "pass", "raise SystemExit(3)"])
def test_a_command_that_prints_no_figures_ends_the_benchmark(trees, printed):
    (trees["after"] / "benchmarks" / "systems" / "ways_guard.py").write_text(printed)
    with pytest.raises(UsageError, match="ways_guard"):
        ways.of_both(dict.fromkeys(trees, COMMAND), trees)


def test_a_ratio_is_the_median_of_the_turns_that_measured_it():
    turns = [{"before": {"p50_ms": before}, "after": {"p50_ms": after}} for before, after in ((1, 2), (4, 1), (2, 2))]
    assert ways.median_ratio([*turns, {"before": {"seconds": 1.0}, "after": {"seconds": 9.0}}], "p50_ms") == 1.0


def test_a_night_is_audited_by_the_present_tree():
    tree = {"after": HERE}
    command = ways.night_command(ways.LARGE_TENANT["after"], 40)
    (found,) = ways.of_both({"after": command}, tree).values()
    assert found["seconds"] > 0
    assert found["peak_mib"] > 10
