"""What a store in a bucket costs beside the same store in a folder: seconds, requests and bytes.

    python -m benchmarks.scale.object_store [--tenants 50] [--each 200] [--runs 3]

Both are made by turns, from the same entries, in this process. The bucket lies at a real server on loopback (SeaweedFS,
as `tests.object_stores` runs it), so that seconds are those of this machine and no network: a service further away adds
its answer time to each request in a row, of which up to sixteen are in flight at once. Requests are those that the
library makes, a listing one for each thousand objects.

| step | what |
|---|---|
| publish | the first version, of all entries |
| append | 100 entries of one tenant as the next version |
| open, new machine | newest version and one tenant, verified, with an empty mirror |
| open again | the same, with the mirror as the step before left it |
| read all, new machine | all tenants, verified, with an empty mirror |
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks.harness.resultfile import ResultFile
from memory_audit.entry import Entry
from memory_audit.jobs.store.object_store import ObjectStoreRemote, place_of
from memory_audit.provenance.keys import generate_keys
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from memory_audit.snapshot.reader import open_snapshot
from tests.object_stores import seaweedfs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOW_MS = 1_800_000_000_000
LISTED_AT_ONCE = 1_000


class Counter:
    """The library's handle, with its requests and bytes counted."""

    def __init__(self, objects: Any) -> None:
        self._objects = objects
        self.requests = self.sent = self.received = 0

    def list(self, prefix: str | None) -> Any:
        """List all at once, and count a request for each page of the service's."""
        batches = list(self._objects.list(prefix))
        self.requests += 1 + sum(map(len, batches)) // LISTED_AT_ONCE
        return batches

    def get(self, name: str) -> Any:
        """Read."""
        self.requests += 1
        answer = self._objects.get(name)
        self.received += answer.meta["size"]
        return answer

    def put(self, name: str, data: bytes, **options: Any) -> Any:
        """Write."""
        self.requests += 1
        self.sent += len(data)
        return self._objects.put(name, data, **options)

    def delete(self, names: Sequence[str]) -> None:
        """Erase: one request for a thousand."""
        self.requests += 1
        self._objects.delete(names)


def main() -> None:
    """Measure both by turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=50)
    parser.add_argument("--each", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    result = ResultFile("object_store", "python -m benchmarks.scale.object_store", vars(options), fresh=True)
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    costs: dict[str, tuple[int, int, int]] = {}
    with tempfile.TemporaryDirectory(prefix="memaudit-bucket-") as name, seaweedfs(Path(name)) as server:
        server.make_bucket("bench")
        os.environ.update(server.environment)
        for run in range(-1, options.runs):  # the first makes the server ready, and counts for nothing
            for where in ("folder", "bucket"):
                for step, wall_s, cost in steps(where, Path(name) / f"run{run}", options):
                    if run >= 0:
                        seconds[step, where].append(round(wall_s, 3))
                        costs |= {} if cost is None else {step: cost}
    for step, (requests, sent, received) in costs.items():
        folder, bucket = seconds[step, "folder"], seconds[step, "bucket"]
        ratio = round(statistics.median(bucket) / statistics.median(folder), 2)
        result.add_row({
            "step": step, "folder_s": folder, "bucket_s": bucket, "ratio": ratio, "requests": requests,
            "bytes_sent": sent, "bytes_received": received,
        })  # fmt: skip
        print(step, folder, bucket, ratio, requests, sent, received, flush=True)


def steps(
    where: str, folder: Path, options: argparse.Namespace
) -> list[tuple[str, float, tuple[int, int, int] | None]]:
    """Do each step once; return its name, seconds, and of a bucket requests, bytes sent and bytes received."""
    keyring = generate_keys()
    done: list[tuple[str, float, tuple[int, int, int] | None]] = []
    tenants = [f"tenant-{number}" for number in range(options.tenants)]
    entries = [_entry(tenant, f"m{number}") for tenant in tenants for number in range(options.each)]

    def place(machine: str) -> Path:
        if where == "folder":
            return folder / "store"
        os.environ["XDG_CACHE_HOME"] = str(folder / machine)
        return place_of(f"s3://bench/{folder.name}")

    def step(name: str, machine: str, work: Callable[[Path], object]) -> None:
        store = place(machine)
        counters: list[Counter] = []
        real = ObjectStoreRemote.open

        def opened(remote: ObjectStoreRemote) -> Any:
            if not counters:
                counters.append(Counter(real(remote)))
            return counters[0]

        with mock.patch.object(ObjectStoreRemote, "open", opened):
            started = time.perf_counter()
            work(store)
            wall_s = time.perf_counter() - started
        counted = [(counter.requests, counter.sent, counter.received) for counter in counters]
        done.append((name, wall_s, counted[0] if counted else None))

    def read(store: Path, names: list[str]) -> None:
        snapshot = open_snapshot(store, keyring.policy, now_ms=NOW_MS + 1)
        for tenant in names:
            snapshot.log(tenant)

    step("publish", "one", lambda store: create_store(store, entries, keyring, now_ms=NOW_MS))
    more = [_entry(tenants[0], f"n{number}") for number in range(100)]
    step("append", "one", lambda store: append_entries(store, more, keyring, now_ms=NOW_MS + 1))
    step("open, new machine", "two", lambda store: read(store, tenants[:1]))
    step("open again", "two", lambda store: read(store, tenants[:1]))
    step("read all, new machine", "three", lambda store: read(store, tenants))
    return done


def _entry(tenant: str, entry_id: str) -> Entry:
    return Entry(
        tenant=tenant, entry_id=entry_id, principal="bench", source="user", request=f"How do I reset {entry_id}?",
        response=f"Open the menu of {tenant} and choose {entry_id}.", created_at_ms=NOW_MS - 1,
    )  # fmt: skip


if __name__ == "__main__":
    main()
