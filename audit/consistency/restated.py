"""Which texts of one tenant say what an earlier one says: near-duplicates and restatements, each with the one it joins.

Texts are taken in log order. A text joins the nearest earlier one that is kept, where their cosine is CLOSE or more and
nothing that can be read off them speaks against it; else it is kept itself. So no chain leads from one fact to another.
Groups whose texts are CLOSE on average become one in the same way (average linkage, Sokal and Michener 1958): a wording
may be far from the first one that was written down, and near to all the others.

Against it speaks (`agree`):

1. they have other numbers ("A is 5", "A is 6"), or each has a name that the other lacks;
2. one denies, and hardly anything else tells the two apart;
3. they are one sentence with another filling ("the door is red", "the door is blue"), and not ALIKE;
4. less than half of the words of the shorter one are shared;
5. NLI compared two texts of both sides, and they contradict each other.

A name is a capitalised word inside of a sentence. All of this is for English; of texts in other languages 1 and 3 hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

__all__ = ["ALIKE", "CLOSE", "Statement", "agree", "restated"]

CLOSE = 0.75
"""Cosine from which two texts may say the same: the default of `community_detection` in sentence-transformers."""

ALIKE = 0.95
"""Cosine from which a word may be exchanged: the default of `EmbeddingsRedundantFilter` in LangChain."""

MIN_SHARED = 0.5
"""Share of the shorter text's words that the other has."""

MAX_BESIDE_DENIAL = 2
"""Words that differ beside a denial: more, and it is told in another way."""

MAX_TRIED = 32
"""Kept texts that one is held against, nearest first: one form filled in a thousand ways is near to all of them."""

_SCANNED_FLOATS = 1 << 22
"""Similarities held at once: 16 MiB of float32."""

_ROWS = 512
_ROUNDING = 1e-6

_WORD = re.compile(r"[\w'’]+(?:[.:,][\w'’]+)*|[^\w\s.,;:!?\"“”()]")
_INSIDE = re.compile(r"(?<=[\w,;’'])\s+([^\W\d_][\w'’]*)")
_DENIALS = frozenset({"not", "no", "never", "cannot", "without", "none", "nobody", "nothing", "neither", "nor"})


@dataclass(frozen=True, slots=True)
class Statement:
    """What can be read off a text."""

    tokens: tuple[str, ...]
    """Words and signs in small letters, without punctuation."""

    words: frozenset[str]
    names: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Statement:
        """Read a text."""
        tokens = tuple(token.casefold().replace("’", "'").removesuffix("'s") for token in _WORD.findall(text))
        inside = _INSIDE.findall(text)
        names = frozenset(
            word.casefold().replace("’", "'").removesuffix("'s") for word in inside if word[0].isupper() and word != "I"
        )
        return cls(tokens, frozenset(tokens), names)

    @property
    def numbers(self) -> frozenset[str]:
        """Words with a digit."""
        return frozenset(word for word in self.words if any(map(str.isdigit, word)))

    @property
    def denies(self) -> bool:
        """Whether it has a word of denial."""
        return not _DENIALS.isdisjoint(self.words) or any(word.endswith("n't") for word in self.words)


def agree(one: Statement, other: Statement, cosine: float) -> bool:
    """Tell whether nothing that can be read off two close texts speaks against their saying the same."""
    if one.tokens == other.tokens:
        return True
    mine, theirs = one.words - other.words, other.words - one.words
    if one.numbers != other.numbers or (mine & one.names and theirs & other.names):
        return False
    differing = mine | theirs
    if one.denies != other.denies and sum(word not in _DENIALS for word in differing) <= MAX_BESIDE_DENIAL:
        return False
    if cosine < ALIKE and mine and theirs and _frame(one.tokens, mine) == _frame(other.tokens, theirs):
        return False
    return len(one.words & other.words) >= MIN_SHARED * min(len(one.words), len(other.words))


