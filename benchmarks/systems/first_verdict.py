"""What a new clone costs until its first verdict, before and after: seconds and bytes of each stage of `make audit`.

    python -m benchmarks.systems.first_verdict             # both, one after the other: up to an hour, 30 GB for a while
    python -m benchmarks.systems.first_verdict --alone     # this commit only, without bars

Before is `--before`, after the commit that is checked out here. Each gets a clone, a `.venv`, a cache of models and one
of pip of its own, all empty, and is removed when it was measured. A stage ends where `make audit` says that the next
begins. Warm is a second demo in the same clone, which has all models. `--pip-cache` gives both the same packages to
install from, which leaves the network's mood out: fill it by a run that is not kept.

The first named culprit is the first memory that the terminal names, with the verdict.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.harness.command import run
from benchmarks.harness.resultfile import ResultFile
from benchmarks.systems.house import checked_out
from memory_audit.errors import UsageError

STEP = re.compile(r"^\[([1-6])/6\]")
REMOVED = re.compile(r"would remove ([^\s:]+):")
STAGES = {"1": "install", "2": "assemble models", "3": "sign", "4": "first named culprit", "6": "purify"}
"""What is done when a step begins."""

SHARE = 0.5
"""Largest share of what it was before."""

Figures = dict[str, float]


def main() -> None:
    """Measure, and state the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="REVISION", default="09c124a")
    parser.add_argument("--alone", action="store_true", help="measure this commit only")
    parser.add_argument("--pip-cache", type=Path, metavar="FOLDER", help="of packages that both install from")
    options = parser.parse_args()
    command = "python -m benchmarks.systems.first_verdict" + " --alone" * options.alone
    config = {"before": None if options.alone else options.before, "pip_cache": options.pip_cache is not None}
    revisions = {"after": "HEAD"} if options.alone else {"before": options.before, "after": "HEAD"}
    figures: dict[str, Figures] = {}
    removed: dict[str, list[str]] = {}
    for when, revision in revisions.items():
        with tempfile.TemporaryDirectory(prefix="memaudit-first-") as name, checked_out(revision, Path(name)) as clone:
            figures[when], removed[when] = measured(clone, Path(name), options.pip_cache)
    results = ResultFile("first_verdict", command, config, fresh=True)
    for what, after in figures["after"].items():
        row = {"what": what} | {when: found[what] for when, found in figures.items()}
        results.add_row(row)
        print(row)
        if not options.alone and what in {"make audit, s", "disk, MiB", "warm: first named culprit, s"}:
            share = round(after / figures["before"][what], 3)
            results.add_bar(f"{what}, of before", share, "x", f"<= {SHARE:g}", share <= SHARE)
    if not options.alone:
        differ = len(set(removed["before"]) ^ set(removed["after"]))
        results.add_bar("memories removed by one alone", differ, "memories", "0", differ == 0)


def measured(clone: Path, folder: Path, pip_cache: Path | None) -> tuple[Figures, list[str]]:
    """Run `make audit` in a new clone and a second demo, and return what they took and what was removed.

    Raises:
        UsageError: a command failed; its last lines are in the error.
    """
    caches = {"MEMAUDIT_CACHE": folder / "models", "PIP_CACHE_DIR": pip_cache or folder / "pip"}
    environment = os.environ | {name: str(place) for name, place in caches.items()}
    environment.pop("PYTHONPATH", None)
    began = time.perf_counter()
    stages, removed = told(["make", "audit"], clone, environment)
    found = {f"{stage}, s": seconds for stage, seconds in stages.items()}
    found["make audit, s"] = round(time.perf_counter() - began, 1)
    found["until the first named culprit, s"] = round(sum(list(stages.values())[:4]), 1)
    places = {".venv": clone / ".venv", "models": folder / "models", "demo": clone / "demo-run"}
    for name, place in places.items():
        found[f"{name}, MiB"] = mebibytes(place)
    found["disk, MiB"] = mebibytes(*places.values())
    if pip_cache is None:
        found["pip's own cache, MiB"] = mebibytes(folder / "pip")
    warm, _ = told([".venv/bin/memaudit", "demo", "warm-run"], clone, environment)
    found["warm: first named culprit, s"] = round(sum(list(warm.values())[:4]), 1)
    return found, removed


def told(command: list[str], clone: Path, environment: dict[str, str]) -> tuple[dict[str, float], list[str]]:
    """Run a command that makes the demo, and return the seconds of each stage, in order, and what it removes.

    Raises:
        UsageError: it failed.
    """
    last, stages, lines = time.perf_counter(), {}, []
    with subprocess.Popen(
        command, cwd=clone, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            lines.append(line)
            step = STEP.search(line)
            if step is not None and step[1] in STAGES:
                now = time.perf_counter()
                stages[STAGES[step[1]]], last = round(now - last, 1), now
    stages["verify"] = round(time.perf_counter() - last, 1)
    if process.returncode != 0:
        raise UsageError(f"{' '.join(command)} failed: {' '.join(line.strip() for line in lines[-5:]):.600}")
    return stages, REMOVED.findall("".join(lines))


def mebibytes(*folders: Path) -> float:
    """Return what folders take on disk, with what they share counted once."""
    there = [str(folder) for folder in folders if folder.exists()]
    done = subprocess.run(["du", "-smc", *there], capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1].split()[0])


if __name__ == "__main__":
    run(main)
