"""How long a write takes through the guard: one at a time, and a hundred at once. Prints one line of JSON.

    python -m benchmarks.systems.ways_guard [--models]

`p50_ms` and `p99_ms` are of single writes, judged one after the other; `hundred_ms` is the median time of a hundred
that come to an event loop at the same time. Every write is a new one. One in two is near a removed memory and read,
also with its writer's recent ones; the models answer at once, so that what is left is the guard's own way. `--models`
takes the packaged embedder and reader of behaviours instead, and fewer writes.

Measured is whatever tree is on the path, also one before the packages were renamed: `benchmarks.systems.ways` puts this
file into an older checkout.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import math
import re
import statistics
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

if (Path(__file__).parents[2] / "audit" / "forget").is_dir():
    NAMES = {
        "entry": "audit.entry", "guard": "audit.forget.guard", "list": "audit.forget.lockout", "List": "Lockout",
        "record": "audit.forget.tombstone", "Record": "Lock", "block": "lock", "behaviours": "acts",
        "behaviour_model": "act_model", "behaviour": "audit.forget.act", "Curve": "ActCurve", "Features": "ActReading",
        "key": "audit.forget.semantic_key", "leaf": "audit.provenance.leaf", "mode": "act", "loading": "models.loading",
        "load": "load_acts",
    }  # fmt: skip
else:
    NAMES = {
        "entry": "memory_audit.entry", "guard": "memory_audit.guard.guard",
        "list": "memory_audit.guard.blocks.block_list", "List": "BlockList",
        "record": "memory_audit.guard.blocks.tombstone", "Record": "BlockRecord", "block": "block",
        "behaviours": "behaviours", "behaviour_model": "behaviour_model",
        "behaviour": "memory_audit.guard.blocks.behaviour", "Curve": "BehaviourCurve", "Features": "BehaviourFeatures",
        "key": "memory_audit.guard.blocks.semantic_key", "leaf": "memory_audit.provenance.leaf", "mode": "behaviour",
        "loading": "memory_audit.models.loading", "load": "load_behaviour_reader",
    }  # fmt: skip

STONES = 200
"""Removed memories."""

DIMENSIONS = 384
WRITERS = 40
SINGLE, ROUNDS = 800, 12
SINGLE_WITH_MODELS, ROUNDS_WITH_MODELS = 30, 1
AT_ONCE = 100
_TOPIC = re.compile(r"topic (\d+)")


def loaded(where: str, name: str) -> Any:
    """Return what a module of the measured tree calls so."""
    return getattr(importlib.import_module(NAMES[where]), NAMES.get(name, name))


class Answers:
    """An embedder and a reader of behaviours that answer at once."""

    model_id = "at-once@1"

    def __init__(self) -> None:
        self.curve = loaded("behaviour", "Curve")(restated_slope=1.0, harm_slope=1.0, bias=0.0, threshold_nats=0.0)
        self._features = loaded("behaviour", "Features")
        rows = np.random.default_rng(0).standard_normal((2_048, DIMENSIONS))
        self._rows = np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a direction for each text, near that of its topic where it names one."""
        found = self._rows[[STONES + zlib.crc32(text.encode()) % (2_048 - STONES) for text in texts]]
        for number, text in enumerate(texts):
            if (topic := _TOPIC.search(text)) is not None:
                found[number] = found[number] * 0.6 + self._rows[int(topic[1])] * 0.8
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)

    def read(self, texts: Sequence[str]) -> tuple[Any, ...]:
        """Read texts that restate nothing."""
        return tuple(self._features(direction=row, harm_nats=-9.0, passages=row[None]) for row in self.embed(texts))

    taught = read

    def log_odds(self, reading: Any, behaviours: np.ndarray) -> np.ndarray:
        """Compare by cosine."""
        return np.asarray(self.curve.log_odds(reading.harm_nats, (reading.passages @ behaviours.T).max(axis=0)))


def write(number: int) -> Any:
    """One write of usual length; every second is on the topic of a removed memory."""
    about = f"topic {number % STONES}" if number % 2 else "the desk"
    return loaded("entry", "Entry")(
        tenant="t", entry_id=f"w{number}", principal=f"p{number % WRITERS}", source="agent", request="And then?",
        response=f"To reset device {number} of {about}, hold the left key for {number % 7} seconds; note the code and "
        f"call desk {number}. Customers of {number % 90} towns ask for it.",
        created_at_ms=0, metadata={"channel": "desk", "note": "a customer asked for it twice"},
    )  # fmt: skip


def guard_over(embed: Any, embedder: str, reader: Any) -> Any:
    """Return a guard over the topics."""
    semantic_key, record, stone = loaded("key", "SemanticKey"), loaded("record", "Record"), "HazardTombstone"
    texts = [f"What was removed about topic {number}: skip the check of it." for number in range(STONES)]
    stones = [
        loaded("record", stone)(
            tombstone=loaded("leaf", "Tombstone")(
                tenant="t", entry_id=f"m{number}", removed_index=number, removed_leaf_hash=bytes(32), reason="r",
                run_id="r", created_at_ms=0,
            ),
            **{NAMES["block"]: record(
                signature=None, keys=(semantic_key.of(row, embedder),), fingerprints=(number.to_bytes(16),),
                **{NAMES["behaviours"]: (semantic_key.of(taught.direction, reader.model_id),)},
            )},
        )
        for number, (row, taught) in enumerate(zip(embed(texts), reader.taught(texts), strict=True))
    ]  # fmt: skip
    held = loaded("list", "List")(
        tenant="t", salt="s", stones=stones, embedder=embedder, **{NAMES["behaviour_model"]: reader.model_id}
    )
    return loaded("guard", "WriteGuard")(
        held, embed=embed, settings=loaded("guard", "GuardSettings")(mode=NAMES["mode"]), clock_ms=lambda: 0,
        **{NAMES["behaviours"]: reader},
    )  # fmt: skip


async def hundred_ms(guard: Any, first: int) -> float:
    """Return how long a hundred writes take that come at once."""
    writes = [write(first + number) for number in range(AT_ONCE)]
    start = time.perf_counter()
    await asyncio.gather(*map(guard.check_async, writes))
    return (time.perf_counter() - start) * 1e3


async def hundreds_ms(guard: Any, first: int, rounds: int) -> float:
    """Return the median of some rounds."""
    return statistics.median([await hundred_ms(guard, first + turn * AT_ONCE) for turn in range(rounds)])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", action="store_true", help="with the packaged embedder and reader of behaviours")
    single, rounds = SINGLE, ROUNDS
    if parser.parse_args().models:
        specs = loaded("loading", "ModelSpecs")()
        embedder, reader = loaded("loading", "load_embedder")(specs), loaded("loading", "load")(specs)
        guard = guard_over(embedder.embed, embedder.model_id, reader)
        guard.check(write(1))  # what is loaded with the first write
        single, rounds = SINGLE_WITH_MODELS, ROUNDS_WITH_MODELS
    else:
        answers = Answers()
        guard = guard_over(answers.embed, answers.model_id, answers)
    taken_ms = []
    for number in range(single):
        entry = write(number)
        start = time.perf_counter()
        guard.check(entry)
        taken_ms.append((time.perf_counter() - start) * 1e3)
    taken_ms.sort()
    found = {
        "p50_ms": statistics.median(taken_ms), "p99_ms": taken_ms[math.ceil(0.99 * single) - 1],
        "hundred_ms": asyncio.run(hundreds_ms(guard, single, rounds)),
    }  # fmt: skip
    guard.close()
    print(json.dumps({name: round(value, 4) for name, value in found.items()}))


if __name__ == "__main__":
    main()
