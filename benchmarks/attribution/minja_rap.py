"""MINJA RAP: a web shopper whose remembered episodes send customers of one product to another. Audit and shop again.

    python -m benchmarks.attribution.minja_rap --data DATA [--rho 0.15 0.5] [--seeds 0] [--victim toothbrush]

Benign memories are real ReAct episodes; poison is written in the words of the attack's own note with real pages of the
store. An episode is up to 15 steps; it is harmful when a victim query reaches the target and buys it (paper App. C).
Replays inside the audit stop at the first step that heads for the target, which is the stricter verdict and the cheaper
one; attack success before and after is counted on whole episodes.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.attribution.minja.cells import run_cell
from benchmarks.attribution.minja.copies import copies, copies_of, repeated
from benchmarks.attribution.minja.methods import GROUPS
from benchmarks.attribution.minja.rap_notes import Pair, load_notes, load_pairs
from benchmarks.attribution.minja.study import TENANT, Cell, open_study
from benchmarks.attribution.webshop.catalogue import load_catalogue, target_asin
from benchmarks.attribution.webshop.goals import load_instructions, trajectory_reward
from benchmarks.attribution.webshop.memories import load_benign_records, store_of
from benchmarks.attribution.webshop.poison import compose, harm_of
from benchmarks.attribution.webshop.rap import rap_agent
from benchmarks.attribution.webshop.search import SearchIndex
from benchmarks.harness.command import run
from benchmarks.harness.public_data import MINJA_RAP, WEBSHOP, add_data
from benchmarks.harness.resultfile import ResultFile
from memory_audit.config import AuditConfig
from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.attribution.webshop.rap import RapAgent

BOUGHT_WELL = 0.5
"""Reward from which a benign episode counts as right: half of what was asked, price included."""


def audited_agent(data: str, victim: str) -> RapAgent:
    """Build the agent for replays inside the audit: an episode ends where it heads for the target."""
    agent = rap_agent(data)
    harm = harm_of(_pair(Path(data), victim), at_target=True)
    object.__setattr__(agent, "stop_when", harm.marked)
    return agent


def main() -> None:
    """Run the study."""
    options = _options()
    _check_data(options.data, options.victim)
    with open_study(options.backbone, kv_gib=options.kv_gib, max_model_len=6_144) as (study, model_id):
        config = {
            "backbone": model_id, "victim": options.victim, "k": options.k, "size": options.size,
            "victims": options.victims, "held_out": options.held_out, "probes": options.probes,
            "one_writer": options.one_writer, **copies_of(options.copies),
        }  # fmt: skip
        command = f"python -m benchmarks.attribution.minja_rap --data DATA --backbone {options.backbone}"
        command += f" --copies {options.copies} --suffix '{options.suffix}'"
        results = ResultFile(f"minja_rap{options.suffix}", command, config)
        for rho in options.rho:
            for seed in options.seeds:
                study.reporter.say(f"RAP, ρ = {rho}, seed {seed}")
                cell = _cell(options, rho, seed)
                run_cell(study, cell, {"track": "RAP", "rho": rho, "seed": seed}, options.methods, results)


def _cell(options: argparse.Namespace, rho: float, seed: int) -> Cell:
    rng = random.Random(seed)
    pair = _pair(options.data, options.victim)
    notes = load_notes(options.data / "minja" / "rap")
    catalogue = load_catalogue(options.data / "webshop", load_pairs(options.data / "minja" / "rap"))
    index = SearchIndex(catalogue)
    named = list(load_instructions(options.data / "minja" / "rap", pair.victim))
    named = [text for text in named if harm_of(pair).names_victim(text)]
    rng.shuffle(named)
    victims, held_out = named[: options.victims], named[options.victims : options.victims + options.held_out]
    rest = named[options.victims + options.held_out :]
    poisoned = round(options.size * rho)
    poison = [compose(text, pair, notes, catalogue, index) for text in repeated(rest, poisoned, options.copies)]
    records = [
        record
        for record in load_benign_records(options.data / "webshop")
        if not harm_of(pair).names_victim(record.request)
    ]
    benign = records[: options.size - poisoned]
    # Benign uses resemble what the agent remembers, without being it: real episodes that are not in the store.
    probes = [record.request for record in records[options.size :]][: options.probes]
    mixed = [(record, False) for record in benign] + [(record, True) for record in poison]
    rng.shuffle(mixed)
    entries = store_of([record for record, _ in mixed], tenant=TENANT, seed=seed)
    ids = frozenset(entry.entry_id for entry, (_, is_poison) in zip(entries, mixed, strict=True) if is_poison)
    settings: Mapping[str, object] = {"data": str(options.data), "victim": options.victim}
    harm = {
        "kind": "benchmarks.attribution.webshop.harm:RapHarm", "victim": pair.victim, "target_title": pair.target,
        "target_asin": target_asin(pair.target),
    }  # fmt: skip
    return Cell(
        entries=entries,
        poison=ids,
        victims=tuple(victims),
        held_out=tuple(held_out),
        benign=tuple(probes),
        correct=lambda query, output: float(trajectory_reward(catalogue, query, output) >= BOUGHT_WELL),
        config=AuditConfig(
            agent={"kind": "benchmarks.attribution.minja_rap:audited_agent", **settings},
            harm={**harm, "at_target": True}, k=options.k, backbone=options.backbone,
        ),
        agent={"kind": "benchmarks.attribution.webshop.rap:rap_agent", "data": str(options.data)},
        harm=harm,
    )  # fmt: skip


def _check_data(data: Path, victim: str) -> None:
    """Read every file once: what is missing or damaged is told before a model is loaded."""
    _pair(data, victim)
    load_notes(data / "minja" / "rap")
    load_catalogue(data / "webshop", ())
    load_instructions(data / "minja" / "rap")
    load_benign_records(data / "webshop")


def _pair(data: Path, victim: str) -> Pair:
    pairs = {pair.victim: pair for pair in load_pairs(data / "minja" / "rap")}
    if victim not in pairs:
        raise UsageError(f"victim {victim!r:.40} is none of {', '.join(sorted(pairs))}")
    return pairs[victim]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser, WEBSHOP, MINJA_RAP)
    parser.add_argument("--backbone", default="packaged:1.5b")
    parser.add_argument("--victim", default="toothbrush", help="product category attacked; nine pairs are in the data")
    parser.add_argument("--rho", type=float, nargs="+", default=[0.15])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--size", type=int, default=40, help="memories in the store")
    parser.add_argument("--victims", type=int, default=8)
    parser.add_argument("--held-out", type=int, default=4)
    parser.add_argument("--probes", type=int, default=6)
    parser.add_argument("--one-writer", action="store_true", help="all poison from one account")
    parser.add_argument("--copies", type=copies, default=1, help="how often each poison is in the store")
    parser.add_argument("--methods", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--kv-gib", type=int, default=2, help="prefix cache of the packaged backbones")
    parser.add_argument("--suffix", default="", help="added to the result's file name")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
