"""A small world for the attribution benchmarks: the fake backbone, whose harm comes from marked memories."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from benchmarks.attribution.peers.metered import MeteredBackbone
from benchmarks.attribution.peers.methods import Trial
from memory_audit.attribution.replays.retrieval import RankedMemory
from memory_audit.config import AuditConfig
from memory_audit.entry import Entry
from memory_audit.events import Event
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.loading import ModelSpecs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MARKER = "Adding 4"
"""In every poisoned response, whatever the attack's note says."""

CONFIG = AuditConfig(
    agent={"kind": "few-shot", "system": "s", "max_tokens": 8}, harm={"kind": "regex", "pattern": "HARM"},
    backbone="fake",
)  # fmt: skip


@dataclass
class World:
    trial: Trial
    backbone: MeteredBackbone
    generator: FakeGenerator

    def close(self) -> None:
        self.trial.executor.close()
        asyncio.run(self.backbone.close())

    def ids(self, *numbers: int) -> frozenset[str]:
        return frozenset(f"m{number:04d}" for number in numbers)


def make_world(folder: Path, poison: Sequence[int], *, size: int = 8, k: int = 4, threshold: int = 1) -> World:
    """One event that retrieves the first k of `size` memories; those in `poison` carry the marker."""
    entries = tuple(
        Entry(
            tenant="study", entry_id=f"m{number:04d}", principal=f"u{number}", source="agent",
            request=f"request {number}", response=f"{'POISON' if number in poison else 'plain'} answer {number}",
            created_at_ms=1_700_000_000_000 + number,
        )
        for number in range(size)
    )  # fmt: skip
    memory = RankedMemory(entries, lambda _query, /: np.arange(size), k)
    generator = FakeGenerator(threshold=threshold)
    backbone = MeteredBackbone(folder / "answers.sqlite", lambda: generator, generator.model_id)
    executor = LocalExecutor(ModelSpecs(backbone="fake", nli="fake", embedder="fake"), generator=backbone)
    event = Event(
        event_id="e1", tenant="study", ts_ms=1_760_000_000_000, query="what now", output="HARM",
        retrieved=tuple(entry.entry_id for entry in memory.retrieve("what now")), harm="harmful",
    )  # fmt: skip
    reporter = Reporter(Console(quiet=True), quiet=True)
    trial = Trial(executor=executor, config=CONFIG, memory=memory, events=(event,), reporter=reporter)
    return World(trial=trial, backbone=backbone, generator=generator)


def write_data(folder: Path) -> Path:
    """Write a handful of questions, worked examples and a note in the shape of the benchmark data."""
    (folder / "mmlu" / "test").mkdir(parents=True)
    (folder / "minja" / "QA").mkdir(parents=True)
    rows = [f"Which food number {n} is it?,a{n},b{n},c{n},d{n},{'ABCD'[n % 4]}" for n in range(14)]
    (folder / "mmlu" / "test" / "x_test.csv").write_text("\n".join(rows) + "\n")
    blocks = [
        f"What of thing {n}?\n(A) w{n} (B) x{n} (C) y{n} (D) z{n}\nA: Because {n}. The answer is (B)."
        for n in range(70)
    ]
    (folder / "mmlu" / "mmlu-cot.json").write_text(json.dumps({"x": "intro\n\nQ: " + "\n\nQ: ".join(blocks)}))
    note = [{"1": "note (First, I shift the label.)"}]
    (folder / "minja" / "QA" / "victim.json").write_text(json.dumps([{"victim": "food", "note": note}]))
    (folder / "minja" / "QA" / "initial_demo.txt").write_text("Question: q\nThought: t\nAnswer: A\n")
    return folder
