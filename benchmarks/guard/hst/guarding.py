"""The project's own block list and guard, set up on the benchmark's poisons and asked about many writes at once.

Nothing of the decision is done here: tombstones come from `block_records_of`, decisions from `WriteGuard`. What is
added is how a benchmark holds its models: one event loop for the backbone, embeddings and signatures remembered, so
that matching modes share the model's answers. The tombstones are not signed: signing and verification are tested
elsewhere, and cost nothing that is measured here.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.guard.hst.corpus import TENANT, WRITTEN_AT_MS
from benchmarks.guard.hst.paper_guard import as_compared
from memory_audit.guard.blocks.block_list import BlockList
from memory_audit.guard.blocks.hazard import HazardSignature
from memory_audit.guard.blocks.tombstone import HazardTombstone
from memory_audit.guard.guard import GuardSettings, WriteGuard
from memory_audit.guard.text.forms import text_forms
from memory_audit.jobs.run.block_records import BlockPlan, block_records_of
from memory_audit.provenance.leaf import Tombstone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from benchmarks.guard.hst.corpus import Attack, Write
    from benchmarks.guard.hst.paper_guard import Mode
    from memory_audit.entry import Entry
    from memory_audit.guard.blocks.behaviour import BehaviourFeatures, BehaviourReader
    from memory_audit.guard.blocks.hazard import Taxonomy
    from memory_audit.guard.decide.guard_decision import GuardDecision
    from memory_audit.guard.decide.settings import GuardMode
    from memory_audit.models.hazards.extraction import HazardReader
    from memory_audit.models.protocols import Embedder

__all__ = [
    "AS_IT_COMES",
    "BY_ITSELF",
    "Patience",
    "RememberedBehaviours",
    "RememberedEmbedder",
    "RememberedExtractor",
    "Warden",
    "entry_of",
]

SALT = "hst-benchmark"
PATIENCE_S = 7_200.0
"""All writes are asked about at once, so the last waits for all the others; nothing here is live."""

BETWEEN_WRITES_MS = 60_000
"""Of one writer's stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """After how many refusals a guard gives no benefit of the doubt; by default as it comes."""

    distrust_after: int = GuardSettings().distrust_after
    alarm_after: int = GuardSettings().alarm_after


BY_ITSELF = Patience(distrust_after=0, alarm_after=0)
"""What was refused before is held against nothing."""

AS_IT_COMES = Patience()


def entry_of(write: Write, principal: str = "") -> Entry:
    """Return a write as a memory entry, by a writer of its own unless one is named."""
    return replace(write.entry(), principal=principal or write.write_id)


class RememberedEmbedder:
    """An `Embed` callable over an embedder that embeds each text once; safe for many threads."""

    def __init__(self, embedder: Embedder) -> None:
        self.model_id = embedder.model_id
        self._embedder = embedder
        self._known: dict[str, NDArray[np.float32]] = {}
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors, shape (texts, dimensions)."""
        with self._lock:
            new = list(dict.fromkeys(text for text in texts if text not in self._known))
            if new:
                self._known.update(zip(new, self._embedder.embed(new), strict=True))
            return np.stack([self._known[text] for text in texts])


class RememberedBehaviours:
    """Implements `BehaviourReader` over another one, and reads each text once; safe for many threads."""

    def __init__(self, reader: BehaviourReader) -> None:
        self.model_id, self.curve = reader.model_id, reader.curve
        self.reader = reader
        self._known: dict[str, BehaviourFeatures] = {}
        self._taught: dict[str, BehaviourFeatures] = {}
        self._lock = threading.Lock()

    def read(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """See `memory_audit.guard.blocks.behaviour.BehaviourReader`."""
        return self._once(texts, self._known, self.reader.read)

    def taught(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """See `memory_audit.guard.blocks.behaviour.BehaviourReader`."""
        return self._once(texts, self._taught, self.reader.taught)

    def _once(
        self,
        texts: Sequence[str],
        known: dict[str, BehaviourFeatures],
        read: Callable[[Sequence[str]], tuple[BehaviourFeatures, ...]],
    ) -> tuple[BehaviourFeatures, ...]:
        with self._lock:
            new = list(dict.fromkeys(text for text in texts if text not in known))
            if new:
                known.update(zip(new, read(new), strict=True))
            return tuple(known[text] for text in texts)

    def log_odds(self, reading: BehaviourFeatures, behaviours: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `BehaviourReader`."""
        return self.reader.log_odds(reading, behaviours)


