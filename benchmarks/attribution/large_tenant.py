"""One large tenant: what an audit costs besides its models, and what a second night costs.

    python -m benchmarks.attribution.large_tenant [--memories 1000 10000 100000] [--events 8]

A signed store of one tenant, thirty memories to a topic and a dozen poisoned ones among them, audited with stand-ins
for all three models that answer at once: what is timed is this project's own work, and what is counted is how often a
real model would be asked. The second night has one memory in a hundred more, and takes over the first night's
comparisons (`--reuse`). The third row is the first night with the paper's whole graph.
Each size runs in a process of its own, whose largest memory is stated. A second start continues.
"""

from __future__ import annotations

import argparse
import contextlib
import io
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
from memory_audit.jobs.progress import Reporter
from memory_audit.jobs.run.reuse import EarlierRun
from memory_audit.jobs.run.run_audit import audit_all
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.loading import ModelSpecs
from memory_audit.provenance.keys import generate_keys
from memory_audit.request import AuditRequest, EventsFile
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from memory_audit.jobs.progress import Stage
    from memory_audit.jobs.tally import Label
    from memory_audit.provenance.keys import Keyring

TENANT, NOW_MS = "t", 1_800_000_000_000
DIMENSIONS = 384
POISON = 12
NEW_IN = 100
MOST_PAIRS = 60_000
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
        table = np.random.default_rng(0).standard_normal((1 << 14, DIMENSIONS))
        self._table = np.asarray(table, np.float32)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Sum the vectors of a text's words."""
        self.asked["texts"] += len(texts)
        sums = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            sums[row] = self._table[[crc32(word.encode()) % len(self._table) for word in text.split()]].sum(axis=0)
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Contradiction from 0 to 0.1, by the digest of the pair."""
        self.asked["directed pairs"] += len(pairs)
        share = np.array([crc32(f"{a}\0{b}".encode()) % 1_000 / 10_000 for a, b in pairs], np.float32)
        return np.stack([share, 1 - share, np.zeros_like(share)], axis=1)


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


def nights(memories: int, events: int, folder: Path, *, whole: bool = False) -> list[dict[str, Any]]:
    """Audit a new store, where wanted also with the whole graph, and once more with new memories."""
    keyring = generate_keys("bench")
    rng = random.Random(0)
    poisoned = set(rng.sample(range(memories), POISON))
    create_store(
        folder / "store", [memory(n, poison=n in poisoned) for n in range(memories)], keyring, now_ms=NOW_MS
    )  # fmt: skip
    seen = tuple(
        Event(
            event_id=f"e{number}", tenant=TENANT, ts_ms=NOW_MS, query=f"How do I refund order {number} now?",
            output="HARM", retrieved=None, harm="harmful",
        )
        for number in range(events)
    )  # fmt: skip
    first = audited("first", folder, keyring, seen)
    full = [audited("whole graph", folder, keyring, seen, config=replace(CONFIG, graph="full"))] if whole else []
    new = [memory(n) for n in range(memories, memories + max(1, memories // NEW_IN))]
    append_entries(folder / "store", new, keyring, now_ms=NOW_MS + 1)
    second = audited("second", folder, keyring, seen, EarlierRun(folder / "first"))
    return [first, second, *full]


def audited(
    night: str,
    folder: Path,
    keyring: Keyring,
    events: tuple[Event, ...],
    earlier: EarlierRun | None = None,
    *,
    config: AuditConfig = CONFIG,
) -> dict[str, Any]:
    """Audit the store as it is and return a row."""
    reporter, models = Timed(), StandIns()
    executor = LocalExecutor(ModelSpecs(backbone="fake", nli="fake", embedder="fake"), FakeGenerator())
    executor.embedder = executor.entailment = models
    start = time.perf_counter()
    snapshot = open_snapshot(folder / "store", keyring.policy, now_ms=NOW_MS + 2)
    entries = len(snapshot.entries(TENANT))
    opened = time.perf_counter()
    request = AuditRequest(snapshot=snapshot, events=EventsFile(events=events, digest=night), config=config)
    with reporter:
        result, _ = audit_all(request, executor, folder / night, now_ms=NOW_MS, earlier=earlier)
    whole = time.perf_counter() - start
    removed = sorted(result.tenants[0].removal.removed)
    stages = {name: round(seconds, 2) for name, seconds in sorted(reporter.seconds.items())}
    return {
        "night": night, "memories": entries, "seconds": round(whole, 2), "open and verify": round(opened - start, 2),
        "stages": stages, "rest": round(whole - (opened - start) - sum(stages.values()), 2), **models.asked,
        "replays": result.counters["replays"], "removed": len(removed),
        "removed digest": crc32(" ".join(removed).encode()),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }  # fmt: skip


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--events", type=int, default=8)
    options = parser.parse_args()
    config = {"events": options.events, "graph": [CONFIG.graph, "full"]}
    results = ResultFile("large_tenant", "python -m benchmarks.attribution.large_tenant", config)
    for count in options.memories:
        if any(row["memories"] == count for row in results.rows):
            continue
        with tempfile.TemporaryDirectory() as folder, get_context("spawn").Pool(1) as pool:
            rows = pool.apply(nights, (count, options.events, Path(folder)), {"whole": True})
        for row in rows:
            results.add_row(row)
            print(row)
        first, _, whole = rows
        pairs, same = first["directed pairs"], first["removed digest"] == whole["removed digest"]
        results.add_bar(f"directed pairs of {count:,} memories", pairs, "", "<= 60000", pairs <= MOST_PAIRS)
        results.add_bar(f"the same of {count:,} removed as with the whole graph", float(same), "", ">= 1", same)


if __name__ == "__main__":
    main()
