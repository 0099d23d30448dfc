"""The guard of an agent's write path: refuses a memory that brings a removed one back.

Importing it loads no Ray, torch or vllm; the models come in as an `Embed` callable, a `BehaviourReader` and a
`HazardExtractor`. Life of a check (`GuardSettings.mode` at its default):

1. another tenant's entry is an error; the id of a removed entry, or its words in another dress, is refused at once;
2. the write's forms (`memory_audit.guard.text.forms`), if they are not too many, are embedded and compared with
   every tombstone's key in one product;
3. the behaviours of those forms that are not far from all keys are read, and it is refused by a tombstone whose
   behaviour it restates (`memory_audit.guard.blocks.behaviour`) and whose key is not far; in mode `behaviour` less is
   enough where that key is near;
4. in mode `behaviour+hazards`, forms far from all keys are let through, and only those that are near one, or in a
   language that the embedder does not know, are shown to the model, nearest first: the write is refused by a near
   tombstone whose signature matches (eq. 3). The model is asked only about writes, and for tombstones, that the
   behaviour leaves in doubt, and there weighs the behaviour and the likeliest hazard together instead, where the models
   were calibrated for that. For a tombstone without a behaviour, or without a usable signature, a very similar key is
   enough;
5. the same for the write joined to this writer's recent writes that were near a key: behaviours come in instalments.
   What is long only together is not refused for that: of the oldest less is read, what is nearest to a key, until a
   model can read all, and of the write itself where it leaves no room;
6. what the behaviour leaves in doubt is refused where other writes of its writer were, not long ago, or others for the
   same removal (`memory_audit.guard.decide.attempts`): who may try often finds what no reader knows. Writes that name
   no principal are not one writer's.

A failure of a model or of the embedder is decided by `GuardSettings.on_failure`, named in the decision and never kept
in the cache. Every decision is told to `on_decision` (`memory_audit.guard.decision_log`).

State: the block list is immutable and replaced whole, so a check sees the old set or the new one, never none. A guard
may be used by many threads. Recent writes and refusals are kept in memory only: a restart forgets them.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import ModelError, UsageError
from memory_audit.guard.decide.attempts import Attempts
from memory_audit.guard.decide.guard_decision import FAILURES, PARAPHRASED, GuardDecision
from memory_audit.guard.decide.judge import doubt_nats, failure, most_read, scopes
from memory_audit.guard.decide.model_thread import ModelThread
from memory_audit.guard.decide.recent_writes import UNNAMED, Piece, RecentWrites
from memory_audit.guard.decide.rounds import HazardExtractor, Rounds, error_line
from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.guard.text.chunks import pieces
from memory_audit.guard.text.forms import fingerprint, is_foreign, text_forms, unmarked, wholes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from memory_audit.entry import Entry
    from memory_audit.guard.blocks.behaviour import BehaviourReader
    from memory_audit.guard.blocks.block_list import BlockList
    from memory_audit.guard.blocks.hazard import Taxonomy
    from memory_audit.guard.blocks.tombstone import Embed
    from memory_audit.guard.decide.settings import GuardMode

__all__ = ["GuardSettings", "HazardExtractor", "WriteGuard"]

UNIT = 0.01
"""How far the norm of a unit vector may lie from 1: half precision is enough."""

MAX_TEXT_FORMS = 512
"""Of one write that are embedded. A response has 131 at most, and thrice that where it is read in three forms, but for
letters that stand for whole phrases (U+FDFA): a write of those would be minutes of work."""

MOST_REMEMBERED = 8
"""Forms of one write that are kept for those to come, of a kilobyte each."""

MOST_DOUBTED = 8
"""Tombstones that are kept of those whose behaviour a write may restate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """What a write says by itself."""

    decision: GuardDecision
    joins: bool
    """It may be one of several instalments."""

    nearest: tuple[int, ...] = ()
    """Which forms are kept of it, where it joins: nearest to a key first. Not the texts: many findings are kept."""

    doubted: tuple[int, ...] = ()
    """Tombstones whose behaviours it may restate, likeliest first."""


