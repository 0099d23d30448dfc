"""How a write is judged, as a generator that asks: no model, no thread and no lock is in it.

Life of a judgement (`GuardSettings.mode` at its default):

1. the words of a removed entry, in whatever dress, are refused at once;
2. the write's forms (`memory_audit.guard.text.forms`), if they are not too many, are embedded and compared with
   every tombstone's key in one product (`memory_audit.guard.decide.prefilter`);
3. the behaviours of those forms that are not far from all keys are read, and it is refused by a tombstone whose
   behaviour it restates (`memory_audit.guard.blocks.behaviour`) and whose key is not far; in mode `behaviour` less is
   enough where that key is near;
4. in mode `behaviour+hazards`, forms far from all keys are let through, and only those that are near one, or in a
   language that the embedder does not know, are shown to the model, nearest first: the write is refused by a near
   tombstone whose signature matches (eq. 3). The model is asked only about writes, and for tombstones, that the
   behaviour leaves in doubt, and there weighs the behaviour and the likeliest hazard together instead, where the models
   were calibrated for that. For a tombstone without a behaviour, or without a usable signature, a very similar key is
   enough.

Several writes are judged at once, with one ask for all of each kind. A failure of a model is decided by
`GuardSettings.on_failure`, and named in the decision.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import ModelError
from memory_audit.guard.decide.asks import Embed, ReadBehaviour, ReadHazards
from memory_audit.guard.decide.guard_decision import GuardDecision
from memory_audit.guard.decide.prefilter import ToRead, prefilter
from memory_audit.guard.decide.verdicts import decide_behaviours, decide_hazards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.decide.asks import Steps
    from memory_audit.guard.decide.rules import ReadScope, Rules
    from memory_audit.guard.decide.write import Texts, Write

__all__ = [
    "MAX_TEXT_FORMS", "MOST_REMEMBERED", "Case", "Verdict", "by_behaviours", "error_line", "judge", "judge_texts",
]  # fmt: skip

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
class Verdict:
    """What a write says by itself."""

    decision: GuardDecision
    joins: bool = False
    """It may be one of several instalments."""

    nearest: tuple[int, ...] = ()
    """Which forms are kept of it, where it joins: nearest to a key first. Not the texts: many verdicts are kept."""

    doubted: tuple[int, ...] = ()
    """Tombstones whose behaviours it may restate, likeliest first, where it is near a key or no key can tell."""


def judge(rules: Rules, writes: Sequence[Write], vectors: NDArray[np.float32] | None = None) -> Steps[list[Verdict]]:
    """Judge writes, each by itself.

    Args:
        rules: What they are held against.
        writes: All are judged at once.
        vectors: Unit vectors of all their forms, shape (forms, dimensions); None asks for them.
    """
    found = [_unread(rules, write) for write in writes]
    waiting = [place for place, verdict in enumerate(found) if verdict is None]
    judged = yield from judge_texts(rules, [writes[place].texts for place in waiting], vectors)
    for place, verdict in zip(waiting, judged, strict=True):
        found[place] = verdict
    return [verdict for verdict in found if verdict is not None]


def judge_texts(
    rules: Rules, groups: Sequence[Texts], vectors: NDArray[np.float32] | None = None, *, joined: bool = False
) -> Steps[list[Verdict]]:
    """Judge groups of texts, each a write, or (joined) several of one writer that were let in one by one."""
    block_list, ends = rules.block_list, list(itertools.accumulate(len(group.forms) for group in groups))
    if len(block_list) and any(ends):
        try:
            if vectors is None:
                vectors = yield Embed([text for group in groups for text in group.forms])
            vectors = _checked(vectors, ends[-1], block_list.keys.dimensions)
        except Exception as error:  # noqa: BLE001 - whatever an embedder raises, the policy decides, and says so
            failed = rules.failure("embedder failed", error_line(error))
            return [Verdict(decision=failed, joins=True, nearest=_from_both_ends(group)) for group in groups]
        parts = np.split(vectors, ends[:-1])
    else:
        parts = [np.zeros((0, 0), np.float32)] * len(groups)
    cases = [Case(rules, group, part) for group, part in zip(groups, parts, strict=True)]
    yield from by_behaviours(rules, cases, joined=joined)
    if rules.hazards is not None:
        yield from _by_hazards(rules, [case for case in cases if case.open], joined=joined)
    return [Verdict(decision=case.decision) if joined else case.verdict() for case in cases]


class Case:
    """A group of texts under judgement."""

    def __init__(self, rules: Rules, texts: Texts, vectors: NDArray[np.float32]) -> None:
        self._rules, self.texts, self._vectors = rules, texts, vectors
        self.decision = GuardDecision(allowed=True, reason="no tombstones")
        self.odds: NDArray[np.float32] | None = None
        """By tombstone, that its behaviour is restated; None where no behaviour was read."""
        self._near = np.zeros(0, np.float32)

    @property
    def open(self) -> bool:
        """Another round may still refuse it."""
        return self.decision.allowed and not self.decision.failed

    def look(self, scope: ReadScope) -> ToRead | GuardDecision:
        """Return what has to be read in a round; the cosines are too many to be kept for the next."""
        block_list = self._rules.block_list
        similarity = np.zeros((0, len(block_list)), np.float32)
        if len(self._vectors):
            similarity = block_list.keys.similarity(self._vectors)
            self._near = similarity.max(axis=1)
        return prefilter(self._rules, scope, self.texts, similarity)

    def verdict(self) -> Verdict:
        """Return the decision, with what is kept for writes to come."""
        rules, near = self._rules, self._near
        joins = len(rules.block_list) > 0 and (
            not near.size or near.max() >= rules.settings.join_above or rules.block_list.keys.keyless.any()
        )  # of a tombstone without a key nobody knows whether the write is near
        doubted: tuple[int, ...] = ()
        if self.odds is not None and (joins or self.texts.foreign.any()):
            likely = np.flatnonzero(np.isfinite(self.odds) & (self.odds >= rules.thresholds.doubt_nats))
            doubted = tuple(likely[np.argsort(-self.odds[likely], kind="stable")][:MOST_DOUBTED].tolist())
        nearest = tuple(np.argsort(-near, kind="stable")[:MOST_REMEMBERED].tolist()) if joins else ()
        return Verdict(decision=self.decision, joins=bool(joins), nearest=nearest, doubted=doubted)


def by_behaviours(rules: Rules, cases: Sequence[Case], *, joined: bool = False) -> Steps[None]:
    """Read the behaviours of all cases that need it, at once, and decide."""
    to_read: list[tuple[Case, ToRead]] = []
    stones: dict[str, NDArray[np.bool_]] = {}
    for case in cases:
        read = case.look(rules.behaviours)
        if isinstance(read, GuardDecision):
            case.decision = read
            continue
        to_read.append((case, read))
        for text, within in zip(read.texts, read.within_read, strict=True):
            stones[text] = stones[text] | within if text in stones else within
    if not to_read:
        return
    try:
        answer = yield ReadBehaviour(list(stones), list(stones.values()), rules.block_list.behaviours)
    except Exception as error:  # noqa: BLE001 - whatever a model raises, the policy decides, and says so
        for case, read in to_read:
            case.decision = rules.failure("model failed", error_line(error), read.nearest)
        return
    told = dict(zip(stones, answer, strict=True))
    for case, read in to_read:
        found = [told[text] for text in read.texts]
        case.decision, case.odds = decide_behaviours(rules, read, found, joined=joined)


def _by_hazards(rules: Rules, cases: Sequence[Case], *, joined: bool) -> Steps[None]:
    """Read the hazards of cases that the behaviour left in doubt, likewise; what is far from all keys stays let in."""
    to_read: list[tuple[Case, ToRead]] = []
    for case in cases:
        scope = rules.hazards_of(case.odds)
        if not scope.not_comparable.all() and isinstance(read := case.look(scope), ToRead):
            to_read.append((case, read))
    if not to_read:
        return
    texts = list(dict.fromkeys(text for _, read in to_read for text in read.texts))
    try:
        answer = yield ReadHazards(texts, rules.taxonomies)
    except Exception as error:  # noqa: BLE001 - likewise
        for case, read in to_read:
            failed = rules.failure("model failed", error_line(error), read.nearest)
            case.decision = replace(failed, restated_nats=case.decision.restated_nats)
        return
    told = {digest: dict(zip(texts, found, strict=True)) for digest, found in answer.items()}
    for case, read in to_read:
        signatures = {digest: [by_text[text] for text in read.texts] for digest, by_text in told.items()}
        decision = decide_hazards(rules, read, signatures, rules.doubt(case.odds, joined=joined))
        if decision.restated_nats is None:
            decision = replace(decision, restated_nats=case.decision.restated_nats)
        case.decision = decision


def _unread(rules: Rules, write: Write) -> Verdict | None:
    """Return the verdict on a write that nothing has to be read of, or None."""
    block_list = rules.block_list
    same = block_list.by_fingerprint(write.prints(block_list.salt))
    if same is not None:
        stone = block_list.stones[same]
        return Verdict(decision=GuardDecision(allowed=False, reason="same words", tombstone=stone))
    forms = len(write.texts.forms)
    if forms > MAX_TEXT_FORMS and len(block_list):
        why = f"{forms} texts were not compared: at most {MAX_TEXT_FORMS} are"
        return Verdict(decision=rules.failure("too long", why))
    return None


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


def _from_both_ends(texts: Texts) -> tuple[int, ...]:
    """Return which forms are kept of a write that nobody could compare: from both ends, in turn."""
    last = len(texts.forms) - 1
    return tuple(sorted(range(last + 1), key=lambda number: min(number, last - number))[:MOST_REMEMBERED])


def error_line(error: BaseException) -> str:
    """Return an exception as one line that is not long."""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
