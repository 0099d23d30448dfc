"""Which texts of one tenant say what an earlier one says: near-duplicates and restatements, each with the one it joins.

Texts are taken in log order. A text joins the nearest earlier one that is kept, where their cosine is CLOSE or more and
nothing that can be read off them speaks against it; else it is kept itself. So no chain leads from one fact to another.
Groups whose texts are CLOSE on average become one in the same way (average linkage, Sokal and Michener 1958): a wording
may be far from the first one that was written down, and near to all the others.

Against it speaks (`agree`):

1. they have other numbers ("A is 5", "A is 6"), or each has a name that the other lacks;
2. one denies, and hardly anything else tells the two apart;
3. they are one sentence with another filling ("the door is red", "the door is blue"), and not ALIKE; where auxiliary
   verbs differ too ("it listens on", "it can be reached on"), it is another sentence;
4. less than half of the words of the shorter one are shared;
5. NLI compared two texts of both sides, and they contradict each other.

A name is a capitalised word inside of a sentence. All of this is for English; of texts in other languages 1 and 3 hold.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.consistency.graph import CONTRADICTION_WEIGHT
from memory_audit.consistency.neighbours import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from memory_audit.consistency.neighbours import Neighbours

__all__ = ["ALIKE", "CLOSE", "Statement", "agree", "restated"]

CLOSE = 0.75
"""Cosine from which two texts may say the same: the default of `community_detection` in sentence-transformers."""

ALIKE = 0.95
"""Cosine from which a word may be exchanged: the default of `EmbeddingsRedundantFilter` in LangChain."""

MIN_SHARED = 0.5
"""Share of the shorter text's words that the other has."""

MAX_BESIDE_DENIAL = 2
"""Words that differ beside a denial: more, and it is told in another way."""

_PAIRS_AT_ONCE = 1 << 14
"""Whose vectors are held twice: 50 MB with 384 dimensions."""

