"""The ways of data, before and after: a write through the guard, an audit's own work, how the code holds together.

    python -m benchmarks.systems.ways        # 10 minutes on a quiet machine

Before is `--before`, a revision that is checked out into a temporary folder; after is this working tree. Both are run
by turns, in processes of their own, by this interpreter: a row is one turn, a bar the median over turns of after over
before. The guard is measured by `benchmarks.systems.ways_guard`, which is put into the older checkout, too; the audit
by the first night of `large_tenant`, whose models answer at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.command import run
from benchmarks.harness.resultfile import RESULTS, ResultFile
from benchmarks.systems.class_figures import wide_classes, written_elsewhere
from benchmarks.systems.house import HERE, called, checked_out
from benchmarks.systems.source_figures import source_figures
from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

Figures = dict[str, float]

GUARD = Path("benchmarks/systems/ways_guard.py")
GUARD_COMMAND: tuple[str, ...] = ("-m", ".".join(GUARD.with_suffix("").parts))
LARGE_TENANT = {"before": "benchmarks.large_tenant", "after": "benchmarks.attribution.large_tenant"}
FOLDERS = {"before": ("audit/attribution", "audit/forget"), "after": ("audit/attribution", "audit/guard")}
"""Where the set search and the guard are."""
NIGHT = """
import json, tempfile
from pathlib import Path
import {module} as tenant
if tenant.__name__ == "benchmarks.large_tenant":
    tenant.Timed.stage = tenant.Reporter.stage
with tempfile.TemporaryDirectory() as folder:
    night = next(iter(tenant.nights({memories}, {events}, Path(folder))))
print(json.dumps(night))
"""
"""The older benchmark's own way to time stages does not run; stages are not needed here."""
EVENTS = 8

RATIOS = {"p50_ms": 0.9, "p99_ms": 0.9, "hundred_ms": 0.9, "seconds": 0.8, "peak_mib": 0.8}
"""Largest share of what it was before, by what a process prints."""
LIMITS = {
    "lines of production code": 28_500, "lines of the longest file": 400, "import circles": 0,
    "classes with more than twelve attributes": 0, "classes with fields written from another file": 0,
}  # fmt: skip
NAMES = {
    "p50_ms": "one write through the guard, p50", "p99_ms": "one write through the guard, p99",
    "hundred_ms": "100 writes at once", "seconds": "an audit's own time", "peak_mib": "an audit's peak memory",
}  # fmt: skip


def main(arguments: Sequence[str] | None = None, results_folder: Path = RESULTS) -> None:
    """Measure both, and state the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="REVISION", default="09c124a")
    parser.add_argument("--memories", type=int, default=10_000, help="of the tenant that is audited")
    parser.add_argument("--turns", type=int, default=7, help="of the guard; the audit has half as many")
    options = parser.parse_args(arguments)
    config = {"before": options.before, "memories": options.memories, "turns": options.turns, "events": EVENTS}
    with tempfile.TemporaryDirectory(prefix="memaudit-ways-") as name, checked_out(options.before, Path(name)) as old:
        trees = {"before": old, "after": HERE}
        (old / GUARD).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / GUARD, old / GUARD)
        static = {when: static_figures(tree, FOLDERS[when]) for when, tree in trees.items()}
        results = ResultFile("ways", "python -m benchmarks.systems.ways", config, folder=results_folder, fresh=True)
        guards = dict.fromkeys(trees, GUARD_COMMAND)
        nights = {when: night_command(module, options.memories) for when, module in LARGE_TENANT.items()}
        for commands, count in ((guards, options.turns), (nights, (options.turns + 1) // 2)):
            for _ in range(count):
                results.add_row(of_both(commands, trees))
    turns = [row for row in results.rows if "what" not in row]
    for what, limit in RATIOS.items():
        ratio = median_ratio(turns, what)
        results.add_bar(NAMES[what], round(ratio, 3), "x", f"<= {limit:g}", ratio <= limit)
        print(f"{NAMES[what]}: {ratio:.3f} x")
    for what, limit in LIMITS.items():
        before, after = (static[when][what] for when in ("before", "after"))
        results.add_row({"what": what, "before": before, "after": after})
        results.add_bar(what, after, "", f"<= {limit:g}", after <= limit)
        print(f"{what}: {before:g} -> {after:g}")


def static_figures(root: Path, folders: Sequence[str]) -> Figures:
    """Count what no run is needed for; classes are named on standard error."""
    wide, written = wide_classes(root, folders), written_elsewhere(root, folders)
    if root == HERE:
        print(*wide, *(f"{where}: {', '.join(what)}" for where, what in written.items()), sep="\n", file=sys.stderr)
    return {
        **source_figures(root),
        "classes with more than twelve attributes": len(wide),
        "classes with fields written from another file": len(written),
    }


def night_command(module: str, memories: int) -> tuple[str, ...]:
    """Return the command that audits a large tenant once."""
    return ("-c", NIGHT.format(module=module, memories=memories, events=EVENTS))


def of_both(commands: dict[str, tuple[str, ...]], trees: dict[str, Path]) -> dict[str, Figures]:
    """Run a command in either tree, one after the other, and return what they print as their last line.

    Raises:
        UsageError: one failed, or printed no figures.
    """
    turn = {}
    for when, tree in trees.items():
        path = os.environ.get("PYTHONPATH") if tree == HERE else None  # the older one is found where it stands
        printed = called(sys.executable, *commands[when], cwd=tree, python_path=path)
        try:
            figures = json.loads(printed.strip().splitlines()[-1])
            turn[when] = {name: float(value) for name, value in figures.items() if name in RATIOS}
        except (ValueError, IndexError, AttributeError) as error:
            raise UsageError(f"{' '.join(commands[when])[:200]} printed no figures: {printed[-200:]}") from error
    return turn


def median_ratio(turns: Sequence[dict[str, Figures]], what: str) -> float:
    """Return the median over turns of after over before."""
    return statistics.median(turn["after"][what] / turn["before"][what] for turn in turns if what in turn["before"])


if __name__ == "__main__":
    run(main)
