"""Which writes are refused: a row for each set of writes, extraction and matching mode, length's own rate beside it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.guard.hst.corpus import LengthRule, Write, length_matched
from benchmarks.harness.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.guard.hst.corpus import Attack, Corpus
    from benchmarks.guard.hst.guarding import Warden
    from benchmarks.guard.hst.paper_guard import Mode
    from benchmarks.guard.hst.paraphrase import Paraphrases
    from memory_audit.guard.blocks.block_list import BlockList
    from memory_audit.guard.decide.guard_decision import GuardDecision
    from memory_audit.guard.decide.settings import GuardMode

__all__ = ["BACKBONE", "WRITTEN", "LengthRules", "Sets", "block_rows", "counts", "stability_row", "stream_rows"]

Row = dict[str, Any]

WRITTEN = "paraphrases, written"
BACKBONE = "paraphrases, backbone"
BY_READERS = "paraphrases, backbone, by readers"
"""Those that keep the hazard by readers' votes instead of the rule of words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRules:
    """What length alone would refuse, with the limit that is best on the corpus, and on its length-matched variant."""

    plain: LengthRule
    matched: LengthRule

    @classmethod
    def of(cls, corpus: Corpus, seed: int) -> LengthRules:
        """Fit both; they have seen the classes, which flatters them."""
        return cls(
            plain=LengthRule.best(corpus.poison, corpus.benign),
            matched=LengthRule.best(corpus.poison, length_matched(corpus.benign, seed)),
        )

    def of_writes(self, writes: Sequence[Write]) -> Row:
        """Return both rates of refused writes, as columns."""
        return self._rates([[rule.blocks(write) for write in writes] for rule in (self.plain, self.matched)])

    def of_attacks(self, attacks: Sequence[Attack]) -> Row:
        """Return both rates of attacks that are stopped by refusing an essential write, as columns."""
        return self._rates([
            [any(rule.blocks(write) for write in attack.writes if write.write_id in attack.essential)
             for attack in attacks]
            for rule in (self.plain, self.matched)
        ])  # fmt: skip

    @staticmethod
    def _rates(blocked: Sequence[Sequence[bool]]) -> Row:
        plain, matched = (_rate(sum(column), len(column)) for column in blocked)
        return {"length_only": plain, "length_only_matched": matched}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sets:
    """The writes that are tried after the removal."""

    harmful: Mapping[str, tuple[Write, ...]]
    harmless: Mapping[str, tuple[Write, ...]]
    attacks: tuple[Attack, ...]

    def compared(self, *, attacks: bool) -> Sets:
        """Return the sets by which ways are compared: a way that asks the model about everything has fewer to read."""
        return Sets(
            harmful={name: self.harmful[name] for name in ("verbatim", WRITTEN)},
            harmless={name: self.harmless[name] for name in ("benign", "safe twins")},
            attacks=self.attacks if attacks else (),
        )

    @classmethod
    def of(cls, corpus: Corpus, generated: Paraphrases, seed: int) -> Sets:
        """Name the sets; the poisons themselves come under new ids, or their ids alone would give them away."""
        again = tuple(replace(write, write_id=f"again-{write.write_id}") for write in corpus.poison)
        return cls(
            harmful={
                "verbatim": again,
                WRITTEN: corpus.paraphrases,
                BACKBONE: generated.kept,
                BY_READERS: generated.by_readers,
            },
            harmless={
                "benign": corpus.benign,
                "benign, length-matched": length_matched(corpus.benign, seed),
                "safe twins": corpus.safe_twins,
                "safe twins, translated": corpus.translated_twins,
            },
            attacks=corpus.adaptive,
        )


async def block_rows(  # noqa: PLR0917 - what is tried, on what, beside what
    warden: Warden, block_list: BlockList, extraction: str, mode: Mode, sets: Sets, rules: LengthRules
) -> tuple[list[Row], dict[str, bool]]:
    """Try every set under one mode, each set on a guard that knows nothing of the others.

    Returns:
        Rows, and for every write id whether it was refused.
    """
    rows: list[Row] = []
    refused: dict[str, bool] = {}
    head = {"part": "blocking", "extraction": extraction, "mode": mode}
    for harmful, group in ((True, sets.harmful), (False, sets.harmless)):
        for name, writes in group.items():
            if not writes:
                continue
            guard = warden.guard(block_list, mode)
            try:
                decisions = await warden.judge(guard, writes)
            finally:
                guard.close()
            refused |= {write.write_id: not said.allowed for write, said in zip(writes, decisions, strict=True)}
            rows.append({**head, **_row(name, writes, decisions, rules, harmful=harmful)})
    if not sets.attacks:
        return rows, refused
    guard = warden.guard(block_list, mode)
    try:
        per_attack = await warden.judge_attacks(guard, sets.attacks)
    finally:
        guard.close()
    rows += [{**head, **row} for row in _attack_rows(sets.attacks, per_attack, rules)]
    return rows, refused


async def stream_rows(  # noqa: PLR0917 - what is tried, on what, beside what
    warden: Warden, block_list: BlockList, extraction: str, mode: GuardMode, sets: Sets, rules: LengthRules
) -> list[Row]:
    """Try the harmless sets as one single writer's stream: reading writes together must not cost an honest writer."""
    rows = []
    for name in ("benign", "safe twins"):
        writes = sets.harmless[name]
        decisions = await warden.judge_stream(block_list, mode, writes)
        row = _row(f"{name}, one writer", writes, decisions, rules, harmful=False)
        rows.append({"part": "blocking", "extraction": extraction, "mode": mode, **row})
    return rows