def restated(
    vectors: NDArray[np.float32],
    texts: Sequence[str],
    opposed: Mapping[int, AbstractSet[int]] | None = None,
    alone: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Return the kept text that each one joins, by its number; its own number where it is kept.

    Each is compared with the kept ones before it that have its numbers: those are few where much is said again. Held at
    once are the vectors of these and _SCANNED_FLOATS.

    Args:
        vectors: Shape (n, d), rows of unit norm.
        texts: The n texts, in log order.
        opposed: Of a text, those that NLI says it contradicts.
        alone: Shape (n,): texts that are known to have none CLOSE to them.

    Returns:
        Shape (n,).
    """
    joined = np.arange(len(texts))
    by_numbers: dict[frozenset[str], list[int]] = {}
    statements: dict[int, Statement] = {}
    for number in (joined if alone is None else np.flatnonzero(~alone)).tolist():
        statements[number] = Statement.of(texts[number])
        by_numbers.setdefault(statements[number].numbers, []).append(number)
    for numbers in by_numbers.values():
        if len(numbers) > 1:
            asked = np.array(numbers)
            _join(joined, vectors, asked, statements, opposed or {})
            while _merge(joined, vectors, asked, statements, opposed or {}):
                pass
    return joined


def _join(
    joined: NDArray[np.int64],
    vectors: NDArray[np.float32],
    asked: NDArray[np.int64],
    statements: Mapping[int, Statement],
    opposed: Mapping[int, AbstractSet[int]],
) -> None:
    """Write into `joined` what these texts join among themselves."""
    kept = np.empty(len(asked), np.int64)
    table = np.empty((len(asked), vectors.shape[1]), np.float32)
    count = start = 0
    while start < len(asked):
        rows = asked[start : start + max(1, min(_ROWS, _SCANNED_FLOATS // (count + _ROWS)))]
        block = vectors[rows]
        among = np.concatenate([block @ table[:count].T, block @ block.T], axis=1)
        numbers = np.concatenate([kept[:count], rows])
        for number, cosines in zip(rows.tolist(), among, strict=True):
            # Rounded, so that the last bit of a BLAS sum, which depends on the machine, decides nothing.
            near = np.flatnonzero(cosines >= CLOSE - _ROUNDING)
            near = near[(numbers[near] < number) & (joined[numbers[near]] == numbers[near])]
            close = np.round(cosines[near].astype(np.float64), 6)
            order = np.lexsort([near, -close])[:MAX_TRIED]
            against = {int(joined[other]) for other in opposed.get(number, ()) if other < number}
            for other, cosine in zip(numbers[near[order]].tolist(), close[order].tolist(), strict=True):
                if cosine >= CLOSE and other not in against and agree(statements[other], statements[number], cosine):
                    joined[number] = other
                    break
        fresh = joined[rows] == rows
        kept[count : count + fresh.sum()] = rows[fresh]
        table[count : count + fresh.sum()] = block[fresh]
        count, start = count + int(fresh.sum()), start + len(rows)


def _merge(
    joined: NDArray[np.int64],
    vectors: NDArray[np.float32],
    asked: NDArray[np.int64],
    statements: Mapping[int, Statement],
    opposed: Mapping[int, AbstractSet[int]],
) -> bool:
    """Make groups that are CLOSE on average one in `joined`, the nearest first; tell whether there were such."""
    kept, group, sizes = np.unique(joined[asked], return_inverse=True, return_counts=True)
    means = np.zeros((len(kept), vectors.shape[1]), np.float32)
    np.add.at(means, group, vectors[asked])
    means /= sizes[:, None]
    near: list[tuple[float, int, int]] = []
    larger = np.flatnonzero(sizes > 1)  # that two texts do not join was seen before
    step = max(1, _SCANNED_FLOATS // len(kept))
    for start in range(0, len(larger), step):
        for one, cosines in zip(
            larger[start : start + step], means[larger[start : start + step]] @ means.T, strict=True
        ):
            cosines[one] = -1.0
            close = np.flatnonzero(cosines >= CLOSE)
            close = close[np.lexsort([close, -np.round(cosines[close].astype(np.float64), 6)])][:MAX_TRIED]
            near += [(-round(float(cosines[other]), 6), *sorted((int(one), int(other)))) for other in close]
    against = {
        (int(joined[number]), int(joined[other])) for number in map(int, asked) for other in opposed.get(number, ())
    }
    gone: set[int] = set()
    for distance, one, other in sorted(set(near)):
        first, later = int(kept[one]), int(kept[other])
        apart = (first, later) in against or not agree(statements[first], statements[later], -distance)
        if not apart and gone.isdisjoint((one, other)):
            gone.add(other)
            joined[asked[group == other]] = first
    return bool(gone)


def _frame(tokens: tuple[str, ...], filling: AbstractSet[str]) -> list[str | None]:
    """Return the tokens with one gap for each run of others."""
    gapped = (None if token in filling else token for token in tokens)
    return [token for token, run in groupby(gapped) for _ in (run if token is not None else (0,))]