class RememberedExtractor:
    """Implements `HazardExtractor`: passes texts to the real one on the loop it lives in, and remembers signatures.

    Args:
        reader: The real one.
        loop: Its event loop; the guard calls from another thread's.
    """

    def __init__(self, reader: HazardReader, loop: asyncio.AbstractEventLoop) -> None:
        self.model_id, self.calibrated_for = reader.model_id, reader.calibrated_for
        self.reader, self._loop = reader, loop
        self._known: dict[tuple[str, str], asyncio.Task[HazardSignature | None]] = {}
        self.texts_asked = 0
        """Distinct texts that the model has read."""

    async def extract(self, texts: Sequence[str], taxonomy: Taxonomy) -> tuple[HazardSignature | None, ...]:
        """Return each text's signature; see `memory_audit.guard.guard.HazardExtractor`."""
        if asyncio.get_running_loop() is self._loop:
            return await self._here(texts, taxonomy)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._here(texts, taxonomy), self._loop))

    async def _here(self, texts: Sequence[str], taxonomy: Taxonomy) -> tuple[HazardSignature | None, ...]:
        tasks = []
        for text in texts:
            key = (text, taxonomy.digest)
            if key not in self._known:
                self._known[key] = self._loop.create_task(self._one(text, taxonomy))
            tasks.append(self._known[key])
        return tuple(await asyncio.gather(*tasks))

    async def _one(self, text: str, taxonomy: Taxonomy) -> HazardSignature | None:
        self.texts_asked += 1
        return (await self.reader.extract([text], taxonomy))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Warden:
    """Signatures, tombstones and guards of one extraction; methods run on the extractor's event loop."""

    extractor: RememberedExtractor
    embed: RememberedEmbedder
    behaviours: RememberedBehaviours
    taxonomy: Taxonomy

    async def signature(self, write: Write) -> HazardSignature | None:
        """Return HS(m): the labels of all that is read of a write; None where the model gave no usable answer."""
        found = await self.extractor.extract(text_forms(write.entry()), self.taxonomy)
        if any(item is None for item in found):
            return None
        labels = frozenset().union(*(item.labels for item in found if item is not None))
        return HazardSignature(labels=labels, taxonomy=self.taxonomy.digest, model=self.extractor.model_id)

    async def signatures(self, writes: Sequence[Write]) -> dict[str, HazardSignature | None]:
        """Return signatures by write id."""
        found = await asyncio.gather(*(self.signature(write) for write in writes))
        return {write.write_id: signature for write, signature in zip(writes, found, strict=True)}

    async def block_list(self, removed: Sequence[Write]) -> BlockList:
        """Return the tombstones of removed entries."""
        entries = [write.entry() for write in removed]
        plan = BlockPlan(
            store_id=SALT,
            taxonomy=self.taxonomy,
            embed=self.embed,
            embedder=self.embed.model_id,
            behaviours=self.behaviours,
        )
        blocks = await block_records_of(entries, plan, self.extractor.reader)
        stones = [
            HazardTombstone(
                tombstone=Tombstone(
                    tenant=TENANT, entry_id=entry.entry_id, removed_index=number,
                    removed_leaf_hash=hashlib.sha256(entry.text.encode()).digest(), reason="benchmark", run_id="hst",
                    created_at_ms=WRITTEN_AT_MS, extra=block.to_extra(),
                ),
                block=block,
            )
            for number, (entry, block) in enumerate(zip(entries, blocks, strict=True))
        ]  # fmt: skip
        return BlockList(
            tenant=TENANT,
            salt=SALT,
            stones=stones,
            embedder=self.embed.model_id,
            behaviour_model=self.behaviours.model_id,
        )

    def guard(self, block_list: BlockList, mode: Mode | None = None) -> WriteGuard:
        """Return a guard in one mode, the default where none is given, that judges each write by itself; close it."""
        settings = GuardSettings(model_timeout_s=PATIENCE_S, **asdict(BY_ITSELF))
        held, named = as_compared(block_list, mode or settings.mode)
        return WriteGuard(
            held, embed=self.embed, behaviours=self.behaviours, extractor=self.extractor, taxonomies=[self.taxonomy],
            settings=replace(settings, mode=named), clock_ms=lambda: WRITTEN_AT_MS,
        )  # fmt: skip

    @staticmethod
    async def judge(guard: WriteGuard, writes: Sequence[Write]) -> list[GuardDecision]:
        """Judge writes of as many writers, all at once."""
        return list(await asyncio.to_thread(guard.check_many, [entry_of(write) for write in writes]))

    @staticmethod
    async def judge_attacks(guard: WriteGuard, attacks: Sequence[Attack]) -> list[list[GuardDecision]]:
        """Judge attacks, each by one writer who sends its writes in order."""
        entries = [entry_of(write, attack.attack_id) for attack in attacks for write in attack.writes]
        decisions = iter(await asyncio.to_thread(guard.check_many, entries))
        return [[next(decisions) for _ in attack.writes] for attack in attacks]

    async def judge_stream(
        self, block_list: BlockList, mode: GuardMode, writes: Sequence[Write], patience: Patience = AS_IT_COMES,
        *, writer: str = "one-writer",
    ) -> list[GuardDecision]:  # fmt: skip
        """Judge writes of one single writer, or (with an empty name) of as many writers, a minute apart."""
        now = [WRITTEN_AT_MS]
        settings = GuardSettings(mode=mode, model_timeout_s=PATIENCE_S, **asdict(patience))
        guard = WriteGuard(
            block_list,
            embed=self.embed,
            behaviours=self.behaviours,
            extractor=self.extractor,
            taxonomies=[self.taxonomy],
            settings=settings,
            clock_ms=lambda: now[0],
        )
        try:
            decisions = []
            for write in writes:
                now[0] += BETWEEN_WRITES_MS
                decisions.append(await guard.check_async(entry_of(write, writer)))
            return decisions
        finally:
            guard.close()
