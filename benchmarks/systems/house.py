"""How the project is built, before and after: size, repeated code, installation, imports, wheel, pages, test suite.

    python -m benchmarks.systems.house                        # 5 minutes
    python -m benchmarks.systems.house --suite                # and both test suites, one after the other: an hour

Before is `--before`, a revision that is checked out into a temporary folder; after is this working tree. Each wheel is
installed into an environment of its own from the same index, and both are imported by turns in fresh processes: the
best of `--rounds`. Production code is `audit`, `models` and `jobs`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.command import run
from benchmarks.harness.resultfile import ResultFile
from benchmarks.systems.source_figures import PRODUCTION, source_figures
from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parents[2]
OF_PIP = frozenset({"pip", "setuptools", "wheel"})
WEIGHTS = ".npz"
COUNTED = re.compile(r"([0-9]+) (passed|failed)")
TIMED = "import time; began = time.perf_counter(); import {}; print(time.perf_counter() - began)"

LIMITS = {
    "lines of production code": 29_500, "files in the fullest folder": 16, "lines of the longest file": 400,
    "import circles": 0, "distributions of the base install": 12, "import of the package, s": 0.15,
    "import of the guard, s": 0.5, "wheel without weights, MB": 1.5, "words of the README": 900,
    "words of the longest sentence": 30,
}  # fmt: skip
SHARES = {"repeated lines": 1.0, "weights in the wheel, MB": 0.5, "test suite, s": 0.6}
"""Largest share of what it was before."""

Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A checkout, and what its modules are called."""

    root: Path
    package: str
    guard: str


def main() -> None:
    """Measure both, and state the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="REVISION", default="09c124a")
    parser.add_argument("--rounds", type=int, default=10, help="imports of each")
    parser.add_argument("--suite", action="store_true", help="run `make test` of both")
    options = parser.parse_args()
    command = "python -m benchmarks.systems.house" + " --suite" * options.suite
    config = {"before": options.before, "rounds": options.rounds, "suite": options.suite}
    with tempfile.TemporaryDirectory(prefix="memaudit-house-") as name, checked_out(options.before, Path(name)) as old:
        trees = {
            "before": Tree(root=old, package="audit", guard="audit.forget.guarded_store"),
            "after": Tree(root=HERE, package="memory_audit", guard="memory_audit.guard.guarded_store"),
        }
        figures: dict[str, Figures] = {when: dict(source_figures(tree.root)) for when, tree in trees.items()}
        pythons = {when: installed(tree, Path(name) / when, figures[when]) for when, tree in trees.items()}
        for what in ("package", "guard"):
            times = import_times({when: (pythons[when], getattr(trees[when], what)) for when in trees}, options.rounds)
            for when, best in times.items():
                figures[when][f"import of the {what}, s"] = round(best, 3)
        if options.suite:
            for when, tree in reversed(trees.items()):
                figures[when] |= suite_figures(tree.root)
    results = ResultFile("house", command, config, fresh=True)
    for what, after in figures["after"].items():
        before = figures["before"][what]
        results.add_row({"what": what, "before": before, "after": after})
        print(f"{what}: {before:g} -> {after:g}")
        if what in LIMITS:
            results.add_bar(what, after, "", f"<= {LIMITS[what]:g}", after <= LIMITS[what])
        elif what in SHARES:
            results.add_bar(what, after, "", f"<= {SHARES[what]:g} x {before:g}", after <= SHARES[what] * before)


@contextmanager
def checked_out(revision: str, folder: Path) -> Iterator[Path]:
    """Check a revision out into a folder, and take it away again."""
    tree = folder / "checkout"
    called("git", "worktree", "add", "--quiet", "--detach", str(tree), revision, cwd=HERE)
    try:
        yield tree
    finally:
        called("git", "worktree", "remove", "--force", str(tree), cwd=HERE)


def installed(tree: Tree, folder: Path, figures: Figures) -> Path:
    """Build the wheel from a copy, install it into a new environment, and return its interpreter."""
    source = folder / "source"
    names = [name for name in (*PRODUCTION, "benchmarks") if (tree.root / name).is_dir()]
    for name in names:
        shutil.copytree(tree.root / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        if (tree.root / name).is_file():
            shutil.copy(tree.root / name, source)
    called(sys.executable, "-I", "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(source))
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        weights = sum(item.compress_size for item in packed.infolist() if item.filename.endswith(WEIGHTS))
    figures["weights in the wheel, MB"] = round(weights / 1e6, 2)
    figures["wheel without weights, MB"] = round((wheel.stat().st_size - weights) / 1e6, 2)
    python = folder / "environment" / "bin" / "python"
    called(sys.executable, "-I", "-m", "venv", str(python.parents[1]))
    pins = tree.root / "constraints.txt"
    called(str(python), "-I", "-m", "pip", "install", "--quiet", "-c", str(pins), str(wheel))
    listed = json.loads(called(str(python), "-I", "-m", "pip", "list", "--format", "json"))
    figures["distributions of the base install"] = len({item["name"].lower() for item in listed} - OF_PIP)
    return python


def import_times(what: dict[str, tuple[Path, str]], rounds: int) -> dict[str, float]:
    """Import each in fresh processes, by turns; return the best times in seconds."""
    times: dict[str, list[float]] = {when: [] for when in what}
    for _ in range(rounds):
        for when, (python, module) in what.items():
            times[when].append(float(called(str(python), "-I", "-c", TIMED.format(module))))
    return {when: min(found) for when, found in times.items()}


def suite_figures(root: Path) -> Figures:
    """Set the checkout up and run its test suite: seconds of the run alone, and tests; models lie in the cache."""
    called("make", "setup", cwd=root)
    began = time.perf_counter()
    said = called("make", "test", cwd=root, may_fail=True)
    took_s = time.perf_counter() - began
    counted = {what: int(number) for number, what in COUNTED.findall(" ".join(said.splitlines()[-5:]))}
    for line in said.splitlines():
        if line.startswith(("FAILED", "ERROR")):
            print(line[:300])
    if "passed" not in counted:
        raise UsageError(f"make test: {said.strip()[-400:]}")
    return {
        "test suite, s": round(took_s, 1), "tests passed": counted["passed"], "tests failed": counted.get("failed", 0)
    }  # fmt: skip


def called(*command: str, cwd: Path | None = None, python_path: str | None = None, may_fail: bool = False) -> str:
    """Run a program and return what it printed; it finds Python's modules where it stands, or by `python_path`.

    Raises:
        UsageError: it failed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if python_path:
        environment["PYTHONPATH"] = python_path
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise UsageError(f"{' '.join(command)[:200]}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


if __name__ == "__main__":
    run(main)
