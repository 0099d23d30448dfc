"""Kill a publisher at every file operation, a thousand times and more, and look at what is left.

    python -m benchmarks.crash

The harness of the tests (`tests/conformance/crash.py`), over operations that touch one, two and three tenants: after
each kill the store must open at the old or the new version, verify deeply, hold everything acknowledged, and take the
operation again. A kill that leaves anything else ends the run with an assertion.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pytest

from benchmarks.resultfile import ResultFile
from tests.conformance.crash import OPERATIONS, WIDE, crash_everywhere

KILLS_WANTED = 1_000


def main() -> None:
    """Run what is not in the result file yet, and print the total."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    result = ResultFile("crash", "python -m benchmarks.crash", {"tenants": [1, 2, 3]})
    done = {(row["operation"], row["moment"], row["tenants"]) for row in result.rows}
    for tenants in (WIDE[:1], WIDE[:2], WIDE):
        for operation in OPERATIONS:
            for moment in ("before", "after"):
                if (operation, moment, len(tenants)) in done:
                    continue
                with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
                    kills = crash_everywhere(operation, moment, Path(folder), patch, tenants)
                row = {"operation": operation, "moment": moment, "tenants": len(tenants), "kills": kills, "lost": 0}
                result.add_row(row)
                print(row)
    kills = sum(row["kills"] for row in result.rows)
    lost = sum(row["lost"] for row in result.rows)
    result.add_bar("acknowledged entries lost", lost, f"in {kills} kills", "0", met=lost == 0)
    result.add_bar("kills", kills, "kills", f">= {KILLS_WANTED}", met=kills >= KILLS_WANTED)
    print(f"{kills} kills, {lost} acknowledged entries lost")


if __name__ == "__main__":
    main()