_WORD = re.compile(r"[\w'’]+(?:[.:,][\w'’]+)*|[^\w\s.,;:!?\"“”()]")
_INSIDE = re.compile(r"(?<=[\w,;’'])\s+([^\W\d_][\w'’]*)")
_COUNTS = frozenset(
    {"two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "dozen"}
)
_AUXILIARIES = frozenset({
    "am", "is", "are", "was", "were", "be", "been", "being", "has", "have", "had", "do", "does", "did", "can", "could",
    "will", "would", "shall", "should", "may", "might", "must",
})  # fmt: skip
_DENIALS = frozenset({"not", "no", "never", "cannot", "without", "none", "nobody", "nothing", "neither", "nor"})


@dataclass(frozen=True, slots=True)
class Statement:
    """What can be read off a text."""

    tokens: tuple[str, ...]
    """Words and signs in small letters, without punctuation."""

    numbers: frozenset[str]
    """Words with a digit, and those that count."""

    names: frozenset[str]
    denies: bool
    """Whether it has a word of denial."""

    @classmethod
    def of(cls, text: str) -> Statement:
        """Read a text."""
        tokens = tuple(_plain(token) for token in _WORD.findall(text))
        return cls(
            tokens=tokens,
            numbers=frozenset(token for token in tokens if token in _COUNTS or any(map(str.isdigit, token))),
            names=frozenset(_plain(word) for word in _INSIDE.findall(text) if word[0].isupper() and word != "I"),
            denies=any(token in _DENIALS or token.endswith("n't") for token in tokens),
        )


def _plain(token: str) -> str:
    return sys.intern(token.casefold().replace("’", "'").removesuffix("'s"))  # texts of one memory share their words


def agree(one: Statement, other: Statement, cosine: float) -> bool:
    """Tell whether nothing that can be read off two close texts speaks against their saying the same."""
    if one.numbers != other.numbers:
        return False
    if one.tokens == other.tokens:
        return True
    ours, theirs = set(one.tokens), set(other.tokens)
    shared, differing = ours & theirs, ours ^ theirs
    if differing & ours & one.names and differing & theirs & other.names:
        return False
    if one.denies != other.denies and sum(word not in _DENIALS for word in differing) <= MAX_BESIDE_DENIAL:
        return False
    filled = differing and _AUXILIARIES.isdisjoint(differing)
    if filled and cosine < ALIKE and _frame(one.tokens, shared) == _frame(other.tokens, shared):
        return False
    return len(shared) >= MIN_SHARED * min(len(ours), len(theirs))


def restated(
    vectors: NDArray[np.float32],
    texts: Sequence[str],
    found: Neighbours,
    contradiction: NDArray[np.float64] | None = None,
) -> NDArray[np.int64]:
    """Return the kept text that each one joins, by its number; its own number where it is kept.

    Compared are neighbours, what these joined, and the means of groups whose texts have no other neighbours: time grows
    with the pairs of `found`. Held at once are the means of groups that may be joined.

    Args:
        vectors: Shape (n, d), rows of unit norm.
        texts: The n texts, in log order.
        found: The neighbours of each of them.
        contradiction: Shape (m,), w of each pair of `found`; None where NLI was not asked.

    Returns:
        Shape (n,).
    """
    close = found.similarity >= CLOSE
    pairs, similarity = found.pairs[close], found.similarity[close]
    opposed = found.pairs[:0] if contradiction is None else found.pairs[contradiction >= CONTRADICTION_WEIGHT]
    before: defaultdict[int, list[int]] = defaultdict(list)
    for earlier, later in opposed.tolist():
        before[later].append(earlier)
    statements = {number: Statement.of(texts[number]) for number in np.unique(pairs).tolist()}
    joined = np.arange(len(texts))
    order = np.lexsort([pairs[:, 0], pairs[:, 1]])
    rows = zip(pairs[order].tolist(), similarity[order].tolist(), strict=True)
    for later, run in groupby(rows, lambda row: row[0][1]):
        near: dict[int, float] = {}
        for (earlier, _), cosine in run:
            kept = int(joined[earlier])
            if kept == earlier:
                near[kept] = cosine
            elif kept not in near:
                near[kept] = round(float(vectors[kept].astype(np.float64) @ vectors[later]), 6)
        against = {int(joined[earlier]) for earlier in before.get(later, ())}
        for kept, cosine in sorted(near.items(), key=lambda item: (-item[1], item[0])):
            if cosine >= CLOSE and kept not in against and agree(statements[kept], statements[later], cosine):
                joined[later] = kept
                break
    while _merge(joined, vectors, statements, pairs, opposed, width=found.lists.shape[1]):
        pass
    return joined


def _merge(  # noqa: PLR0913 - the groups, and what is known of their texts
    joined: NDArray[np.int64],
    vectors: NDArray[np.float32],
    statements: Mapping[int, Statement],
    pairs: NDArray[np.int64],
    opposed: NDArray[np.int64],
    *,
    width: int,
) -> bool:
    """Make groups that are CLOSE on average one in `joined`, the nearest first; tell whether there were such."""
    kept, group, sizes = np.unique(joined, return_inverse=True, return_counts=True)
    candidates = np.sort(group[pairs], axis=1)
    candidates = candidates[(candidates[:, 0] < candidates[:, 1]) & (sizes[candidates] > 1).any(axis=1)]
    crowded = np.flatnonzero(sizes > width)  # their texts may have no neighbours but each other
    means = _means(vectors, group, crowded)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    candidates = np.unique(np.concatenate([candidates, crowded[nearest(means, max(width, 1)).pairs]]), axis=0)
    involved, places = np.unique(candidates, return_inverse=True)
    means, places = _means(vectors, group, involved), places.reshape(-1, 2)
    linkage = np.concatenate(
        [
            np.einsum("md,md->m", means[part[:, 0]], means[part[:, 1]], dtype=np.float64)
            for part in np.array_split(places, len(places) // _PAIRS_AT_ONCE + 1)
        ]
    ).round(6)  # fmt: skip - the last bit of a sum depends on the machine, and decides nothing
    against: defaultdict[int, set[int]] = defaultdict(set)
    for one, other in group[opposed].tolist():
        against[one].add(other)
        against[other].add(one)
    gone: set[int] = set()
    for place in np.lexsort([candidates[:, 1], candidates[:, 0], -linkage]).tolist():
        one, other = candidates[place].tolist()
        if linkage[place] < CLOSE or not gone.isdisjoint((one, other)) or other in against[one]:
            continue
        if agree(statements[int(kept[one])], statements[int(kept[other])], float(linkage[place])):
            gone.add(other)
            joined[group == other] = kept[one]
            against[one] |= against[other]
            for third in against[other]:
                against[third].add(one)
    return bool(gone)


def _means(vectors: NDArray[np.float32], group: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the mean vector of some groups, shape (wanted, d)."""
    place = np.full(int(group.max(initial=-1)) + 1, -1)
    place[wanted] = np.arange(len(wanted))
    members = np.flatnonzero(place[group] >= 0)
    rows = place[group[members]]
    sums = np.zeros((len(wanted), vectors.shape[1]), np.float32)
    np.add.at(sums, rows, vectors[members])
    counts = np.bincount(rows, minlength=len(wanted))
    return np.asarray(sums / np.maximum(counts, 1)[:, None], np.float32)


def _frame(tokens: tuple[str, ...], shared: AbstractSet[str]) -> list[str | None]:
    """Return the tokens with one gap for each run of others."""
    gapped = (token if token in shared else None for token in tokens)
    return [token for token, run in groupby(gapped) for _ in (run if token is not None else (0,))]
