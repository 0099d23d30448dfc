"""Verifying a whole store beside the bare Ed25519 verifications it cannot do without; and the cost of an append.

    python -m benchmarks.systems.verify [--entries 100000] [--repeats 3] [--rounds 30] [--batch 1000 10000]

The bare run checks as many signatures over messages of the same size, in as many processes, by the same library and the
same loop, and does nothing else: no files, no encoding, no hashing, no rules. Both run in the same minute, alternating,
so that a busy machine slows both. The ratio is given in wall-clock time and in processor time; processes are started
before the clock in the bare run and inside it in the other, which a larger store pays for once. Rows also hold what
OpenSSL takes for a bare signature, through `cryptography` where that is installed: the library of earlier results.

Where other work keeps the processors busy, even processor time is unequal from minute to minute. So `--rounds` measures
once more in one process, by turns of half a second: a store of PAIRED_ENTRIES in full, as many bare signatures, and so
on. The ratio of the sums is what a store adds to its signatures, without starting processes and sharing out.

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
from importlib.util import find_spec
from itertools import cycle, islice, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.resultfile import ResultFile
from memory_audit.entry import Entry, Parent
from memory_audit.provenance.ed25519 import SIGNATURE_BYTES, PrivateKey, first_forged
from memory_audit.provenance.keys import generate_keys
from memory_audit.provenance.leaf import SIGNATURE_DOMAIN, encode_entry
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from memory_audit.snapshot.verify import verify_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.provenance.keys import Keyring

NOW_MS = 1_800_000_000_000
VERIFY_LIMIT = 1.1
APPEND_LIMIT_MS = 0.2
PAIRED_ENTRIES = 8_192
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


def signed_messages(size: int) -> tuple[list[bytes], bytes]:
    """DISTINCT signatures, each followed by its message of `size` bytes, and the raw public key."""
    key = PrivateKey("bench", b"b" * 32)
    messages = [(number.to_bytes(8, "big") * (size // 8 + 1))[:size] for number in range(DISTINCT)]
    return [key.sign(message) + message for message in messages], key.public().raw


def check_signatures(count: int, size: int) -> float:
    """Verify `count` signatures over messages of `size` bytes; return the wall-clock seconds."""
    signed, raw = signed_messages(size)
    start = time.perf_counter()
    forged = first_forged(islice(cycle(signed), count), repeat(raw, count))
    seconds = time.perf_counter() - start
    if forged is not None:
        raise RuntimeError("an honest signature was refused")
    return seconds


def openssl_us(count: int, size: int) -> float | None:
    """Processor microseconds of a bare OpenSSL verification; None without `cryptography`."""
    if find_spec("cryptography") is None:
        return None
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - not required

    signed, raw = signed_messages(size)
    verify = Ed25519PublicKey.from_public_bytes(raw).verify
    start = time.process_time()
    for item in islice(cycle(signed), count):
        verify(item[:SIGNATURE_BYTES], item[SIGNATURE_BYTES:])
    return (time.process_time() - start) / count * 1e6


def paired_runs(path: Path, keyring: Keyring, entries: int, size: int, rounds: int) -> Iterator[tuple[float, float]]:
    """Verify a small store and as many bare signatures by turns, in this process: processor seconds of each."""
    for _ in range(rounds):
        start = time.process_time()
        verify_store(path, keyring.policy, now_ms=NOW_MS, workers=1)
        middle = time.process_time()
        check_signatures(entries, size)
        yield middle - start, time.process_time() - middle


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


def append_runs(path: Path, keyring: Keyring, batch: int, repeats: int) -> Iterator[dict[str, float]]:
    """Milliseconds per entry of each batch, by the clock and by the processor."""
    for number in range(repeats):
        entries = [memory(item, f"a{batch}-{number}-") for item in range(batch)]
        start, cpu = time.perf_counter(), time.process_time()
        append_entries(path, entries, keyring, now_ms=NOW_MS)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        yield {"wall": wall / batch * 1_000, "cpu": cpu / batch * 1_000}


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batch", type=int, nargs="*", default=[1_000, 10_000])
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    keyring = generate_keys()
    size = len(SIGNATURE_DOMAIN + encode_entry(memory(99_999), origin="memaudit/" + "0" * 32 + "/acme", index=99_999))
    config = {**vars(options), "cores": cores, "message_bytes": size, "library": "libsodium (PyNaCl)"}
    result = ResultFile("verify", "python -m benchmarks.systems.verify", config, fresh=True)
    with tempfile.TemporaryDirectory() as folder:
        measure_pairs(Path(folder) / "small", keyring, size, options.rounds, result)
        path = Path(folder) / "store"
        start = time.perf_counter()
        create_store(path, (memory(number) for number in range(options.entries)), keyring, now_ms=NOW_MS)
        result.add_row({"kind": "import", "wall_s": time.perf_counter() - start, "entries": options.entries})
        measure_cores(path, keyring, options.entries, size, cores, options.repeats, result)
        measure_append(path, keyring, options.entries, options.batch, result)


def measure_pairs(path: Path, keyring: Keyring, size: int, rounds: int, result: ResultFile) -> None:
    """One process, by turns."""
    create_store(path, (memory(number) for number in range(PAIRED_ENTRIES)), keyring, now_ms=NOW_MS)
    verify_store(path, keyring.policy, now_ms=NOW_MS, workers=1)  # imports, first calls
    runs = list(paired_runs(path, keyring, PAIRED_ENTRIES, size, rounds))
    for one in runs:
        result.add_row({"kind": "paired", "full_cpu_s": one[0], "bare_cpu_s": one[1]})
    result.add_row({"kind": "openssl", "us_per_signature": openssl_us(2_000, size)})
    full, bare = sum(one[0] for one in runs), sum(one[1] for one in runs)
    name = f"verify {PAIRED_ENTRIES} entries, against bare Ed25519 (one process, processor time)"
    result.add_bar(name, round(full / bare, 3), "x", f"<= {VERIFY_LIMIT}", met=full / bare <= VERIFY_LIMIT)
    print(f"{name}: {full / bare:.3f}, bare {bare / rounds / PAIRED_ENTRIES * 1e6:.1f} us")


def measure_cores(  # noqa: PLR0917
    path: Path, keyring: Keyring, entries: int, size: int, cores: int, repeats: int, result: ResultFile
) -> None:
    """All cores, by turns."""
    ratios: dict[str, list[float]] = {"wall": [], "cpu": []}
    for number in range(repeats):
        full, bare = full_run(path, keyring, cores), bare_run(entries, size, cores)
        row = {
            "kind": "verify", "repeat": number, "full_wall_s": full["wall_s"], "bare_wall_s": bare["loop_s"],
            "full_cpu_s": full["cpu_s"], "bare_cpu_s": bare["cpu_s"],
        }  # fmt: skip
        ratios["wall"].append(full["wall_s"] / bare["loop_s"])
        ratios["cpu"].append(full["cpu_s"] / bare["cpu_s"])
        result.add_row(row)
        print(row)
    for kind in ("wall", "cpu"):
        ratio = statistics.median(ratios[kind])
        name = f"verify {entries} entries, against bare Ed25519 ({kind} time)"
        result.add_bar(name, round(ratio, 3), "x", f"<= {VERIFY_LIMIT}", met=ratio <= VERIFY_LIMIT)
        print(f"{name}: {ratio:.3f}")


def measure_append(path: Path, keyring: Keyring, entries: int, batches: list[int], result: ResultFile) -> None:
    """Wall-clock and processor time per entry."""
    for batch in batches:
        runs = list(append_runs(path, keyring, batch, 5))
        for kind in ("wall", "cpu"):
            times = [run[kind] for run in runs]
            result.add_row({"kind": f"append, {kind} time", "batch": batch, "ms_per_entry": times})
            median = statistics.median(times)
            name = f"append to {entries} entries, batches of {batch}, per entry ({kind} time)"
            result.add_bar(name, round(median, 4), "ms", f"<= {APPEND_LIMIT_MS}", met=median <= APPEND_LIMIT_MS)
            print(f"{name}: {median:.3f} ms")


if __name__ == "__main__":
    main()
