"""Interrupt commands at every file operation, and at random, and look at what is left.

    python -m benchmarks.systems.crash

First the harness of the tests (`tests/conformance/crash.py`): a publisher is killed at every file operation, over
operations that touch one, two and three tenants. After each kill the store must open at the old or the new version,
verify deeply, hold everything acknowledged, and take the operation again.

Then commands as a user gives them (`systems/crash_commands.py`): killed before, after or in the middle of a file
operation or at any moment, refused an operation (a full disk), or ended by Ctrl-C, all drawn at random, and given
again. A batch of interruptions is a row; a second start continues.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.resultfile import ResultFile
from benchmarks.systems.crash_commands import SCENARIOS, Tally, World
from tests.conformance.crash import OPERATIONS, WIDE, crash_everywhere

KILLS_WANTED = 1_000
INTERRUPTIONS_WANTED = 10_000
BATCH = 260
"""Interruptions in a row of the result, and thereby at least for each scenario and round."""

ROUNDS = {"vacuum": 8, "all": 8}
"""Batches of a scenario, where it is not ROUNDS_OF_OTHERS: these erase, or go from one command to the next."""

ROUNDS_OF_OTHERS = 3
SHOWN = 5
"""Failures of a kind that a row describes."""


def main() -> None:
    """Run what is not in the result file yet, and print the totals."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    config = {"tenants": [1, 2, 3], "scenarios": {name: ROUNDS.get(name, ROUNDS_OF_OTHERS) for name in SCENARIOS}}
    result = ResultFile("crash", "python -m benchmarks.systems.crash", config | {"batch": BATCH})
    kill_publishers(result)
    interrupt_commands(result)


def kill_publishers(result: ResultFile) -> None:
    """Kill each operation of a publisher at each of its file operations."""
    done = {(row["operation"], row["moment"], row["tenants"]) for row in result.rows if "operation" in row}
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
    kills = sum(row["kills"] for row in result.rows if "kills" in row)
    lost = sum(row["lost"] for row in result.rows if "lost" in row)
    result.add_bar("acknowledged entries lost", lost, f"in {kills} kills", "0", met=lost == 0)
    result.add_bar("kills", kills, "kills", f">= {KILLS_WANTED}", met=kills >= KILLS_WANTED)
    print(f"{kills} kills, {lost} acknowledged entries lost")


def interrupt_commands(result: ResultFile) -> None:
    """Interrupt commands at random and give them again."""
    done = {(row["scenario"], row["round"]) for row in result.rows if "scenario" in row}
    batches = [(name, number) for name in SCENARIOS for number in range(ROUNDS.get(name, ROUNDS_OF_OTHERS))]
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        for row in pool.imap_unordered(run_batch, [batch for batch in batches if batch not in done]):
            result.add_row(row)
            print(row, flush=True)
    rows = [row for row in result.rows if "scenario" in row]
    total = sum(sum(row["interruptions"].values()) for row in rows)
    result.add_bar(
        "interruptions", total, "of commands", f">= {INTERRUPTIONS_WANTED}", met=total >= INTERRUPTIONS_WANTED
    )
    for kind in Tally().found:
        found = sum(row["found"][kind] for row in rows)
        result.add_bar(kind, found, f"in {total} interruptions", "0", met=found == 0)
        print(f"{kind}: {found} in {total} interruptions")


def run_batch(batch: tuple[str, int]) -> dict[str, Any]:
    """Run trials of a scenario until a batch of interruptions is full."""
    name, number = batch
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        world = World(name, Path(folder))
        for seed in count(number * BATCH):
            world.trial(seed, tally)
            if tally.interruptions.total() >= BATCH:
                break
    return {
        "scenario": name, "round": number, "interruptions": dict(tally.interruptions), "how": dict(tally.how),
        "found": {kind: len(found) for kind, found in tally.found.items()},
        "where": [seen for found in tally.found.values() for seen in found[:SHOWN]],
    }  # fmt: skip


if __name__ == "__main__":
    main()
