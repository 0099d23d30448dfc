"""A thousand tenants on a night when nothing reproduces: what is paid for looking, before and after.

    python -m benchmarks.scale.quiet_night        # 5 minutes

One event a tenant, a hundred memories a tenant on average, stand-ins that answer at once. Before is `--before`, a
revision that is checked out into a temporary folder; after is this working tree. Both run by turns in processes of
their own (`benchmarks.scale.one_quiet_night`), by this interpreter. A bar is the median over turns.
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
from benchmarks.systems.house import HERE, called, checked_out

if TYPE_CHECKING:
    from collections.abc import Sequence

NIGHT = Path("benchmarks/scale/one_quiet_night.py")
LARGE_TENANT = {"before": "benchmarks.large_tenant", "after": "benchmarks.attribution.large_tenant"}
RATIOS = {
    "seconds": ("wall time of a quiet night", 0.1),
    "cpu_seconds": ("processor time of a quiet night", 0.1),
    "peak_mib": ("driver's peak memory on a quiet night", 0.3),
    "result_bytes": ("bytes of its result", 0.1),
}
"""By figure its name and the largest share of what it was before."""


def main(arguments: Sequence[str] | None = None, results_folder: Path = RESULTS) -> None:
    """Measure both, and state the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="REVISION", default="09c124a")
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=1)
    options = parser.parse_args(arguments)
    results = ResultFile(
        "quiet_night", "python -m benchmarks.scale.quiet_night", vars(options), folder=results_folder, fresh=True
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="memaudit-night-") as name, checked_out(options.before, Path(name)) as old:
        (old / NIGHT).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / NIGHT, old / NIGHT)
        for _ in range(options.turns):
            results.add_row({when: _night(when, old, options.tenants) for when in LARGE_TENANT})
    for figure, (what, limit) in RATIOS.items():
        ratio = statistics.median(row["after"][figure] / row["before"][figure] for row in results.rows)
        results.add_bar(what, round(ratio, 4), "x", f"<= {limit:g}", ratio <= limit)
        print(f"{what}: {ratio:.4f} x")
    pairs = max(row["after"]["pairs"] for row in results.rows)
    results.add_bar("pairs compared on a quiet night", pairs, "", "<= 0", pairs == 0)
    print(f"pairs: {results.rows[0]['before']['pairs']:,} -> {pairs:,}")


def _night(when: str, old: Path, tenants: int) -> dict[str, float]:
    tree, path = (old, None) if when == "before" else (HERE, os.environ.get("PYTHONPATH"))
    command = (sys.executable, "-m", ".".join(NIGHT.with_suffix("").parts), LARGE_TENANT[when])
    printed = called(*command, "--tenants", str(tenants), cwd=tree, python_path=path)
    figures: dict[str, float] = json.loads(printed.strip().splitlines()[-1])
    return figures


if __name__ == "__main__":
    run(main)