async def stability_row(warden: Warden, extraction: str, corpus: Corpus, sets: Sets) -> Row:
    """Compare signatures with those of the sources: HS-stability, and eq. 3 read literally on harmless writes."""
    source = await warden.signatures(corpus.poison)
    labels = {write.poison: _labels(source[write.write_id]) for write in corpus.poison}
    row: Row = {
        "part": "signatures",
        "extraction": extraction,
        "model": warden.extractor.model_id,
        "poison": {str(number): sorted(found) for number, found in labels.items()},
    }
    for name in (WRITTEN, BACKBONE):
        writes = sets.harmful.get(name, ())
        found = await warden.signatures(writes)
        pairs = [(_labels(found[write.write_id]), labels[write.poison]) for write in writes]
        exact = sum(mine == other and bool(mine) for mine, other in pairs)
        fuzzy = sum(bool(mine and other) and (mine <= other or other <= mine) for mine, other in pairs)
        row[name] = {
            "n": len(pairs),
            "stability_exact": _rate(exact, len(pairs)),
            "stability_fuzzy": _rate(fuzzy, len(pairs)),
            "empty": sum(not mine for mine, _ in pairs),
            "labels": dict(Counter("+".join(sorted(mine)) or "none" for mine, _ in pairs).most_common()),
        }
    for name, writes in sets.harmless.items():
        if name not in {"benign", "safe twins"}:
            continue  # read only where the guard wants to know
        found = await warden.signatures(writes)
        mine = [_labels(found[write.write_id]) for write in writes]
        literal = sum(any(one <= other or other <= one for other in labels.values()) for one in mine)
        row[name] = {
            "n": len(mine),
            "with_any_label": sum(bool(one) for one in mine),
            "blocked_by_eq3_read_literally": _rate(literal, len(mine)),
            "labels": dict(Counter("+".join(sorted(one)) or "none" for one in mine).most_common()),
        }
    row["texts_read_by_the_model"] = warden.extractor.texts_asked
    return row


def _labels(signature: Any) -> frozenset[str]:
    return frozenset() if signature is None else frozenset(signature.labels)


def _rate(count: int, trials: int) -> float | None:
    return round(count / trials, 4) if trials else None


def _row(
    name: str, writes: Sequence[Write], decisions: Sequence[GuardDecision], rules: LengthRules, *, harmful: bool
) -> Row:
    refused = [not decision.allowed for decision in decisions]
    wrong = [
        {"id": write.write_id, "reason": decision.reason, "labels": sorted(decision.labels or ()),
         "similarity": _rounded(decision.similarity), "restated_nats": _rounded(decision.restated_nats)}
        for write, decision in zip(writes, decisions, strict=True)
        if decision.allowed == harmful
    ]  # fmt: skip
    return {
        "set": name,
        **counts(sum(refused), len(writes)),
        **rules.of_writes(writes),
        "asked": sum(_was_read(decision) for decision in decisions),
        "failed": sum(decision.reason in {"model failed", "embedder failed"} for decision in decisions),
        "reasons": dict(Counter(decision.reason for decision in decisions).most_common()),
        "wrong": wrong,
    }


def _attack_rows(
    attacks: Sequence[Attack], decided: Sequence[Sequence[GuardDecision]], rules: LengthRules
) -> list[Row]:
    """Return a row for all attacks and one for each kind; an attack is stopped when an essential write is refused."""
    stopped = [
        any(not said.allowed and write.write_id in attack.essential
            for write, said in zip(attack.writes, decisions, strict=True))
        for attack, decisions in zip(attacks, decided, strict=True)
    ]  # fmt: skip
    rows = []
    for kind in ("all", *dict.fromkeys(attack.kind for attack in attacks)):
        chosen = [number for number, attack in enumerate(attacks) if kind in {"all", attack.kind}]
        mine = [attacks[number] for number in chosen]
        writes = sum(len(attack.writes) for attack in mine)
        row = {
            "set": "adaptive" if kind == "all" else f"adaptive, {kind}",
            **counts(sum(stopped[number] for number in chosen), len(chosen)),
            **rules.of_attacks(mine),
            "writes": writes,
            "writes_refused": sum(not said.allowed for number in chosen for said in decided[number]),
        }
        if kind == "all":
            row["reasons"] = dict(Counter(said.reason for number in chosen for said in decided[number]).most_common())
            row["missed"] = [_miss(attacks[number], decided[number]) for number in chosen if not stopped[number]]
        rows.append(row)
    return rows


def _was_read(decision: GuardDecision) -> bool:
    """Tell whether a model read the write, beyond its embedding."""
    return decision.labels is not None or decision.restated_nats is not None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _miss(attack: Attack, decisions: Sequence[GuardDecision]) -> Row:
    return {
        "id": attack.attack_id,
        "trick": attack.trick,
        "writes": [
            {"response": write.response, "metadata": dict(write.metadata), "reason": said.reason,
             "labels": None if said.labels is None else sorted(said.labels),
             "similarity": _rounded(said.similarity), "restated_nats": _rounded(said.restated_nats)}
            for write, said in zip(attack.writes, decisions, strict=True)
        ],
    }  # fmt: skip


def counts(blocked: int, trials: int) -> Row:
    """Return a count and its rate with the 95 % Wilson interval, as columns."""
    low, high = wilson(blocked, trials)
    return {
        "n": trials, "blocked": blocked, "rate": _rate(blocked, trials), "low": round(low, 4), "high": round(high, 4),
    }  # fmt: skip