class _State:
    """A block list and what was decided under it; replaced whole."""

    __slots__ = ("alone", "block_list", "expires_ms", "ids_only", "joined", "scopes", "words_only")

    def __init__(self, block_list: BlockList, mode: GuardMode, rounds: Rounds) -> None:
        self.block_list = block_list
        self.scopes = scopes(block_list, mode, rounds.taxonomies, fused=rounds.fused)
        silent = block_list.keys.keyless & np.all([scope.not_comparable for scope in self.scopes], axis=0)
        self.words_only = int(silent.sum())
        wordless = [not stone.block.fingerprints for stone in block_list.stones]
        self.ids_only = int((silent & np.asarray(wordless, np.bool_)).sum())
        self.expires_ms = block_list.next_expiry_ms
        self.alone: OrderedDict[bytes, _Finding] = OrderedDict()
        self.joined: OrderedDict[bytes, GuardDecision] = OrderedDict()


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
        self._embed = embed
        self._clock_ms, self._on_decision = clock_ms, on_decision
        self._owns_thread = thread is None
        self._thread = ModelThread() if thread is None else thread
        self._rounds = Rounds(
            self.settings, behaviours=behaviours, extractor=extractor, taxonomies=taxonomies, thread=self._thread
        )
        self._lock = threading.Lock()
        self._state = _State(block_list, mode, self._rounds)
        self._recent = RecentWrites(self.settings.recent_writes, self.settings.recent_s)
        self._doubt_nats = doubt_nats(behaviours.curve, self.settings)
        self._attempts = Attempts(self.settings)
        self._closed = False
        self._counters = dict.fromkeys(("checked", "refused", "computed", "failed"), 0)

    @property
    def block_list(self) -> BlockList:
        """The set in force."""
        return self._state.block_list

    @property
    def words_only(self) -> int:
        """Tombstones that keep out their own words and no paraphrase: other models made them, or none read them.

        Nothing of theirs can be compared in this mode. Doing the removal again, with today's models, makes them whole.
        """
        return self._state.words_only

    @property
    def ids_only(self) -> int:
        """Of these, tombstones that keep out their id alone: too short for a fingerprint, also as it was once made."""
        return self._state.ids_only

    @property
    def counters(self) -> dict[str, int]:
        """Writes checked, refused, computed (not from the cache), failed; and texts that the model was asked about."""
        with self._lock:
            return {**self._counters, "asked": self._rounds.asked}

    def replace(self, block_list: BlockList) -> None:
        """Put another set of tombstones in force, whole: checks under way end with the old one.

        Raises:
            UsageError: it is of another tenant or embedder.
        """
        if block_list.tenant != self.block_list.tenant:
            raise UsageError(f"the guard is of tenant {self.block_list.tenant!r:.80}, not of {block_list.tenant!r:.80}")
        held = self.block_list
        if (block_list.embedder, block_list.behaviour_model) != (held.embedder, held.behaviour_model):
            raise UsageError(
                f"the guard's models are {held.embedder:.80} and {held.behaviour_model or 'none':.300}, not "
                f"{block_list.embedder:.80} and {block_list.behaviour_model or 'none':.300}"
            )
        state = _State(block_list, self.settings.mode, self._rounds)
        with self._lock:
            self._state = state

    def check(self, entry: Entry, *, vectors: NDArray[np.float32] | None = None) -> GuardDecision:
        """Judge one write.

        Args:
            entry: The memory to be written.
            vectors: Unit vectors of `text_forms(entry)`, where the caller has them already.

        Raises:
            UsageError: the entry is of another tenant, or the guard is closed.
        """
        state = self._current(entry)
        removed = self._removed_id(state, entry)
        if removed is not None:
            return removed
        key = _content_key(entry)
        with self._lock:
            known = state.alone.get(key)
        if known is None:
            known = self._judge(state, [entry], vectors)[0]
        return self._finish(state, entry, key, known)

    def check_many(self, entries: Sequence[Entry]) -> tuple[GuardDecision, ...]:
        """Judge writes in order, embedding and asking for all of them at once. Raises like `check`."""
        if not entries:
            return ()
        states = {id(state): state for state in map(self._current, entries)}
        state = states.popitem()[1]
        keys = [_content_key(entry) for entry in entries]
        with self._lock:
            known = {key: state.alone[key] for key in keys if key in state.alone}
        fresh = {key: entry for key, entry in zip(keys, entries, strict=True) if key not in known}
        if fresh:
            known |= zip(fresh, self._judge(state, list(fresh.values())), strict=True)
        decisions = []
        for key, entry in zip(keys, entries, strict=True):
            removed = self._removed_id(state, entry)
            decisions.append(removed or self._finish(state, entry, key, known[key]))
        return tuple(decisions)

    async def check_async(self, entry: Entry) -> GuardDecision:
        """Judge one write without blocking the caller's event loop. Raises like `check`."""
        state, key = self._current(entry), _content_key(entry)
        with self._lock:
            known = state.alone.get(key)
        if known is not None and not known.joins:
            return self.check(entry)  # nothing to wait for
        return await asyncio.to_thread(self.check, entry)

    def close(self) -> None:
        """End the thread that talks to the model. Idempotent."""
        self._closed = True
        if self._owns_thread:
            self._thread.close()

    def _current(self, entry: Entry) -> _State:
        if self._closed:
            raise UsageError("the guard is closed")
        state = self._state
        if entry.tenant != state.block_list.tenant:
            raise UsageError(
                f"the guard is of tenant {state.block_list.tenant!r:.80}, entry {entry.entry_id!r:.80} is of "
                f"{entry.tenant!r:.80}"
            )
        if state.expires_ms is not None and self._clock_ms() >= state.expires_ms:
            fresh = _State(state.block_list.without_expired(self._clock_ms()), self.settings.mode, self._rounds)
            with self._lock:
                if self._state is state:
                    self._state = fresh
                state = self._state
        return state

    def _removed_id(self, state: _State, entry: Entry) -> GuardDecision | None:
        number = state.block_list.removed_id(entry.entry_id)
        if number is None:
            return None
        decision = GuardDecision(allowed=False, reason="removed id", tombstone=state.block_list.stones[number])
        self._tell(entry, decision)
        return decision

    def _finish(self, state: _State, entry: Entry, key: bytes, found: _Finding) -> GuardDecision:
        """Look at the write together with what was refused before and with the writer's recent ones, and count it."""
        decision, writer = found.decision, entry.principal
        if decision.allowed:
            doubted = [state.block_list.stones[number] for number in found.doubted]
            refusal = self._attempts.refusal(
                writer,
                decision,
                joins=found.joins,
                doubted=doubted,
                foreign=lambda: any(map(is_foreign, text_forms(entry))),
                now_ms=self._clock_ms(),
            )
            if refusal is not None:
                decision = refusal
            elif found.joins and writer != UNNAMED and self.settings.recent_writes:
                decision = self._in_stream(state, entry, key, found)
        if decision.reason in PARAPHRASED:
            self._attempts.add(writer, key, decision, self._clock_ms())
        self._tell(entry, decision)
        return decision

    def _in_stream(self, state: _State, entry: Entry, key: bytes, found: _Finding) -> GuardDecision:
        """Judge together with the writer's recent writes, again where one came in meanwhile, and join them."""
        decision, now_ms = found.decision, self._clock_ms()
        texts = text_forms(entry)
        kept = tuple((place, texts[place]) for place in found.nearest)
        piece = Piece(key=key, entry_id=entry.entry_id, text_forms=kept, at_ms=now_ms)
        judged: tuple[Piece, ...] = ()
        while decision.allowed:
            with self._lock:
                earlier = self._recent.before(entry.principal, key, now_ms)
                if earlier == judged:
                    self._recent.add(entry.principal, piece)
                    break
            decision, judged = self._joined(state, found.decision, (*earlier, piece)), earlier
        return decision

    def _joined(self, state: _State, alone: GuardDecision, writes: tuple[Piece, ...]) -> GuardDecision:
        """Judge the last of these writes together with those before it: as much as the round takes that reads most.

        Where another round had to leave texts out, as much as that one takes.
        """
        for most in sorted({most_read(scope, self.settings) for scope in state.scopes}, reverse=True):
            *earlier, new = _fitting(writes, most)
            if not earlier:
                break
            decision = self._together(state, _joined_pieces((*earlier, new)))
            if decision.reason == "too long":
                continue
            if decision.allowed and decision.reason not in FAILURES:
                break
            return replace(decision, with_earlier=tuple(piece.entry_id for piece in earlier))
        return alone

    def _together(self, state: _State, texts: tuple[str, ...]) -> GuardDecision:
        place = _digest(texts)
        with self._lock:
            decision = state.joined.get(place)
        if decision is None:
            decision = self._judge_texts(state, [texts], joined=True)[0].decision
            if decision.reason not in FAILURES:
                self._keep(state.joined, place, decision)
        return decision

    def _judge(
        self, state: _State, entries: Sequence[Entry], vectors: NDArray[np.float32] | None = None
    ) -> list[_Finding]:
        """Judge writes by themselves."""
        with self._lock:
            self._counters["computed"] += len(entries)
        found: dict[int, _Finding] = {}
        texts: list[tuple[str, ...]] = []
        for number, entry in enumerate(entries):
            texts.append(text_forms(entry))
            whole = wholes(entry)
            words = dict.fromkeys((*whole, *map(unmarked, whole), *texts[-1]))  # most often one text
            prints = (fingerprint(text, state.block_list.salt) for text in words)
            same = state.block_list.by_fingerprint(item for item in prints if item is not None)
            if same is not None:
                decision = GuardDecision(allowed=False, reason="same words", tombstone=state.block_list.stones[same])
                found[number] = _Finding(decision=decision, joins=False)
            elif len(texts[-1]) > MAX_TEXT_FORMS and len(state.block_list):
                why = f"{len(texts[-1])} texts were not compared: at most {MAX_TEXT_FORMS} are"
                found[number] = _Finding(decision=failure("too long", why, self.settings), joins=False)
        waiting = [number for number in range(len(entries)) if number not in found]
        if waiting:
            judged = self._judge_texts(state, [texts[number] for number in waiting], vectors)
            found |= zip(waiting, judged, strict=True)
        for number, entry in enumerate(entries):
            if found[number].decision.reason not in FAILURES:
                self._keep(state.alone, _content_key(entry), found[number])
        return [found[number] for number in range(len(entries))]

    def _judge_texts(
        self,
        state: _State,
        groups: Sequence[tuple[str, ...]],
        vectors: NDArray[np.float32] | None = None,
        *,
        joined: bool = False,
    ) -> list[_Finding]:
        """Judge groups of texts, each a write: one call of the embedder, one of the model for each taxonomy."""
        settings, block_list = self.settings, state.block_list
        flat = [text for group in groups for text in group]
        known = np.zeros((len(flat), 0), np.float32)
        if flat and len(block_list):
            try:
                known = _checked(
                    self._embed(flat) if vectors is None else vectors, len(flat), block_list.keys.dimensions
                )
            except Exception as error:  # noqa: BLE001 - whatever an embedder raises, the policy decides, and says so
                failed = failure("embedder failed", error_line(error), settings)
                return [_Finding(decision=failed, joins=True, nearest=_nearest(block_list, texts)) for texts in groups]
        spans = np.cumsum([0, *map(len, groups)]).tolist()
        mine = [known[start:end] for start, end in itertools.pairwise(spans)]
        judged = self._rounds.judge(block_list, state.scopes, groups, mine, joined=joined)
        incomparable = bool(block_list.keys.keyless.any())  # near or not, nobody knows
        findings = []
        for texts, vectors_of, found in zip(groups, mine, judged, strict=True):
            near = incomparable or found.nearest is None or found.nearest >= settings.join_above
            joins = near and found.decision.reason != "no tombstones"
            kept = _nearest(block_list, texts, vectors_of) if joins and not joined else ()
            doubted = () if joined or found.odds is None else _likeliest(found.odds, self._doubt_nats)
            findings.append(_Finding(decision=found.decision, joins=joins, nearest=kept, doubted=doubted))
        return findings

    def _keep(self, cache: OrderedDict[Any, Any], key: object, value: object) -> None:
        with self._lock:
            cache[key] = value
            if len(cache) > self.settings.cached_decisions:
                cache.popitem(last=False)

    def _tell(self, entry: Entry, decision: GuardDecision) -> None:
        with self._lock:
            counters = self._counters
            counters["checked"] += 1
            counters["refused"] += not decision.allowed
            counters["failed"] += decision.reason in FAILURES
        if self._on_decision is not None:
            self._on_decision(entry, decision)


