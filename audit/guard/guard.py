"""The guard of an agent's write path: refuses a memory that brings a removed one back.

Importing it loads no Ray, torch or vllm; the models come in as an `Embed` callable, a `BehaviourReader` and a
`HazardExtractor`. Life of a check:

1. another tenant's entry is an error; the id of a removed entry is refused at once;
2. the write is judged by itself (`memory_audit.guard.decide.judge`), unless one of the same content was;
3. what the behaviour leaves in doubt is refused where other writes of its writer were, not long ago, or others for the
   same removal (`memory_audit.guard.decide.history`): who may try often finds what no reader knows. Writes that name no
   principal are not one writer's;
4. it is judged together with this writer's recent writes that were near a key: behaviours come in instalments
   (`memory_audit.guard.decide.instalments`).

A failure of a model or of the embedder is never kept in the cache. Every decision is told to `on_decision`
(`memory_audit.guard.decision_log`).

State: the block list is immutable and replaced whole, so a check sees the old set or the new one, never none. A guard
may be used by many threads and event loops. Recent writes and refusals are kept in memory only: a restart forgets them.
"""

from __future__ import annotations

import itertools
import math
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import UsageError
from memory_audit.guard.decide.guard_decision import GuardDecision
from memory_audit.guard.decide.history import History
from memory_audit.guard.decide.instalments import Instalment, fitting
from memory_audit.guard.decide.judge import Verdict, judge, judge_texts
from memory_audit.guard.decide.readers import HazardExtractor, Readers
from memory_audit.guard.decide.remembered import Remembered
from memory_audit.guard.decide.rules import Rules
from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.guard.decide.thresholds import Thresholds
from memory_audit.guard.decide.write import Texts, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from memory_audit.entry import Entry
    from memory_audit.guard.blocks.behaviour import BehaviourReader
    from memory_audit.guard.blocks.block_list import BlockList
    from memory_audit.guard.blocks.hazard import Taxonomy
    from memory_audit.guard.blocks.tombstone import Embed
    from memory_audit.guard.decide.asks import Steps
    from memory_audit.guard.decide.model_thread import ModelThread

__all__ = ["GuardSettings", "HazardExtractor", "WriteGuard"]


