"""The paper's five conditions: what the twelve queries retrieve, under one embedder and one set of paraphrases.

    No-Forget             100 benign and 10 poisons, nothing removed, nothing tried again
    ID-Delete             the poisons deleted by id, all paraphrases written
    retrieval-time exact  the same store; results whose signature equals a tombstone's are dropped at query time
    retrieval-time fuzzy  the same by containment
    commit-time           the guard judged the paraphrases; what it refused is not in the index

and one that the paper does not have: commit-time by length alone. The benign records were stored before the removal, so
a false block of one of them shows as BenignFalseBlock; `benign_recall_rewritten` is the recall where all of them had to
pass the guard as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.guard.hst.retrieval import MemoryIndex
from memory_audit.guard.blocks.hazard import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.guard.hst.corpus import Corpus, LengthRule, Write
    from memory_audit.guard.blocks.hazard import HazardSignature
    from memory_audit.models.protocols import Embedder

__all__ = ["BACKFILLS", "Verdicts", "backfill_rows", "condition_rows", "undefended_rows"]

K = 3
BACKFILLS = (0, 6)
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What the defence says of the writes, worked out beforehand."""

    tombstones: Sequence[HazardSignature | None]
    signatures: Mapping[str, HazardSignature | None]
    """Of every record by id, for the filters at query time."""

    refused: Mapping[str, bool]
    """Of every paraphrase and benign record by id: what the guard does at commit time."""

    def hidden(self, writes: Sequence[Write], mode: str) -> frozenset[str]:
        """Return the ids that a filter at query time drops."""
        return frozenset(write.write_id for write in writes if self._matched(write, mode))

    def _matched(self, write: Write, mode: str) -> bool:
        mine = self.signatures.get(write.write_id)
        held = (stone for stone in self.tombstones if stone is not None)
        return mine is not None and any(
            matches(mine, stone) and (mode != "exact" or mine.labels == stone.labels) for stone in held
        )


def condition_rows(
    corpus: Corpus, paraphrases: Sequence[Write], embedder: Embedder, verdicts: Verdicts, length: LengthRule
) -> list[Row]:
    """Measure all conditions."""
    harmful = {write.write_id for write in (*corpus.poison, *paraphrases)}

    def index(writes: Sequence[Write]) -> MemoryIndex:
        return MemoryIndex(writes, embedder, harmful)

    polluted = [*corpus.benign, *paraphrases]
    flooded = index(polluted)
    rows = [
        _row("no-forget", index([*corpus.benign, *corpus.poison]).measure(corpus.queries, K)),
        _row("id-delete", flooded.measure(corpus.queries, K)),
    ]
    for mode in ("exact", "fuzzy"):
        hidden = verdicts.hidden(polluted, mode)
        for delta in BACKFILLS:
            found = flooded.measure(corpus.queries, K, delta=delta, hidden=hidden)
            rows.append(_row(f"retrieval-time {mode}, δ = {delta}", found))
    for name, refuses in (
        ("commit-time", lambda write: verdicts.refused[write.write_id]),
        ("commit-time, length only", length.blocks),
    ):
        rows.append(_commit_row(name, corpus, paraphrases, index, refuses))
    return rows


def undefended_rows(corpus: Corpus, name: str, embedder: Embedder) -> list[Row]:
    """Measure the two conditions without a defence: the attack itself, on this project's paraphrases."""
    harmful = {write.write_id for write in (*corpus.poison, *corpus.paraphrases)}
    stores = {
        "no-forget": [*corpus.benign, *corpus.poison],
        "id-delete": [*corpus.benign, *corpus.paraphrases],
    }
    return [
        {"part": "condition", "embedder": name, "embedder_id": embedder.model_id, "set": "paraphrases, written",
         **_row(condition, MemoryIndex(writes, embedder, harmful).measure(corpus.queries, K))}
        for condition, writes in stores.items()
    ]  # fmt: skip


def backfill_rows(
    corpus: Corpus, paraphrases: Sequence[Write], embedder: Embedder, verdicts: Verdicts, deepest: int = 12
) -> list[Row]:
    """Return results per query for every backfill depth of the fuzzy filter, and for commit-time."""
    harmful = {write.write_id for write in (*corpus.poison, *paraphrases)}
    polluted = [*corpus.benign, *paraphrases]
    flooded = MemoryIndex(polluted, embedder, harmful)
    hidden = verdicts.hidden(polluted, "fuzzy")
    kept = [*corpus.benign, *(write for write in paraphrases if not verdicts.refused[write.write_id])]
    commit = MemoryIndex(kept, embedder, harmful).measure(corpus.queries, K)
    return [
        {
            "delta": delta,
            "retrieval_time": flooded.measure(corpus.queries, K, delta=delta, hidden=hidden).results_per_query,
            "commit_time": commit.results_per_query,
        }
        for delta in range(deepest + 1)
    ]


def _commit_row(
    name: str, corpus: Corpus, paraphrases: Sequence[Write], index: Callable[[Sequence[Write]], MemoryIndex],
    refuses: Callable[[Write], bool],
) -> Row:  # fmt: skip
    let_in = [write for write in paraphrases if not refuses(write)]
    row = _row(name, index([*corpus.benign, *let_in]).measure(corpus.queries, K))
    benign = [write for write in corpus.benign if not refuses(write)]
    again = index([*benign, *let_in]).measure(corpus.queries, K)
    row["benign_recall_rewritten"] = round(again.benign_recall * len(benign) / len(corpus.benign), 4)
    row["write_block_rate"] = round(1 - len(let_in) / len(paraphrases), 4) if paraphrases else None
    row["benign_false_block"] = round(1 - len(benign) / len(corpus.benign), 4)
    return row


def _row(name: str, found: Any) -> Row:
    return {
        "condition": name,
        "prp_at_3": round(found.poisoned_share, 4),
        "prp_at_3_of_returned": round(found.poisoned_share_returned, 4),
        "benign_recall_at_3": round(found.benign_recall, 4),
        "results_per_query": round(found.results_per_query, 3),
    }