def _checked(vectors: NDArray[np.float32], texts: int, dimensions: int) -> NDArray[np.float32]:
    """Return vectors that can be compared; with keys of 0 dimensions there is nothing to compare."""
    with np.errstate(over="ignore"):
        found = np.asarray(vectors, np.float32)
    if found.ndim != 2 or len(found) != texts or not np.isfinite(found).all():  # noqa: PLR2004 - texts, dimensions
        raise ModelError(f"vectors of shape {found.shape} were given for {texts} texts, or numbers that are not finite")
    if dimensions and found.shape[1] != dimensions:
        raise ModelError(f"vectors of {found.shape[1]} dimensions were given, the keys have {dimensions}")
    if (np.abs(np.linalg.norm(found, axis=1) - 1.0) > UNIT).any():
        raise ModelError("vectors were given that are not unit vectors")
    return found


def _nearest(
    block_list: BlockList, texts: Sequence[str], vectors: NDArray[np.float32] | None = None
) -> tuple[int, ...]:
    """Return which of a write's forms are kept, nearest to a key first; without keys from both ends, in turn."""
    numbers = list(range(len(texts)))
    if vectors is None:
        numbers.sort(key=lambda number: min(number, len(texts) - 1 - number))
    elif len(texts) > 1:
        nearest = block_list.keys.similarity(vectors).max(axis=1)
        numbers.sort(key=lambda number: -nearest[number])
    return tuple(numbers[:MOST_REMEMBERED])


