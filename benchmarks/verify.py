"""Verifying a whole store beside the bare Ed25519 verifications it cannot do without; and the cost of an append.

    python -m benchmarks.verify [--entries 100000] [--repeats 3] [--batch 1000]

The bare run checks as many signatures over messages of the same size, in as many processes, and does nothing else: no
files, no encoding, no hashing, no rules. Both run in the same minute, alternating, so that a busy machine slows both.
The ratio is given in wall-clock time and in processor time; processes are started before the clock in the bare run and
inside it in the other, which a larger store pays for once.

The append signs, hashes onto the log, checks ids and parents, writes and syncs a batch as the next version of a store
that holds `--entries` of one tenant; the figure is per entry. memory-blackbox, the nearest peer, takes 30.6 ms a write.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from audit.entry import Entry, Parent
from audit.provenance.ed25519 import PrivateKey, raw_verifier
from audit.provenance.keys import generate_keys
from audit.provenance.leaf import SIGNATURE_DOMAIN, encode_entry
from audit.snapshot.publish import append_entries, create_store
from audit.snapshot.verify import verify_store
from benchmarks.resultfile import ResultFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from audit.provenance.keys import Keyring

NOW_MS = 1_800_000_000_000
VERIFY_LIMIT = 1.1
APPEND_LIMIT_MS = 0.2
DISTINCT = 512
"""Signatures that the bare run cycles through."""


def memory(number: int, prefix: str = "m") -> Entry:
    """One entry of about 500 bytes with a derivation edge, as an agent's summary of an earlier one has."""
    parents = (Parent(entry_id=f"{prefix}{number - 1}", weight_ppm=400_000),) if number % 2 else ()
    return Entry(
        tenant="acme", entry_id=f"{prefix}{number}", principal="agent-7", source="agent",
        request=f"How do I reset the password of account {number}?",
        response=f"Open settings, choose security, then reset. Ticket {number}. " * 5,
        created_at_ms=NOW_MS, parents=parents, metadata={"channel": "chat"},
    )  # fmt: skip


def check_signatures(count: int, size: int) -> float:
    """Verify `count` signatures over messages of `size` bytes; return the wall-clock seconds."""
    key = PrivateKey("bench", b"b" * 32)
    messages = [number.to_bytes(8, "big") * (size // 8) for number in range(DISTINCT)]
    pairs = [(key.sign(message), message) for message in messages]
    verify = raw_verifier(key.public())
    start = time.perf_counter()
    for number in range(count):
        signature, message = pairs[number % DISTINCT]
        verify(signature, message)
    return time.perf_counter() - start


def cpu_seconds() -> float:
    """Processor seconds of this process and of its finished children."""
    uses = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in uses)


def bare_run(entries: int, size: int, cores: int) -> dict[str, float]:
    """All signatures, spread over the cores."""
    before = cpu_seconds()
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        list(pool.map(check_signatures, [1] * cores, [size] * cores))  # started and imported
        start = time.perf_counter()
        loops = list(pool.map(check_signatures, [entries // cores] * cores, [size] * cores))
        wall = time.perf_counter() - start
    return {"wall_s": wall, "loop_s": max(loops), "cpu_s": cpu_seconds() - before}


def full_run(path: Path, keyring: Keyring, cores: int) -> dict[str, float]:
    """Verify the store, with its progress on the terminal."""

    def progress(stage: str, done: int, total: int) -> None:
        print(f"\r{stage} {done}/{total}", end="", flush=True)

    before, start = cpu_seconds(), time.perf_counter()
    verify_store(path, keyring.policy, now_ms=NOW_MS, progress=progress, workers=cores)
    print("\r", end="")
    return {"wall_s": time.perf_counter() - start, "cpu_s": cpu_seconds() - before}


def append_runs(path: Path, keyring: Keyring, batch: int, repeats: int) -> Iterator[float]:
    """Milliseconds per entry of each batch."""
    for repeat in range(repeats):
        entries = [memory(number, f"a{batch}-{repeat}-") for number in range(batch)]
        start = time.perf_counter()
        append_entries(path, entries, keyring, now_ms=NOW_MS)
        yield (time.perf_counter() - start) / batch * 1_000


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, nargs="*", default=[1_000, 10_000])
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    keyring = generate_keys()
    size = len(SIGNATURE_DOMAIN + encode_entry(memory(99_999), origin="memaudit/" + "0" * 32 + "/acme", index=99_999))
    config = {**vars(options), "cores": cores, "message_bytes": size}
    result = ResultFile("verify", "python -m benchmarks.verify", config, fresh=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        start = time.perf_counter()
        create_store(path, (memory(number) for number in range(options.entries)), keyring, now_ms=NOW_MS)
        result.add_row({"kind": "import", "wall_s": time.perf_counter() - start, "entries": options.entries})
        runs = []
        for repeat in range(options.repeats):
            full, bare = full_run(path, keyring, cores), bare_run(options.entries, size, cores)
            row = {
                "kind": "verify", "repeat": repeat, "full_wall_s": full["wall_s"], "bare_wall_s": bare["loop_s"],
                "full_cpu_s": full["cpu_s"], "bare_cpu_s": bare["cpu_s"],
            }  # fmt: skip
            runs.append(row)
            result.add_row(row)
            print(row)
        for kind in ("wall", "cpu"):
            ratio = statistics.median(row[f"full_{kind}_s"] / row[f"bare_{kind}_s"] for row in runs)
            name = f"verify {options.entries} entries, against bare Ed25519 ({kind} time)"
            result.add_bar(name, round(ratio, 3), "x", f"<= {VERIFY_LIMIT}", met=ratio <= VERIFY_LIMIT)
            print(f"{name}: {ratio:.3f}")
        for batch in options.batch:
            times = list(append_runs(path, keyring, batch, 5))
            result.add_row({"kind": "append", "batch": batch, "ms_per_entry": times})
            median = statistics.median(times)
            name = f"append to {options.entries} entries, batches of {batch}, per entry"
            result.add_bar(name, round(median, 4), "ms", f"<= {APPEND_LIMIT_MS}", met=median <= APPEND_LIMIT_MS)
            print(f"{name}: {median:.3f} ms")


if __name__ == "__main__":
    main()
