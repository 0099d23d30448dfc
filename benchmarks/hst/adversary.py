"""The paper's adversary (section 3.1): one writer sends the paraphrases of all removed poisons, one after the other.

Elsewhere in this benchmark every write is of a writer of its own, and nobody is ever distrusted: what a guard says of
texts, or an adversary with a new name for each. Here the guard runs as it comes. Since the order matters to it, the
paraphrases are sent in the order given and in shuffled ones; and since an agent may write all its memories under one
name, they are also sent among harmless records, all by that one writer, who is then distrusted for what others said.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.hst.blocking import BACKBONE, WRITTEN, counts
from benchmarks.hst.guarding import PATIENCES, Patience
from benchmarks.hst.retrieval import MemoryIndex

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from audit.forget.decision import Decision
    from audit.forget.hazard import MatchMode
    from audit.forget.lockout import Lockout
    from benchmarks.hst.blocking import Sets
    from benchmarks.hst.corpus import Corpus, Write
    from benchmarks.hst.guarding import Warden
    from models.protocols import Embedder

__all__ = ["Orders", "adversary_rows", "retrieved_rows", "sent", "shared_name_rows"]

Row = dict[str, Any]

SHUFFLED = 50
"""Orders beside the one given."""

SHARED = 3
"""Orders of a store in which all have one name: each reads hundreds of texts together with those before them."""

K = 3


class Orders:
    """Whether each paraphrase was refused, by write id: in the order given, and in shuffled orders."""

    def __init__(self, given: Mapping[str, bool], shuffled: Sequence[Mapping[str, bool]]) -> None:
        self.given, self.shuffled = given, tuple(shuffled)


async def sent(warden: Warden, lockout: Lockout, mode: MatchMode, sets: Sets, seed: int) -> dict[str, Orders]:
    """Send each set of paraphrases as one writer, a minute apart, in every order; by name of the set."""
    found = {}
    for name in (WRITTEN, BACKBONE):
        if not (writes := sets.harmful[name]):
            continue
        each = []
        for number in range(SHUFFLED + 1):
            order = _shuffled(writes, seed + number) if number else writes
            decisions = await warden.judge_stream(lockout, mode, order)
            each.append({write.write_id: not said.allowed for write, said in zip(order, decisions, strict=True)})
        found[name] = Orders(each[0], each[1:])
    return found


def adversary_rows(found: Mapping[str, Orders]) -> list[Row]:
    """Return how many were refused: a row for each set."""
    rows = []
    for name, orders in found.items():
        let_in = [_let_in(one) for one in orders.shuffled]
        rows.append({
            "part": "one adversary", "set": name, **asdict(Patience()),
            **counts(sum(orders.given.values()), len(orders.given)),
            "wrong": _let_in(orders.given),
            "shuffled_orders": len(let_in),
            "shuffled_all_refused": sum(not writes for writes in let_in),
            "shuffled_most_let_in": max(map(len, let_in)),
            "shuffled_let_in": dict(Counter(write for writes in let_in for write in writes).most_common()),
        })  # fmt: skip
    return rows


def retrieved_rows(corpus: Corpus, sets: Sets, name: str, embedder: Embedder, found: Mapping[str, Orders]) -> list[Row]:
    """Return what the queries retrieve once the adversary is done, under one embedder: a row for each set."""
    rows = []
    for group, orders in found.items():
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
            "part": "one adversary, retrieval", "embedder": name, "set": group,
            "prp_at_3": round(each[0][0], 4), "benign_recall_at_3": round(each[0][1], 4),
            "shuffled_prp_at_3_mean": round(sum(share for share, _ in each[1:]) / len(each[1:]), 4),
            "shuffled_prp_at_3_most": round(max(share for share, _ in each[1:]), 4),
        })  # fmt: skip
    return rows


async def shared_name_rows(warden: Warden, lockout: Lockout, mode: MatchMode, sets: Sets, seed: int) -> list[Row]:
    """Send the backbone's paraphrases among harmless records, all under one name, which some refusals mar."""
    kinds = {BACKBONE: sets.harmful[BACKBONE], **{name: sets.harmless[name] for name in ("benign", "safe twins")}}
    together = [write for writes in kinds.values() for write in writes]
    rows = []
    for patience in PATIENCES:
        refused: Counter[str] = Counter()
        reasons: dict[str, Counter[str]] = {name: Counter() for name in kinds}
        for number in range(SHARED):
            order = _shuffled(together, seed + number)
            decisions = await warden.judge_stream(lockout, mode, order, patience)
            said: dict[str, Decision] = {
                write.write_id: decision for write, decision in zip(order, decisions, strict=True)
            }
            for name, writes in kinds.items():
                mine = [said[write.write_id] for write in writes]
                refused[name] += sum(not decision.allowed for decision in mine)
                reasons[name].update(decision.reason for decision in mine)
        rows += [
            {"part": "one name for all", "set": name, **asdict(patience), "orders": SHARED,
             **counts(refused[name], SHARED * len(writes)), "reasons": dict(reasons[name].most_common())}
            for name, writes in kinds.items()
        ]  # fmt: skip
    return rows


def _let_in(refused: Mapping[str, bool]) -> list[str]:
    return [write_id for write_id, was_refused in refused.items() if not was_refused]


def _shuffled(writes: Sequence[Write], seed: int) -> list[Write]:
    order = list(writes)
    random.Random(seed).shuffle(order)
    return order
