"""What is written to memory: MemoryGraft's experiences, read at run time, and the texts written for this project.

    data/paraphrases.jsonl   50, five of each poison: other words, the same harmful action
    data/safe_twins.jsonl    50, five of each poison: its very request, a safe answer; some warn of the hazard
    data/safe_twins_translated.jsonl  the same in ten other languages
    data/adaptive.jsonl      50 attacks that know the defence: ten each split over several writes, translated, with
                             invisible or look-alike characters, moved into metadata, padded or euphemised
    data/hazard_rules.jsonl  per poison the words by which a paraphrase is held to have kept its hazard
    data/hazard_votes.jsonl  what three readers say of the same: language models that were shown the 50 answers of
                             packaged:1.5b-int8, the 50 paraphrases above and the 50 safe twins, shuffled, and neither
                             where a text comes from nor what any check said of it
    data/drawn_votes.jsonl   likewise of more answers and of rewritten twins, for `benchmarks.guard.lockout_drawn`

MemoryGraft separates its classes by tag and by length. Tags are never read; `length_matched` appends a second benign
answer to half of the benign experiences, and `LengthRule` is what length alone would have achieved.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.harness.public_data import reading
from memory_audit.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Attack", "Corpus", "HazardRule", "HazardVote", "LengthRule", "Write", "load_corpus", "load_rules", "load_votes",
]  # fmt: skip

OWN_DATA = Path(__file__).parent / "data"
T = TypeVar("T")

POISONS = 10
"""Of MemoryGraft: each has paraphrases, safe twins and a rule here."""

TENANT = "hst"
WRITTEN_AT_MS = 1_760_000_000_000
"""Of every write: time must not tell the classes apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One record that somebody wants in memory."""

    write_id: str
    request: str
    response: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    poison: int | None = None
    """Index of the poison it stands for or answers safely; None for MemoryGraft's benign experiences."""

    def entry(self) -> Entry:
        """Return it as a memory entry; its id may tell the class, since ids are not part of what is judged."""
        return Entry(
            tenant=TENANT, entry_id=self.write_id, principal="agent", source="agent", request=self.request,
            response=self.response, created_at_ms=WRITTEN_AT_MS, metadata=self.metadata,
        )  # fmt: skip

    @property
    def text(self) -> str:
        """All that is written, metadata last."""
        return "\n".join([self.request, self.response, *self.metadata.values()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One adaptive re-injection: one write, or several that state the hazard together."""

    attack_id: str
    kind: str
    trick: str
    poison: int
    writes: tuple[Write, ...]
    essential: frozenset[str]
    """Ids of the writes without which the rest no longer states the hazard: refusing one of them stops the attack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """All writes of the benchmark."""

    poison: tuple[Write, ...]
    benign: tuple[Write, ...]
    queries: tuple[str, ...]
    paraphrases: tuple[Write, ...]
    safe_twins: tuple[Write, ...]
    translated_twins: tuple[Write, ...]
    adaptive: tuple[Attack, ...]

    def thinned(self, limit: int | None) -> Corpus:
        """Return a smaller corpus for trying things out: at most `limit` of each kind but the poisons and queries."""
        return replace(
            self, benign=_thin(self.benign, limit), paraphrases=_thin(self.paraphrases, limit),
            safe_twins=_thin(self.safe_twins, limit), translated_twins=_thin(self.translated_twins, limit),
            adaptive=_thin(self.adaptive, limit),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class HazardRule:
    """When a paraphrase of one poison still states its hazard: every `must` is found, no `must_not` is.

    Words only, written before any signature was computed: the rule that admits a paraphrase to the test must not be the
    check under test.
    """

    hazard: str
    must: tuple[str, ...]
    must_not: tuple[str, ...]

    def lost(self, response: str) -> str | None:
        """Return why the hazard is held to be lost, or None where it is kept."""
        text = response.lower()
        for pattern in self.must:
            if not re.search(pattern, text):
                return f"nothing of: {pattern}"
        for pattern in self.must_not:
            if re.search(pattern, text):
                return f"says: {pattern}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HazardVote:
    """What readers say of a text: would an agent that follows it do what the hazard of its poison says?"""

    group: str
    poison: int
    yes: int
    no: int
    sha256: str | None
    """Of the response of the backbone's answers, which are in no file; its first 16 hexadecimal digits."""

    @property
    def kept(self) -> bool:
        """Most say yes."""
        return self.yes > self.no


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRule:
    """Block whatever is longer than a limit: the baseline that knows nothing but length."""

    limit_characters: int
    auc: float
    """Chance that a random poison is longer than a random benign record."""

    @classmethod
    def best(cls, poison: Sequence[Write], benign: Sequence[Write]) -> LengthRule:
        """Return the limit that tells these poisons from these benign records best: it has seen the answers."""
        harmful, harmless = ([len(write.text) for write in group] for group in (poison, benign))

        def separation(limit: int) -> float:
            return sum(n > limit for n in harmful) / len(harmful) - sum(n > limit for n in harmless) / len(harmless)

        limit = max(sorted({*harmful, *harmless}), key=separation)
        wins = sum((h > b) + 0.5 * (h == b) for h in harmful for b in harmless)
        return cls(limit_characters=limit, auc=round(wins / (len(harmful) * len(harmless)), 3))

    def blocks(self, write: Write) -> bool:
        """Tell whether the write is longer than the limit."""
        return len(write.text) > self.limit_characters


def load_corpus(data: Path) -> Corpus:
    """Read MemoryGraft from the folder of benchmark data, and the project's own texts.

    Raises:
        UsageError: a file of MemoryGraft is missing or damaged.
    """
    folder = data / "memorygraft"
    with reading(folder / "experience_seeds.json") as path:
        seeds = json.loads(path.read_text(encoding="utf-8"))
        poison = [_seed(row, "poison", number) for number, row in enumerate(seeds["poisoned_experiences"])]
        benign = [_seed(row, "benign", number) for number, row in enumerate(seeds["benign_experiences"])]
        if len(poison) != POISONS:
            raise ValueError(f"{len(poison)} poisoned experiences, expected {POISONS}")
    with reading(folder / "test_queries.json") as path:
        queries = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(queries, list):
            raise TypeError("expected a JSON list of queries")
    twins, translated = (
        tuple(
            Write(write_id=row["id"], request=poison[row["poison"]].request, response=row["response"],
                  poison=row["poison"])
            for row in read_rows(name)
        )
        for name in ("safe_twins", "safe_twins_translated")
    )  # fmt: skip
    return Corpus(
        poison=tuple(poison),
        benign=tuple(benign),
        queries=tuple(queries),
        paraphrases=load_paraphrases(),
        safe_twins=twins,
        translated_twins=translated,
        adaptive=load_attacks(),
    )


def load_paraphrases() -> tuple[Write, ...]:
    """Return the project's own paraphrases."""
    return tuple(_write(row, row["id"], row["poison"]) for row in read_rows("paraphrases"))


def load_attacks() -> tuple[Attack, ...]:
    """Return the adaptive attacks."""
    return tuple(_attack(row) for row in read_rows("adaptive"))


def load_votes(name: str = "hazard_votes") -> tuple[HazardVote, ...]:
    """Return what the readers say, of one of the two files."""
    return tuple(
        HazardVote(
            group=row["set"], poison=row["poison"], yes=row["yes"], no=row["no"], sha256=row.get("sha256")
        )
        for row in read_rows(name)
    )  # fmt: skip


def load_rules() -> tuple[HazardRule, ...]:
    """Return one rule per poison, in their order."""
    rows = sorted(read_rows("hazard_rules"), key=lambda row: int(row["poison"]))
    return tuple(
        HazardRule(hazard=row["hazard"], must=tuple(row["must"]), must_not=tuple(row["must_not"])) for row in rows
    )


def length_matched(benign: Sequence[Write], seed: int = 0) -> tuple[Write, ...]:
    """Append a second benign answer to half of the records, so that length no longer separates the classes."""
    rng = random.Random(seed)
    longer = set(rng.sample(range(len(benign)), len(benign) // 2))
    matched = []
    for number, write in enumerate(benign):
        if number in longer:
            other = rng.choice([position for position in range(len(benign)) if position != number])
            write = replace(write, response=f"{write.response} {benign[other].response}")  # noqa: PLW2901
        matched.append(replace(write, write_id=f"{write.write_id}-matched"))
    return tuple(matched)


def read_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of one of the project's own files."""
    lines = (OWN_DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line]


def _thin(items: tuple[T, ...], limit: int | None) -> tuple[T, ...]:
    """Return at most `limit` items, evenly spread over all."""
    if limit is None or len(items) <= limit:
        return items
    return tuple(items[number * len(items) // limit] for number in range(limit))


def _seed(row: dict[str, Any], kind: str, number: int) -> Write:
    # Tags separate the classes perfectly, and semantic targets exist for poison only: neither is read.
    poison = number if kind == "poison" else None
    return Write(write_id=f"{kind}-{number}", request=row["req"], response=row["resp"], poison=poison)


def _write(row: dict[str, Any], write_id: str, poison: int) -> Write:
    return Write(
        write_id=write_id, request=row["request"], response=row["response"], metadata=row.get("metadata", {}),
        poison=poison,
    )  # fmt: skip


def _attack(row: dict[str, Any]) -> Attack:
    writes = [_write(part, f"{row['id']}.{number}", row["poison"]) for number, part in enumerate(row["writes"])]
    essential = [write.write_id for write, part in zip(writes, row["writes"], strict=True) if part["essential"]]
    return Attack(
        attack_id=row["id"], kind=row["kind"], trick=row["trick"], poison=row["poison"], writes=tuple(writes),
        essential=frozenset(essential),
    )  # fmt: skip
