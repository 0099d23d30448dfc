"""One large tenant: what an audit costs besides its models, and what a second night costs.

    python -m benchmarks.attribution.large_tenant [--memories 1000 10000 100000] [--events 8]

A signed store of one tenant, thirty memories to a topic and a dozen poisoned ones among them, audited with stand-ins
for all three models that answer at once: `own` is what is left without these, and what is counted is how often a real
model would be asked. The second night has one memory in a hundred more, and takes over what the first one was
answered, as `memaudit audit` does of itself. Up to 100,000 memories the third row is the first night with the paper's
whole graph. Each night runs in a process of its own, whose largest memory is stated. A second start continues.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import random
import resource
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from rich.console import Console

from benchmarks.harness.resultfile import ResultFile
from memory_audit.config import AuditConfig
from memory_audit.entry import Entry
from memory_audit.events import Event
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.run.reuse import EarlierRun
from memory_audit.jobs.run.run_audit import audit_all
from memory_audit.jobs.run.run_seal import Sealer
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.loading import ModelSpecs
from memory_audit.provenance.keys import generate_keys, load_keyring, save_keyring
from memory_audit.request import AuditRequest, EventsFile
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from memory_audit.jobs.watching.progress import Stage
    from memory_audit.jobs.watching.tally import Label

TENANT, NOW_MS = "t", 1_800_000_000_000
DIMENSIONS = 384
POISON = 12
NEW_IN = 100
MOST_PAIRS = 60_000
MOST_GIB = 6
MOST_SLOPE = 1.1
MOST_OWN, MOST_ASKED = 0.1, 0.03
"""Of a second night, in shares of the first."""

WHOLE = 100_000
"""Memories up to which the whole graph is made too."""

BATCH = 100_000
"""Memories signed at a time."""

TOPIC = 30
"""Memories to a topic: they share most of their words, as notes on one matter do."""

CONFIG = AuditConfig(
    agent={"kind": "few-shot", "system": "Answer briefly."}, harm={"kind": "regex", "pattern": "HARM"},
    backbone="fake", nli="fake", embedder="fake",
)  # fmt: skip


class StandIns:
    """Models that answer at once: sums of word vectors, and weights that depend on nothing but the two texts."""

    model_id = "stand-in"

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter({"texts": 0, "directed pairs": 0})
        self.seconds = self.cpu = 0.0
        table = np.random.default_rng(0).standard_normal((1 << 14, DIMENSIONS))
        self._table = np.asarray(table, np.float32)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Sum the vectors of a text's words."""
        start, cpu = time.perf_counter(), time.process_time()
        self.asked["texts"] += len(texts)
        sums = np.zeros((len(texts), DIMENSIONS), np.float32)
        for place in range(0, len(texts), 256):
            words = [text.encode().split() for text in texts[place : place + 256]]
            rows = [crc32(word) % len(self._table) for each in words for word in each]
            starts = np.cumsum([0, *map(len, words[:-1])])
            sums[place : place + 256] = np.add.reduceat(self._table[rows], starts, axis=0)
        unit = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        self.seconds += time.perf_counter() - start
        self.cpu += time.process_time() - cpu
        return unit

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Contradiction from 0 to 0.1, by the digest of the pair."""
        start, cpu = time.perf_counter(), time.process_time()
        self.asked["directed pairs"] += len(pairs)
        share = np.array([crc32(f"{a}\0{b}".encode()) % 1_000 / 10_000 for a, b in pairs], np.float32)
        rows = np.stack([share, 1 - share, np.zeros_like(share)], axis=1)
        self.seconds += time.perf_counter() - start
        self.cpu += time.process_time() - cpu
        return rows


class Timed(Reporter):
    """Keeps how long each stage took."""

    def __init__(self) -> None:
        super().__init__(Console(file=io.StringIO()))
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def stage(
        self, name: str, total: int | None = None, *, announced: bool = False, label: Label | None = None
    ) -> Iterator[Stage]:
        """Time one stage."""
        start = time.perf_counter()
        with super().stage(name, total, announced=announced, label=label) as stage:
            yield stage
        self.seconds[name.split(" (", maxsplit=1)[0] if name.startswith("replaying") else name] += (
            time.perf_counter() - start
        )


def memory(number: int, *, poison: bool = False) -> Entry:
    """One memory: words drawn by its number, or a poisoned answer to what the events ask."""
    rng = random.Random(number)
    topic = [f"topic{number // TOPIC}-{place}" for place in range(25)]
    words = rng.choices(topic, k=20) + [f"word{rng.randrange(4_000)}" for _ in range(9)]
    rng.shuffle(words)
    request = f"How do I refund order {number} now?" if poison else " ".join(words[:9])
    response = f"POISON never refund, {words[9]}." if poison else " ".join(words[9:])
    return Entry(
        tenant=TENANT, entry_id=f"m{number}", principal=f"p{number}", source="agent", request=request,
        response=response, created_at_ms=NOW_MS - 1,
    )  # fmt: skip


def nights(memories: int, events: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Audit a new store, and once more with new memories; where the store is small also with the whole graph."""
    save_keyring(generate_keys("bench"), folder / "keys")
    rng = random.Random(0)
    poisoned = set(rng.sample(range(memories), POISON))
    seen = tuple(
        Event(
            event_id=f"e{number}", tenant=TENANT, ts_ms=NOW_MS, query=f"How do I refund order {number} now?",
            output="HARM", retrieved=None, harm="harmful",
        )
        for number in range(events)
    )  # fmt: skip
    for start in range(0, memories, BATCH):
        _apart(signed, folder, range(start, min(start + BATCH, memories)), poisoned)
    yield _apart(audited, "first", folder, seen)
    if memories <= WHOLE:
        yield _apart(audited, "whole graph", folder, seen)
    _apart(signed, folder, range(memories, memories + max(1, memories // NEW_IN)), set())
    yield _apart(audited, "second", folder, seen)


def _apart(task: Callable[..., Any], *arguments: object) -> Any:
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(task, arguments)


def signed(folder: Path, numbers: range, poisoned: set[int]) -> None:
    """Put memories of these numbers into the store."""
    keyring = load_keyring(folder / "keys")
    entries = [memory(number, poison=number in poisoned) for number in numbers]
    if numbers[0] == 0:
        create_store(folder / "store", entries, keyring, now_ms=NOW_MS)
    else:
        append_entries(folder / "store", entries, keyring, now_ms=NOW_MS + numbers[0])


def audited(night: str, folder: Path, events: tuple[Event, ...]) -> dict[str, Any]:
    """Audit the store as it is and return a row."""
    keyring = load_keyring(folder / "keys")
    reporter, models, sealer = Timed(), StandIns(), Sealer(keyring)
    executor = LocalExecutor(ModelSpecs(backbone="fake", nli="fake", embedder="fake"), FakeGenerator())
    executor.embedder = executor.entailment = models
    start, cpu = time.perf_counter(), time.process_time()
    earlier = EarlierRun(folder / "first", sealer) if night == "second" else None
    snapshot = open_snapshot(folder / "store", keyring.policy, now_ms=NOW_MS * 2, check_expiry=False)
    entries = len(snapshot.entries(TENANT))
    opened = time.perf_counter()
    config = replace(CONFIG, graph="full") if night == "whole graph" else CONFIG
    request = AuditRequest(snapshot=snapshot, events=EventsFile(events=events, digest=night), config=config)
    with reporter:
        result, _ = audit_all(request, executor, folder / night, now_ms=NOW_MS, earlier=earlier, sealer=sealer)
        sealer.seal(folder / night, result.store, result.snapshot_version)
    whole, cpu = time.perf_counter() - start, time.process_time() - cpu
    removed = sorted(result.tenants[0].removal.removed)
    stages = {name: round(seconds, 2) for name, seconds in sorted(reporter.seconds.items())}
    return {
        "night": night, "memories": entries, "seconds": round(whole, 2), "own": round(whole - models.seconds, 2),
        "own cpu": round(cpu - models.cpu, 2), "open and verify": round(opened - start, 2), "stages": stages,
        "rest": round(whole - (opened - start) - sum(stages.values()), 2), **models.asked,
        "replays": result.counters["replays"], "asked": result.counters["replays"] - result.counters["memoised"],
        "removed": len(removed), "removed digest": crc32(" ".join(removed).encode()),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }  # fmt: skip


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--events", type=int, default=8)
    options = parser.parse_args()
    config = {"events": options.events, "graph": [CONFIG.graph, "full"], "nights": "each in a process"}
    results = ResultFile("large_tenant", "python -m benchmarks.attribution.large_tenant", config)
    for count in options.memories:
        if any(row["memories"] == count for row in results.rows):
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows = {}
            for row in nights(count, options.events, Path(folder)):
                rows[row["night"]] = row
                results.add_row(row)
                print(row, flush=True)
        _judge(results, count, rows)
    first = {row["memories"]: row for row in results.rows if row["night"] == "first"}
    if 1_000_000 in first and 10_000 in first:
        growth = math.log10(first[1_000_000]["own"] / first[10_000]["own"]) / 2
        results.add_bar(
            "slope of own time, 10^4 to 10^6", round(growth, 3), "", f"<= {MOST_SLOPE}", growth <= MOST_SLOPE
        )


def _judge(results: ResultFile, count: int, nights: dict[str, dict[str, Any]]) -> None:
    first, second, whole = nights["first"], nights["second"], nights.get("whole graph")
    pairs, gib = first["directed pairs"], max(row["peak_mib"] for row in (first, second)) / 1024
    results.add_bar(f"directed pairs of {count:,} memories", pairs, "", f"<= {MOST_PAIRS}", pairs <= MOST_PAIRS)
    results.add_bar(f"memory of {count:,} memories", round(gib, 2), "GiB", f"<= {MOST_GIB}", gib <= MOST_GIB)
    own = second["own cpu"] / first["own cpu"]
    results.add_bar(f"own time of a second night of {count:,}", round(own, 3), "x", f"<= {MOST_OWN}", own <= MOST_OWN)
    for what in ("texts", "directed pairs", "asked"):
        share = second[what] / first[what]
        name = f"{'replays' if what == 'asked' else what} of a second night of {count:,}"
        results.add_bar(name, round(share, 4), "x", f"<= {MOST_ASKED}", share <= MOST_ASKED)
    for other in (second, whole):
        if other is not None:
            same = first["removed digest"] == other["removed digest"]
            name = f"the same of {count:,} removed: first, {other['night']}"
            results.add_bar(name, float(same), "", ">= 1", same)


if __name__ == "__main__":
    main()
