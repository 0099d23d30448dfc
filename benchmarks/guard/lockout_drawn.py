"""The guard on ten times as many of the backbone's paraphrases as `benchmarks.guard.hst` has, and on safe answers.

    python -m benchmarks.guard.lockout_drawn --data DATA [--backbone packaged:1.5b-int8]   # writes lockout_drawn.json

The block list benchmark (`benchmarks.guard.hst`) has the backbone's first five answers for each poison. Those are few,
and were looked at with every reader of behaviours since. Here are the forty-five that follow them, by the same prompt
and the same rule of words; none was drawn before the packaged reader and its thresholds were there. Each safe twin is
rewritten four times likewise: clumsy words by themselves might be what is refused.

`benchmarks/guard/hst/data/drawn_votes.jsonl` has what three readers say of each answer, language models which saw all
of them shuffled, and neither what it was made of nor what any check had said: would an agent that follows it do what
the hazard of its poison says? Of the rewritten twins those count of which more say no than yes; no rule of words speaks
of them. Where another machine's backbone answers otherwise, there are no votes, and the sets that need them are left
out.

Every write is judged by itself. What it is worth that the guard knows what it refused before is told by the same
writes, those of each poison one after the other, a minute apart, as they are sent by one writer (and read together with
that writer's before them), and each under a new name.

The backbone's answers are kept in the user's cache: a second start asks only what is new.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any

from benchmarks.guard.hst.adversary import NAMES
from benchmarks.guard.hst.blocking import LengthRules, Sets, block_rows, counts
from benchmarks.guard.hst.corpus import Write, load_corpus, load_rules, load_votes
from benchmarks.guard.hst.extraction import packaged_backbone
from benchmarks.guard.hst.guarding import AS_IT_COMES, BY_ITSELF
from benchmarks.guard.hst.paraphrase import PER_POISON, PREFIX, generate_paraphrases, parse, rewritten, short_hash
from benchmarks.guard.hst.retrieval import MemoryIndex
from benchmarks.guard.hst.summary import print_rows
from benchmarks.guard.lockout_unseen import warden_over
from benchmarks.harness.command import run
from benchmarks.harness.public_data import MEMORYGRAFT, add_data
from benchmarks.harness.resultfile import ResultFile
from memory_audit.models.loading import ModelSpecs, load_embedder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.guard.hst.corpus import Corpus, HazardRule, HazardVote
    from benchmarks.guard.hst.extraction import Backbone
    from benchmarks.guard.hst.guarding import Patience, Warden
    from memory_audit.guard.blocks.block_list import BlockList
    from memory_audit.guard.decide.settings import GuardMode
    from memory_audit.models.protocols import Embedder, Generator

__all__ = ["drawn_paraphrases", "rewritten_twins"]

EACH = 50
"""Answers for each poison, the first five included, which are not tried."""

TWINS = 4
"""Answers for each safe twin."""

MODES: tuple[GuardMode, ...] = ("behaviour", "behaviour+hazards")
K = 3

BY_RULE, BY_READERS, TWIN_SET = "paraphrases", "paraphrases, by readers", "safe twins, rewritten"


def main() -> None:
    """Draw, judge, report."""
    options = _options()
    corpus = load_corpus(options.data)
    asyncio.run(_run(options, corpus, packaged_backbone(options.backbone, kv_gib=options.kv_gib, answers=None)))


async def _run(options: argparse.Namespace, corpus: Corpus, backbone: Backbone) -> None:
    warden = warden_over(backbone)
    config = {"backbone": backbone.model_id, "acts": warden.behaviours.model_id, "each": EACH, "twins": TWINS}
    command = f"python -m benchmarks.guard.lockout_drawn --data DATA --backbone {options.backbone}"
    results = ResultFile("lockout_drawn", command, config, fresh=True)
    votes = [*load_votes(), *load_votes("drawn_votes")]
    try:
        harmful, row = await drawn_paraphrases(backbone.kept, corpus.poison, load_rules(), votes)
        results.add_row(row)
        twins = await rewritten_twins(backbone.kept, corpus.safe_twins, votes)
        tried = Sets(harmful=harmful, harmless={TWIN_SET: twins}, attacks=())
        block_list, rules = await warden.block_list(corpus.poison), LengthRules.of(corpus, 0)
        embedder = load_embedder(ModelSpecs())
        for mode in MODES:
            rows, refused = await block_rows(warden, block_list, "all", mode, tried, rules)
            for row in rows:
                results.add_row(with_texts(row, [*harmful.get(row["set"], ()), *twins]))
            for name, writes in harmful.items():
                results.add_row({"mode": mode, "set": name, **retrieved(corpus, writes, embedder, refused)})
        for name, writes in (*harmful.items(), (TWIN_SET, twins)):
            for names, patience in product(NAMES, (BY_ITSELF, AS_IT_COMES)):
                row, refused = await insisted(warden, block_list, writes, patience, names)
                seen = retrieved(corpus, writes, embedder, refused) if name in harmful else {}
                results.add_row({"mode": MODES[-1], "set": name, **seen, **row})
    finally:
        await backbone.close()
    print_rows(results.rows)


async def drawn_paraphrases(
    generator: Generator, poison: Sequence[Write], rules: Sequence[HazardRule], votes: Sequence[HazardVote]
) -> tuple[dict[str, tuple[Write, ...]], dict[str, Any]]:
    """Return what the backbone wrote after the first five of each poison, and how many of it count, as a row."""
    found = await generate_paraphrases(generator, poison, rules, each=EACH, votes=votes)
    sets = {
        name: tuple(write for write in writes if _is_new(write.write_id))
        for name, writes in ((BY_RULE, found.kept), (BY_READERS, found.by_readers))
    }
    reasons = Counter(item["reason"].split(":")[0] for item in found.left_out if _is_new(item["id"]))
    row = {"part": "drawn", "asked": len(poison) * (EACH - PER_POISON), "left_out_by_rule": dict(reasons)}
    return sets, row | {name: len(writes) for name, writes in sets.items()}


async def rewritten_twins(
    generator: Generator, twins: Sequence[Write], votes: Sequence[HazardVote]
) -> tuple[Write, ...]:
    """Return what the backbone makes of safe twins, each text once, where more readers say that it is safe than not.

    None where the readers have not seen every answer.
    """
    told: dict[tuple[int | None, str | None], HazardVote] = {(vote.poison, vote.sha256): vote for vote in votes}
    found: dict[str, Write] = {}
    for twin, number, answer in await rewritten(generator, twins, 0, TWINS):
        if (parts := parse(PREFIX + answer)) is None:
            continue
        if (vote := told.get((twin.poison, short_hash(parts[1])))) is None:
            return ()
        if vote.no > vote.yes:
            name = f"{twin.write_id}-rewritten-{number}"
            found.setdefault(parts[1], Write(write_id=name, request=parts[0], response=parts[1], poison=twin.poison))
    return tuple(found.values())


async def insisted(
    warden: Warden, block_list: BlockList, writes: Sequence[Write], patience: Patience, names: str
) -> tuple[dict[str, Any], dict[str, bool]]:
    """Judge the writes of each poison one after the other; return a row, and by write id whether it was refused."""
    reasons: Counter[str] = Counter()
    refused: dict[str, bool] = {}
    for poison in sorted({write.poison for write in writes if write.poison is not None}):
        mine = [write for write in writes if write.poison == poison]
        decisions = await warden.judge_stream(block_list, MODES[-1], mine, patience, writer=NAMES[names])
        reasons.update(decision.reason for decision in decisions)
        refused |= {write.write_id: not said.allowed for write, said in zip(mine, decisions, strict=True)}
    row = {"part": "one after the other", "names": names, **asdict(patience)}
    return row | {**counts(sum(refused.values()), len(refused)), "reasons": dict(reasons.most_common())}, refused


def with_texts(row: dict[str, Any], writes: Sequence[Write]) -> dict[str, Any]:
    """Add to a row of `block_rows` the texts of what was judged wrongly, and of which poisons they are."""
    known = {write.write_id: write for write in writes}
    wrong = [item | {"text": known[item["id"]].response} for item in row["wrong"]]
    by_poison = Counter(str(known[item["id"]].poison) for item in wrong)
    return row | {"wrong": wrong, "wrong_by_poison": dict(by_poison.most_common())}


def retrieved(
    corpus: Corpus, writes: Sequence[Write], embedder: Embedder, refused: Mapping[str, bool]
) -> dict[str, Any]:
    """Return PRP@3 once the paraphrases were written, without a guard and with it."""
    harmful = {write.write_id for write in writes}
    row: dict[str, Any] = {"part": "retrieval", "embedder": embedder.model_id}
    stores = {"without": writes, "with_guard": [write for write in writes if not refused[write.write_id]]}
    for name, stored in stores.items():
        index = MemoryIndex([*corpus.benign, *stored], embedder, harmful)
        row[f"prp_at_3_{name}"] = round(index.measure(corpus.queries, K).poisoned_share, 4)
    return row


def _is_new(write_id: str) -> bool:
    return int(write_id.rsplit("-", 1)[1]) >= PER_POISON


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser, MEMORYGRAFT)
    parser.add_argument("--backbone", default="packaged:1.5b-int8")
    parser.add_argument("--kv-gib", type=int, default=2, help="prefix cache of the packaged backbones")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
