"""RFC 6962 root over a million leaves, beside a plain hashlib loop that computes the same hashes.

    python -m benchmarks.systems.merkle [--leaves 1000000] [--repeats 7]

Both do one SHA-256 per leaf and one per node. The plain loop is what anyone would write without a tree in mind: hash
every leaf, then hash n - 1 pairs. Repeats alternate, so that a busy machine slows both; the ratio is of the medians.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time

from benchmarks.harness.resultfile import ResultFile
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.tiles import TiledTree

LIMIT = 1.3


def plain_loop(leaves: list[bytes]) -> None:
    """One hash per leaf and one per pair, keeping nothing."""
    sha256 = hashlib.sha256
    left = right = b"\x00" * 32
    for leaf in leaves:
        left = sha256(b"\x00" + leaf).digest()
    for _ in range(len(leaves) - 1):
        right = sha256(b"\x01" + left + right).digest()


def tree_root(leaves: list[bytes]) -> bytes:
    """Leaf hashes, then the root."""
    leaf_hash = merkle.leaf_hash
    return merkle.root([leaf_hash(leaf) for leaf in leaves])


def append_all(hashes: list[bytes]) -> bytes:
    """The same root, growing leaf by leaf."""
    tree = TiledTree()
    for item in hashes:
        tree.extend(item)
    return tree.root()


def seconds(call: object, *arguments: object) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    call(*arguments)  # type: ignore[operator]
    return time.perf_counter() - start


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaves", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    leaves = [b"leaf %032d" % number for number in range(options.leaves)]
    hashes = [merkle.leaf_hash(leaf) for leaf in leaves]
    if append_all(hashes) != tree_root(leaves):
        raise SystemExit("the two roots differ")
    result = ResultFile("merkle", "python -m benchmarks.systems.merkle", vars(options), fresh=True)
    rows = []
    for repeat in range(options.repeats):
        row = {
            "repeat": repeat,
            "plain_s": seconds(plain_loop, leaves),
            "root_s": seconds(tree_root, leaves),
            "append_s": seconds(append_all, hashes),
        }
        rows.append(row)
        result.add_row(row)
    medians = {name: statistics.median(row[name] for row in rows) for name in ("plain_s", "root_s", "append_s")}
    ratio = medians["root_s"] / medians["plain_s"]
    name = f"root of {options.leaves} leaves, against a plain hashlib loop"
    result.add_bar(name, round(ratio, 3), "x", f"<= {LIMIT}", met=ratio <= LIMIT)
    for name, value in medians.items():
        print(f"{name:10} {value:7.3f} s  {value / options.leaves * 1e6:6.3f} us per leaf")
    print(f"root / plain loop: {ratio:.3f} (limit {LIMIT})")


if __name__ == "__main__":
    main()