def _likeliest(odds: NDArray[np.float32], least: float) -> tuple[int, ...]:
    """Return the tombstones of at least so many nats, likeliest first; not those whose behaviours were not compared."""
    numbers = np.flatnonzero(np.isfinite(odds) & (odds >= least))
    return tuple(numbers[np.argsort(-odds[numbers], kind="stable")][:MOST_DOUBTED].tolist())


def _joined_pieces(writes: Sequence[Piece]) -> tuple[str, ...]:
    return pieces(" ".join(write.text for write in writes))


def _fitting(writes: tuple[Piece, ...], most: int) -> tuple[Piece, ...]:
    """Return of writes, of which the last is new, what makes at most so many texts; the new one alone if nothing does.

    As many of the latest as fit are whole. With those before them, and with the new one where not even one before it
    fits, that one shortened to half of the texts, come the forms of each that are nearest to a key, as many as fit.
    """
    whole = next(first for first in range(len(writes)) if first == len(writes) - 1 or _fit(writes[first:], most))
    older, kept = writes[:whole], writes[whole:]
    if not older:
        return kept
    if len(kept) == 1:
        cuts = (kept[0].nearest(count) for count in range(MOST_REMEMBERED, 0, -1))
        kept = (next((cut for cut in cuts if _fit((cut,), most // 2)), kept[0].nearest(1)),)
    for first in range(len(older)):
        for count in range(1 if first else MOST_REMEMBERED, 0, -1):
            cut = (*(piece.nearest(count) for piece in older[first:]), *kept)
            if _fit(cut, most):
                return cut
    return kept


def _fit(writes: Sequence[Piece], most: int) -> bool:
    return len(_joined_pieces(writes)) <= most


def _content_key(entry: Entry) -> bytes:
    """Digest of what is read of an entry."""
    return _digest((entry.response, *itertools.chain.from_iterable(entry.metadata.items())))


def _digest(texts: Iterable[str]) -> bytes:
    """Digest texts, each with its length."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode(errors="surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()
