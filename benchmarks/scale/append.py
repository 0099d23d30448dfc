"""What an append costs by the size of the store it goes to, beside the same in an earlier revision.

    python -m benchmarks.scale.append [--before 09c124a] [--sizes 100000 1000000] [--batch 1000] [--batches 10]

For each size the earlier revision imports a store of one tenant. From copies of it both revisions append batch after
batch, by turns, each in a process of its own (`append_server`) that tells its times; a batch is signed, hashed onto the
log, checked for ids and parents, written, and published as a version. The first append of this revision brings the
store into its layout; that one is a row of its own and no part of the figure, which is the median of the others. Last,
each verifies its store, whole, where that is the smallest.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, TYPE_CHECKING, Self

from benchmarks.harness.resultfile import ResultFile
from benchmarks.systems.house import checked_out

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVER = Path(__file__).with_name("append_server.py")
LIMIT_MS = 0.2
"""An entry, appended in batches to the largest store."""

LIMIT_OF_GROWTH = 2.0
"""Times what it takes in the smallest store."""


def main() -> None:
    """Measure both, and state the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="REVISION", default="09c124a")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--stores", type=Path, help="folder of stores that an earlier start of this command left there")
    options = parser.parse_args()
    config = {name: value for name, value in vars(options).items() if name != "stores"}
    result = ResultFile("append", "python -m benchmarks.scale.append", config, fresh=True)
    with tempfile.TemporaryDirectory(prefix="memaudit-append-") as name, checked_out(options.before, Path(name)) as old:
        stores = options.stores or Path(name) / "stores"
        stores.mkdir(parents=True, exist_ok=True)
        medians = [measure(old, stores, Path(name), size, options, result) for size in sorted(options.sizes)]
    small, large = medians[0]["after"], medians[-1]["after"]
    what = f"append to {max(options.sizes)} entries in batches of {options.batch}, per entry"
    result.add_bar(what, round(large, 4), "ms", f"<= {LIMIT_MS}", met=large <= LIMIT_MS)
    growth = f"the same, against a store of {min(options.sizes)}"
    result.add_bar(growth, round(large / small, 2), "x", f"<= {LIMIT_OF_GROWTH}", met=large <= LIMIT_OF_GROWTH * small)


def measure(  # noqa: PLR0917
    old: Path, stores: Path, folder: Path, size: int, options: argparse.Namespace, result: ResultFile
) -> dict[str, float]:
    """Milliseconds an entry, by revision, as the median of the batches."""
    origin, before = stores / str(size), ("audit", [str(old)])
    if not (origin / "store" / "manifests").is_dir():
        with Revision(*before, origin) as revision:
            seconds = revision.do("create", size)
        result.add_row({"entries": size, "what": "import by the earlier revision", "wall_s": seconds})
    times: dict[str, list[float]] = {"before": [], "after": []}
    with ExitStack() as stack:
        revisions = {}
        for when, code in (("before", before), ("after", ("memory_audit", sys.path))):
            shutil.copytree(origin, folder / when)
            stack.callback(shutil.rmtree, folder / when)
            revisions[when] = stack.enter_context(Revision(*code, folder / when))
        first = {when: revision.do("append", options.batch) for when, revision in revisions.items()}
        result.add_row({"entries": size, "what": "first append of a process, s", **first})
        for _ in range(options.batches):
            for when, revision in revisions.items():
                times[when].append(revision.do("append", options.batch) / options.batch * 1_000)
        if size == min(options.sizes):
            verified = {when: revision.do("verify", 0) for when, revision in revisions.items()}
            result.add_row({"entries": size, "what": "verification of the whole store, s", **verified})
    row = {when: [round(one, 4) for one in each] for when, each in times.items()}
    result.add_row({"entries": size, "what": "append, ms per entry", **row})
    medians = {when: statistics.median(each) for when, each in times.items()}
    print(size, first, medians, flush=True)
    return medians


class Revision:
    """A process that works on a store by the code of a revision, and tells how long it took."""

    def __init__(self, package: str, places: Sequence[str], folder: Path) -> None:
        """Start it, with the revision's core of that name in one of these places."""
        path = {"PYTHONPATH": os.pathsep.join(places)}
        self._process = Popen([sys.executable, SERVER, package, str(folder)], stdin=PIPE, stdout=PIPE, env=path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe(self._process.stdin).close()
        self._process.wait()

    def do(self, what: str, count: int) -> float:
        """Have it done; return the seconds."""
        self._pipe(self._process.stdin).write(json.dumps([what, count]).encode() + b"\n")
        self._pipe(self._process.stdin).flush()
        return float(self._pipe(self._process.stdout).readline())

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None  # noqa: S101 - asked for
        return pipe


if __name__ == "__main__":
    main()
