"""How long a guard takes that asks no model: 10,000 tombstones, one write at a time, and known writes from the cache.

    python -m benchmarks.guard.guard_latency [--tombstones 10000] [--writes 2000] [--cached 200000]

Keys are random directions of 384 dimensions (MiniLM's size), half of them in 50 clusters as removed memories are;
vectors of the writes are given, so embedding is not part of the figures: it is measured apart, with the packaged
MiniLM. No write needs a model. `floor` is the product of keys and vector alone, at the same moments; `load` is the
machine's one-minute load for each core: beside other work p99 is the scheduler's, not the guard's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness.resultfile import ResultFile
from memory_audit.entry import Entry
from memory_audit.guard.blocks.behaviour import BehaviourCurve, BehaviourFeatures
from memory_audit.guard.blocks.block_list import BlockList
from memory_audit.guard.blocks.hazard import HazardSignature, default_taxonomy
from memory_audit.guard.blocks.semantic_key import SemanticKey
from memory_audit.guard.blocks.tombstone import BlockRecord, HazardTombstone
from memory_audit.guard.guard import GuardSettings, WriteGuard
from memory_audit.provenance.leaf import Tombstone

if TYPE_CHECKING:
    from collections.abc import Sequence

DIMENSIONS = 384
CLUSTERS = 50
P50_MS, P99_MS, CACHED_PER_S = 1.0, 5.0, 100_000


def directions(count: int, rng: np.random.Generator) -> np.ndarray:
    """Unit vectors, half of them around CLUSTERS centres."""
    centres = rng.standard_normal((CLUSTERS, DIMENSIONS))
    rows = rng.standard_normal((count, DIMENSIONS))
    rows[::2] = rows[::2] * 0.3 + centres[rng.integers(CLUSTERS, size=len(rows[::2]))]
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def block_list_of(count: int, rng: np.random.Generator) -> BlockList:
    """A tenant's tombstones, each with a key, a behaviour, a signature and a fingerprint."""
    taxonomy = default_taxonomy()
    stones = []
    for number, row in enumerate(directions(count, rng)):
        labels = frozenset(rng.choice(taxonomy.names, size=2, replace=False).tolist())
        block = BlockRecord(
            signature=HazardSignature(labels=labels, taxonomy=taxonomy.digest, model="m"),
            keys=(SemanticKey.of(row, "bench@1"),), behaviours=(SemanticKey.of(row, NeverAsked.model_id),),
            fingerprints=(rng.bytes(16),),
        )  # fmt: skip
        stones.append(HazardTombstone(block=block, tombstone=Tombstone(
            tenant="t", entry_id=f"m{number}", removed_index=number, removed_leaf_hash=bytes(32), reason="r",
            run_id="r", created_at_ms=0,
        )))  # fmt: skip
    return BlockList(tenant="t", salt="s", stones=stones, embedder="bench@1", behaviour_model=NeverAsked.model_id)


class NeverAsked:
    """Implements `BehaviourReader`; it must not be needed."""

    model_id = "never@1"
    curve = BehaviourCurve(restated_slope=1.0, harm_slope=1.0, bias=0.0, threshold_nats=0.0)

    def read(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """Stop the benchmark."""
        raise SystemExit(f"a model was asked about {texts!r:.80}")

    taught = read

    def log_odds(self, reading: BehaviourFeatures, behaviours: np.ndarray) -> np.ndarray:
        """Stop the benchmark."""
        raise SystemExit(f"{reading!r:.80} was compared with {behaviours.shape}")


def write(number: int) -> Entry:
    """One write of usual length."""
    text = (
        f"To reset device {number}, hold the left key for {number % 7} seconds; note the code and call desk {number}."
    )
    return Entry(
        tenant="t", entry_id=f"w{number}", principal=f"p{number % 50}", source="agent", request="How do I reset it?",
        response=text, created_at_ms=0, metadata={"channel": "desk"},
    )  # fmt: skip


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` of the values lie."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tombstones", type=int, default=10_000)
    parser.add_argument("--writes", type=int, default=2_000)
    parser.add_argument("--cached", type=int, default=200_000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    held = block_list_of(options.tombstones, rng)
    # No write may need a model: thresholds lie above what these directions reach, as real ones do for benign writes.
    settings = GuardSettings(mode="behaviour", read_above=0.97, look_above=0.97, key_alone_above=0.98, recent_writes=0)
    guard = WriteGuard(
        held, embed=lambda _: np.zeros((0, DIMENSIONS), np.float32), behaviours=NeverAsked(), settings=settings,
        clock_ms=lambda: 0,
    )  # fmt: skip
    result = ResultFile("guard_latency", "python -m benchmarks.guard.guard_latency", vars(options), fresh=True)
    writes = [write(number) for number in range(options.writes)]
    vectors = directions(options.writes, rng)
    fresh_ms, floor_ms = [], []
    for entry, row in zip(writes, vectors, strict=True):
        start = time.perf_counter()
        held.keys.similarity(row[None])
        floor_ms.append((time.perf_counter() - start) * 1e3)
        start = time.perf_counter()
        guard.check(entry, vectors=row[None])
        fresh_ms.append((time.perf_counter() - start) * 1e3)
    for name, values in (("no model call", fresh_ms), ("floor: the products alone", floor_ms)):
        middle, worst = statistics.median(values), percentile(values, 0.99)
        found = {"what": name, "p50_ms": round(middle, 3), "p99_ms": round(worst, 3), "min_ms": round(min(values), 3)}
        result.add_row(found)
        print(found)
    load = {"what": "load of a core, one minute", "value": round(os.getloadavg()[0] / len(os.sched_getaffinity(0)), 2)}
    result.add_row(load)
    print(load)
    rounds = max(1, options.cached // options.writes)
    best = 0.0
    for _ in range(rounds):  # the best of many short rounds: others work on this machine too
        start = time.perf_counter()
        for entry in writes:
            guard.check(entry)
        best = max(best, len(writes) / (time.perf_counter() - start))
    cached = {"what": "cached decisions a second, best round", "per_s": round(best)}
    result.add_row(cached)
    print(cached)
    p50, p99 = statistics.median(fresh_ms), percentile(fresh_ms, 0.99)
    for name, value, limit in (("p50", p50, P50_MS), ("p99", p99, P99_MS)):
        what = f"guard without a model call, {name} at {options.tombstones} tombstones"
        result.add_bar(what, round(value, 3), "ms", f"<= {limit:g}", met=value <= limit)
    result.add_bar("cached decisions", round(best), "1/s", f">= {CACHED_PER_S}", met=best >= CACHED_PER_S)
    guard.close()
    embedding = embedding_ms([entry.response for entry in writes[:50]])
    result.add_row({"what": "embedding one text, packaged MiniLM", "p50_ms": embedding})
    print("embedding one text:", embedding, "ms")


def embedding_ms(texts: list[str]) -> float | None:
    """Median time of embedding one text; None where the model is not there."""
    from memory_audit.errors import AuditError  # noqa: PLC0415
    from memory_audit.models.loading import ModelSpecs, load_embedder  # noqa: PLC0415

    try:
        embedder = load_embedder(ModelSpecs())
    except (AuditError, ImportError):
        return None
    embedder.embed(texts[:1])
    found = []
    for text in texts:
        start = time.perf_counter()
        embedder.embed([text])
        found.append((time.perf_counter() - start) * 1e3)
    return round(statistics.median(found), 2)


if __name__ == "__main__":
    main()
