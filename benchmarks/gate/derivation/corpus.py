"""The derived-memory corpus, written for this project: who draws on whom is known because it was written that way.

    data/earlier.jsonl   60 memories: five on each of twelve topics, each with facts of its own
    data/later.jsonl     84 memories: per topic a summary of three and one of two, two facts merged into one remark, two
                         paraphrases, and two notes on the same topic that draw on nothing (the hard negatives)

What it cannot tell: two notes on one event, neither of which draws on the other, look derived to every method here;
the corpus has none, since no text could settle what is true of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Corpus", "CorpusPair", "Memory", "hard_pairs", "load_corpus"]

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One memory; `parents` are the earlier ones it was written from."""

    memory_id: str
    topic: str
    text: str
    kind: str = "earlier"
    """earlier, summary, merge, paraphrase or independent."""

    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusPair:
    """One candidate edge and whether it is there."""

    earlier: Memory
    later: Memory
    edge: bool

    @property
    def texts(self) -> tuple[str, str]:
        """(parent text, child text)."""
        return self.earlier.text, self.later.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """All memories."""

    earlier: tuple[Memory, ...]
    later: tuple[Memory, ...]


def load_corpus() -> Corpus:
    """Read the corpus."""
    earlier = tuple(
        Memory(memory_id=row["id"], topic=row["topic"], text=row["text"]) for row in _rows(DATA / "earlier.jsonl")
    )
    later = tuple(
        Memory(
            memory_id=row["id"], topic=row["topic"], text=row["text"], kind=row["kind"], parents=tuple(row["parents"])
        )
        for row in _rows(DATA / "later.jsonl")
    )  # fmt: skip
    return Corpus(earlier=earlier, later=later)


def hard_pairs(
    corpus: Corpus, earlier_vectors: NDArray[np.float32], later_vectors: NDArray[np.float32], *, foreign: int
) -> list[CorpusPair]:
    """Return the pairs that are judged: all of one topic, and per later memory the `foreign` nearest of other topics.

    Args:
        corpus: The memories.
        earlier_vectors: Unit rows, one per earlier memory.
        later_vectors: Unit rows, one per later memory.
        foreign: How many pairs across topics for each later memory: the ones that an embedding would propose.
    """
    pairs: list[CorpusPair] = []
    for later, vector in zip(corpus.later, later_vectors, strict=True):
        order = np.argsort(-np.round(earlier_vectors @ vector, 6), kind="stable")
        others = [corpus.earlier[place] for place in order if corpus.earlier[place].topic != later.topic]
        same = [earlier for earlier in corpus.earlier if earlier.topic == later.topic]
        pairs.extend(
            CorpusPair(earlier=earlier, later=later, edge=earlier.memory_id in later.parents)
            for earlier in (*same, *others[:foreign])
        )
    return pairs


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
