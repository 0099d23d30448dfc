"""memory-blackbox's trace (PyPI, 0.1.1), every source with the same trust level. It asks no model.

It ranks the writes behind an action by trust label, then recency, then centrality. Memories are written in the order in
which they were created.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks.attribution.peers.metered import Cost
from benchmarks.attribution.peers.verdicts import Attribution

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.attribution.peers.methods import Trial
    from memory_audit.entry import Entry

__all__ = ["Ledger", "attribute", "installed"]

NAMESPACE = "study"


def installed() -> bool:
    """Tell whether the package is here; its import is left to those who use it."""
    return importlib.util.find_spec("memory_blackbox") is not None


def attribute(trial: Trial) -> Attribution:
    """Trace every event; a root's score is one over its rank. Its own rule: the primary root of each event."""
    scores = {}
    chosen = set()
    with Ledger(trial.memory.entries) as ledger:
        began = time.perf_counter()
        for event in trial.events:
            ids = [entry.entry_id for entry in trial.memory.retrieve(event.query)]
            ranking = ledger.trace(event.query, ids, event.output)
            scores[event.event_id] = {name: 1 / (1 + ranking.index(name)) if name in ranking else 0.0 for name in ids}
            chosen.update(ranking[:1])
        seconds = time.perf_counter() - began
    return Attribution(scores=scores, chosen=frozenset(chosen), cost=Cost(seconds=seconds))


class Ledger:
    """One store written into a ledger; use as a context manager."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = sorted(entries, key=lambda entry: entry.created_at_ms)
        self._names: dict[str, str] = {}
        self._records: dict[str, str] = {}
        self._blackbox: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        from memory_blackbox.capture.engine import MemoryBlackbox  # noqa: PLC0415 - a peer, not a dependency
        from memory_blackbox.crypto import keys  # noqa: PLC0415
        from memory_blackbox.model.records import MemoryType, Source, SourceType, TrustLevel  # noqa: PLC0415

        self._folder = tempfile.TemporaryDirectory()
        self._blackbox = MemoryBlackbox.open(Path(self._folder.name) / "ledger.db", keys.generate())
        for entry in self._entries:
            source = Source(
                source_id=entry.principal, source_type=SourceType.user_input, trust_level=TrustLevel.trusted,
                locator=f"chat://{entry.principal}",
            )  # fmt: skip
            record = self._blackbox.record_write(
                entry.text, source, namespace=NAMESPACE, memory_type=MemoryType.procedural
            )
            self._names[record.record_id] = entry.entry_id
            self._records[entry.entry_id] = record.record_id
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def trace(self, query: str, retrieved: Sequence[str], output: str) -> list[str]:
        """Record one use of the agent and trace it: entry ids, its most likely cause first."""
        from memory_blackbox.query.trace import trace  # noqa: PLC0415

        retrieval = self._blackbox.record_retrieval(
            query, returned=[self._records[entry_id] for entry_id in retrieved], namespace=NAMESPACE
        )
        action = self._blackbox.record_action(
            "answer", output, context_retrievals=[retrieval.retrieval_id], namespace=NAMESPACE
        )
        roots = trace(self._blackbox.ledger, self._blackbox.dag, action.action_id).roots
        return [self._names[root.record_id] for root in roots if root.record_id in self._names]
