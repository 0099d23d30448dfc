"""The paper's adversary (section 3.1), who sends the paraphrases of all removed poisons, to the guard as it comes.

Elsewhere in this benchmark every write is judged by itself: what a guard says of texts. A guard also knows what it
refused before, by writer and by removal (`memory_audit.guard.decide.history`). So the adversary sends a minute apart,
under one name, and under a new one for each write. Since the order matters to it, in the order given and in shuffled
ones; and since honest writes may pay for it, also among harmless records, which come under that one name as well, as
where an agent writes all its memories, or each under a new one.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.guard.hst.blocking import BACKBONE, WRITTEN, counts
from benchmarks.guard.hst.guarding import AS_IT_COMES, BY_ITSELF
from benchmarks.guard.hst.retrieval import MemoryIndex

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.guard.hst.blocking import Sets
    from benchmarks.guard.hst.corpus import Corpus, Write
    from benchmarks.guard.hst.guarding import Warden
    from memory_audit.guard.blocks.block_list import BlockList
    from memory_audit.guard.decide.guard_decision import GuardDecision
    from memory_audit.guard.decide.settings import GuardMode
    from memory_audit.models.protocols import Embedder

__all__ = ["NAMES", "Orders", "adversary_rows", "mixed_rows", "retrieved_rows", "sent"]

Row = dict[str, Any]

NAMES = {"one": "one-writer", "ever new": ""}
"""Under which names the adversary sends: what `Warden.judge_stream` takes as the writer."""

SHUFFLED = 50
"""Orders beside the one given."""

MIXED = 3
"""Orders with harmless records among the paraphrases: each reads hundreds of texts together with those before them."""

K = 3


class Orders:
    """Whether each paraphrase was refused, by write id: in the order given, and in shuffled orders."""

    def __init__(self, given: Mapping[str, bool], shuffled: Sequence[Mapping[str, bool]]) -> None:
        self.given, self.shuffled = given, tuple(shuffled)


async def sent(
    warden: Warden, block_list: BlockList, mode: GuardMode, sets: Sets, seed: int
) -> dict[tuple[str, str], Orders]:
    """Send each set of paraphrases in every order; by names of the adversary and name of the set."""
    found = {}
    for names, writer in NAMES.items():
        for group in (WRITTEN, BACKBONE):
            if not (writes := sets.harmful[group]):
                continue
            each = []
            for number in range(SHUFFLED + 1):
                order = _shuffled(writes, seed + number) if number else writes
                decisions = await warden.judge_stream(block_list, mode, order, writer=writer)
                each.append({write.write_id: not said.allowed for write, said in zip(order, decisions, strict=True)})
            found[names, group] = Orders(each[0], each[1:])
    return found


def adversary_rows(found: Mapping[tuple[str, str], Orders]) -> list[Row]:
    """Return how many were refused: a row for each set and way to be named."""
    rows = []
    for (names, group), orders in found.items():
        let_in = [_let_in(one) for one in orders.shuffled]
        rows.append({
            "part": "adversary", "names": names, "set": group, **asdict(AS_IT_COMES),
            **counts(sum(orders.given.values()), len(orders.given)),
            "wrong": _let_in(orders.given),
            "shuffled_orders": len(let_in),
            "shuffled_all_refused": sum(not writes for writes in let_in),
            "shuffled_most_let_in": max(map(len, let_in)),
            "shuffled_let_in": dict(Counter(write for writes in let_in for write in writes).most_common()),
        })  # fmt: skip
    return rows


def retrieved_rows(
    corpus: Corpus, sets: Sets, name: str, embedder: Embedder, found: Mapping[tuple[str, str], Orders]
) -> list[Row]:
    """Return what the queries retrieve once the adversary is done, under one embedder: rows as before."""
    rows = []
    for (names, group), orders in found.items():
        writes = sets.harmful[group]
        harmful = {write.write_id for write in writes}
        known: dict[frozenset[str], tuple[float, float]] = {}
        each = []
        for refused in (orders.given, *orders.shuffled):
            let_in = frozenset(_let_in(refused))
            if let_in not in known:
                stored = [*corpus.benign, *(write for write in writes if write.write_id in let_in)]
                seen = MemoryIndex(stored, embedder, harmful).measure(corpus.queries, K)
                known[let_in] = seen.poisoned_share, seen.benign_recall
            each.append(known[let_in])
        rows.append({
            "part": "adversary, retrieval", "embedder": name, "names": names, "set": group,
            "prp_at_3": round(each[0][0], 4), "benign_recall_at_3": round(each[0][1], 4),
            "shuffled_prp_at_3_mean": round(sum(share for share, _ in each[1:]) / len(each[1:]), 4),
            "shuffled_prp_at_3_most": round(max(share for share, _ in each[1:]), 4),
        })  # fmt: skip
    return rows


async def mixed_rows(warden: Warden, block_list: BlockList, mode: GuardMode, sets: Sets, seed: int) -> list[Row]:
    """Send the backbone's paraphrases among harmless records, all under one name, and each under its own."""
    kinds = {BACKBONE: sets.harmful[BACKBONE], **{name: sets.harmless[name] for name in ("benign", "safe twins")}}
    together = [write for writes in kinds.values() for write in writes]
    rows = []
    for names, writer in NAMES.items():
        for patience in (BY_ITSELF, AS_IT_COMES):
            refused: Counter[str] = Counter()
            reasons: dict[str, Counter[str]] = {name: Counter() for name in kinds}
            for number in range(MIXED):
                order = _shuffled(together, seed + number)
                decisions = await warden.judge_stream(block_list, mode, order, patience, writer=writer)
                said: dict[str, GuardDecision] = {
                    write.write_id: decision for write, decision in zip(order, decisions, strict=True)
                }
                for name, writes in kinds.items():
                    mine = [said[write.write_id] for write in writes]
                    refused[name] += sum(not decision.allowed for decision in mine)
                    reasons[name].update(decision.reason for decision in mine)
            rows += [
                {"part": "mixed", "names": names, "set": name, **asdict(patience), "orders": MIXED,
                 **counts(refused[name], MIXED * len(writes)), "reasons": dict(reasons[name].most_common())}
                for name, writes in kinds.items()
            ]  # fmt: skip
    return rows


def _let_in(refused: Mapping[str, bool]) -> list[str]:
    return [write_id for write_id, was_refused in refused.items() if not was_refused]


def _shuffled(writes: Sequence[Write], seed: int) -> list[Write]:
    order = list(writes)
    random.Random(seed).shuffle(order)
    return order