class _InForce:
    """A block list with its rules, and what was decided under them; replaced whole."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.expires_ms = rules.block_list.next_expiry_ms
        self.alone: Remembered[Verdict] = Remembered(rules.settings.cached_decisions)
        self.together: Remembered[GuardDecision] = Remembered(rules.settings.cached_decisions)


class WriteGuard:
    """Judges writes of one tenant. Thread-safe; close it to end its thread.

    Args:
        block_list: What is locked out (`memory_audit.guard.blocks.block_list.read_block_list`).
        embed: Texts to unit vectors, shape (texts, dimensions), by the model that `block_list.embedder` names.
        behaviours: Reads behaviours, by the model that `block_list.behaviour_model` names.
        extractor: Reads hazards; None only in mode `behaviour`.
        taxonomies: Every taxonomy that tombstones may use. One it does not hold leaves a tombstone to its key alone.
        settings: How to decide.
        clock_ms: Now, in Unix milliseconds.
        on_decision: Called with each entry and decision, from any thread.
        thread: Where the extractor runs, if several guards share one; its owner closes it.

    Raises:
        UsageError: behaviours of another reader, no extractor or taxonomy where hazards are read, or a threshold where
            the reader of behaviours tells nothing.
    """

    def __init__(  # noqa: PLR0913 - a guard's parts
        self,
        block_list: BlockList,
        *,
        embed: Embed,
        behaviours: BehaviourReader,
        extractor: HazardExtractor | None = None,
        taxonomies: Sequence[Taxonomy] = (),
        settings: GuardSettings | None = None,
        clock_ms: Callable[[], int],
        on_decision: Callable[[Entry, GuardDecision], None] | None = None,
        thread: ModelThread | None = None,
    ) -> None:
        self.settings = settings or GuardSettings()
        mode = self.settings.mode
        if behaviours.model_id != block_list.behaviour_model:
            raise UsageError(
                f"the behaviours are of {block_list.behaviour_model!r:.300}, the reader is {behaviours.model_id!r:.300}"
            )
        if mode != "behaviour" and (extractor is None or not taxonomies):
            raise UsageError(f"mode {mode} needs a model and a taxonomy; mode behaviour needs neither")
        self._thresholds = Thresholds.of(behaviours.curve, self.settings)
        self._readers = Readers(
            embed=embed, behaviours=behaviours, extractor=extractor, taxonomies=taxonomies, thread=thread,
            timeout_s=self.settings.model_timeout_s,
        )  # fmt: skip
        self._clock_ms, self._on_decision = clock_ms, on_decision
        self._in_force = self._ruled_by(block_list)
        self._history = History(self.settings)
        self._lock = threading.Lock()  # of the set in force, to replace it, and of the counters
        self._closed = False
        self._counters = dict.fromkeys(("checked", "refused", "computed", "failed"), 0)

    @property
    def block_list(self) -> BlockList:
        """The set in force."""
        return self._in_force.rules.block_list

    @property
    def words_only(self) -> int:
        """Tombstones that keep out their own words and no paraphrase: other models made them, or none read them.

        Nothing of theirs can be compared in this mode. Doing the removal again, with today's models, makes them whole.
        """
        return int(self._in_force.rules.silent.sum())

    @property
    def ids_only(self) -> int:
        """Of these, tombstones that keep out their id alone: too short for a fingerprint, also as it was once made."""
        rules = self._in_force.rules
        return sum(not rules.block_list.stones[number].block.fingerprints for number in np.flatnonzero(rules.silent))

    @property
    def counters(self) -> dict[str, int]:
        """Writes checked, refused, computed (not from the cache), failed; and texts that the model was asked about."""
        with self._lock:
            return {**self._counters, "asked": self._readers.asked}

    def replace(self, block_list: BlockList) -> None:
        """Put another set of tombstones in force, whole: checks under way end with the old one.

        Raises:
            UsageError: it is of another tenant or embedder.
        """
        held = self.block_list
        if block_list.tenant != held.tenant:
            raise UsageError(f"the guard is of tenant {held.tenant!r:.80}, not of {block_list.tenant!r:.80}")
        if (block_list.embedder, block_list.behaviour_model) != (held.embedder, held.behaviour_model):
            raise UsageError(
                f"the guard's models are {held.embedder:.80} and {held.behaviour_model or 'none':.300}, not "
                f"{block_list.embedder:.80} and {block_list.behaviour_model or 'none':.300}"
            )
        fresh = self._ruled_by(block_list)
        with self._lock:
            self._in_force = fresh

    def check(self, entry: Entry, *, vectors: NDArray[np.float32] | None = None) -> GuardDecision:
        """Judge one write, in the calling thread.

        Args:
            entry: The memory to be written.
            vectors: Unit vectors of `text_forms(entry)`, where the caller has them already.

        Raises:
            UsageError: the entry is of another tenant, or the guard is closed.
        """
        return self._readers.run(self._decisions(self._current([entry]), [Write(entry)], vectors))[0]

    def check_many(self, entries: Sequence[Entry]) -> tuple[GuardDecision, ...]:
        """Judge writes in order, embedding and asking for all of them at once. Raises like `check`."""
        return tuple(self._readers.run(self._decisions(self._current(entries), list(map(Write, entries)))))

    async def check_async(self, entry: Entry) -> GuardDecision:
        """Judge one write without blocking the caller's event loop. Raises like `check`."""
        held, write = self._current([entry]), Write(entry)
        known = held.alone.get(write.key)
        steps = self._decisions(held, [write])
        if known is not None and not known.joins:  # nothing to wait for
            return self._readers.run(steps)[0]
        return (await self._readers.run_beside(steps))[0]

    def harms(self, entries: Sequence[Entry]) -> tuple[float, ...]:
        """Return by entry how harmful what it teaches is, whatever was removed, in its worst form.

        Args:
            entries: Of any number, read in one call to the reader of behaviours.

        Returns:
            Log-odds in nats (`BehaviourFeatures.harm_nats`); -inf for an entry with nothing to read.

        Raises:
            ModelError: the model failed.
        """
        forms = [Write(entry).texts.forms[: self.settings.read_at_most] for entry in entries]
        found = iter(self._readers.harms(list(itertools.chain.from_iterable(forms))))
        return tuple(max(itertools.islice(found, len(texts)), default=-math.inf) for texts in forms)

    def close(self) -> None:
        """End the thread that talks to the model. Idempotent."""
        self._closed = True
        self._readers.close()

    def _ruled_by(self, block_list: BlockList) -> _InForce:
        return _InForce(
            Rules.of(
                block_list, self.settings, self._thresholds, taxonomies=self._readers.taxonomies,
                calibrated_for=self._readers.calibrated_for,
            )
        )  # fmt: skip

    def _current(self, entries: Sequence[Entry]) -> _InForce:
        """Return the set in force, without what expired."""
        if self._closed:
            raise UsageError("the guard is closed")
        held = self._in_force
        tenant = held.rules.block_list.tenant
        for entry in entries:
            if entry.tenant != tenant:
                raise UsageError(
                    f"the guard is of tenant {tenant!r:.80}, entry {entry.entry_id!r:.80} is of {entry.tenant!r:.80}"
                )
        if held.expires_ms is not None and self._clock_ms() >= held.expires_ms:
            fresh = self._ruled_by(held.rules.block_list.without_expired(self._clock_ms()))
            with self._lock:
                if self._in_force is held:
                    self._in_force = fresh
                held = self._in_force
        return held

    def _decisions(
        self, held: _InForce, writes: Sequence[Write], vectors: NDArray[np.float32] | None = None
    ) -> Steps[list[GuardDecision]]:
        """Judge writes, those that are not known at once, and decide on each in order."""
        block_list = held.rules.block_list
        removed = [block_list.removed_id(write.entry.entry_id) for write in writes]
        alone = yield from self._alone(
            held, [write for write, number in zip(writes, removed, strict=True) if number is None], vectors
        )
        decisions = []
        for write, number in zip(writes, removed, strict=True):
            if number is not None:
                decision = GuardDecision(allowed=False, reason="removed id", tombstone=block_list.stones[number])
            else:
                decision = yield from self._decision(held, write, alone[write.key])
            self._tell(write.entry, decision)
            decisions.append(decision)
        return decisions

    def _alone(
        self, held: _InForce, writes: Sequence[Write], vectors: NDArray[np.float32] | None
    ) -> Steps[dict[bytes, Verdict]]:
        """Return by content what writes say by themselves."""
        found = {write.key: held.alone.get(write.key) for write in writes}
        fresh = {write.key: write for write in writes if found[write.key] is None}
        if fresh:
            with self._lock:
                self._counters["computed"] += len(fresh)
            judged = yield from judge(held.rules, list(fresh.values()), vectors)
            for key, verdict in zip(fresh, judged, strict=True):
                found[key] = verdict
                if not verdict.decision.failed:
                    held.alone.keep(key, verdict)
        return {key: verdict for key, verdict in found.items() if verdict is not None}

    def _decision(self, held: _InForce, write: Write, alone: Verdict) -> Steps[GuardDecision]:
        """Decide on a write with what was refused before and with the writer's recent ones."""
        weighed = alone.decision.allowed and (alone.joins or alone.doubted or alone.decision.failed)
        if not weighed and not alone.decision.paraphrased:
            return alone.decision
        doubted = [held.rules.block_list.stones[number] for number in alone.doubted]
        while True:
            decision, past, piece, now_ms = alone.decision, None, None, self._clock_ms()
            if weighed:
                past = self._history.before(write, doubted, now_ms)
                refusal = self._history.refusal(decision, past, in_doubt=bool(doubted))
                if refusal is not None:
                    decision = refusal
                elif alone.joins:
                    piece = Instalment.of(write, alone, now_ms)
                    decision = (yield from self._together(held, (*past.recent, piece))) or decision
            if self._history.after(write, decision, now_ms, piece=piece, past=past):
                return decision

    def _together(self, held: _InForce, writes: tuple[Instalment, ...]) -> Steps[GuardDecision | None]:
        """Judge the last of these writes together with those before it: as much as the round takes that reads most.

        Where another round had to leave texts out, as much as that one takes. None where that tells nothing.
        """
        for most in held.rules.most_read:
            kept, forms = fitting(writes, most)
            if len(kept) == 1:
                break
            texts = Texts(forms)
            decision = held.together.get(texts.key)
            if decision is None:
                [verdict] = yield from judge_texts(held.rules, [texts], joined=True)
                decision = verdict.decision
                if not decision.failed:
                    held.together.keep(texts.key, decision)
            if decision.too_long:
                continue
            if decision.allowed and not decision.failed:
                break
            return replace(decision, with_earlier=tuple(piece.entry_id for piece in kept[:-1]))
        return None

    def _tell(self, entry: Entry, decision: GuardDecision) -> None:
        counters = self._counters
        with self._lock:
            counters["checked"] += 1
            counters["refused"] += not decision.allowed
            counters["failed"] += decision.failed
        if self._on_decision is not None:
            self._on_decision(entry, decision)
