"""The paper's whole graph of a store: in one process, before and now, and block by block through Ray Data.

    python -m benchmarks.scale.whole_graph        # 10 minutes

Stand-ins answer at once: what is timed is this project's own work and Ray's, and what is counted is how often a real
NLI model would be asked. Each row is a process of its own (`benchmarks.scale.one_whole_graph`), by turns. `before` is
`--before`, a revision that is checked out into a temporary folder; `local` is this working tree in one process, `ray`
is Ray Data on this machine, once it is started. In one process the responses are embedded as well, which an audit on
Ray embeds later, tenant by tenant. Memory of Ray's processes is without what they share. CAS must be the same to the
last bit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.command import run
from benchmarks.harness.resultfile import RESULTS, ResultFile
from benchmarks.systems.house import HERE, called, checked_out

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE = Path("benchmarks/scale/one_whole_graph.py")
STORES = ((1_000, 1), (10_000, 1), (100_000, 1), (100_000, 1_000))
"""Memories, and in how many tenants."""

WAYS = ("before", "local", "ray")
LIMITS = {"driver_peak_mib": 0.3, "largest_peak_mib": 0.6, "seconds": 1.5}
"""By figure the largest share of what it was before, for the largest tenant."""


def main(arguments: Sequence[str] | None = None, results_folder: Path = RESULTS) -> None:
    """Measure what is missing, and state the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="REVISION", default="09c124a")
    parser.add_argument("--memories", type=int, default=max(STORES)[0], help="leave larger stores out")
    options = parser.parse_args(arguments)
    config = {"before": options.before}
    results = ResultFile("whole_graph", "python -m benchmarks.scale.whole_graph", config, folder=results_folder)
    known = {(row["memories"], row["tenants"], row["way"]) for row in results.rows}
    with tempfile.TemporaryDirectory(prefix="memaudit-graph-") as name, checked_out(options.before, Path(name)) as old:
        (old / ONE).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / ONE, old / ONE)
        for memories, tenants in STORES:
            for way in WAYS if memories <= options.memories else ():
                if (memories, tenants, way) not in known:
                    results.add_row(_made(way, memories, tenants, old))
                    print(results.rows[-1])
    rows = {(row["memories"], row["tenants"], row["way"]): row for row in results.rows}
    largest = max((memories, -tenants) for memories, tenants, _ in rows)
    one = {way: rows[largest[0], -largest[1], way] for way in WAYS}
    for figure, limit in LIMITS.items():
        ratio = one["ray"][figure] / one["before"][figure]
        what = f"{figure} by Ray Data over the earlier build, {largest[0]:,} memories"
        results.add_bar(what, round(ratio, 3), "x", f"<= {limit:g}", ratio <= limit)
        print(f"{what}: {ratio:.3f} x")
    same = all(
        row["cas digest"] == rows[memories, tenants, "local"]["cas digest"]
        for (memories, tenants, _), row in rows.items()
    )
    results.add_bar("CAS is the same in every way", float(same), "", ">= 1", same)


def _made(way: str, memories: int, tenants: int, old: Path) -> dict[str, object]:
    tree, path = (old, None) if way == "before" else (HERE, os.environ.get("PYTHONPATH"))
    command = (sys.executable, "-m", ".".join(ONE.with_suffix("").parts), way)
    printed = called(*command, "--memories", str(memories), "--tenants", str(tenants), cwd=tree, python_path=path)
    row: dict[str, object] = json.loads(printed.strip().splitlines()[-1])
    return row


if __name__ == "__main__":
    run(main)
