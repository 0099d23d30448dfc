"""Attribution head to head on the QA study's stores: ours, leave-one-out, random halves, ContextCite, memory-blackbox.

    python -m benchmarks.attribution.peers --data DATA [--rho 0.2 0.5] [--seeds 0]

Same store, same backbone, same harmful events; the candidates of an event are the memories that it retrieved. Each
method removes its top n memories, n being how many this project's search removes in that cell, and the set that its
own rule gives; the events are then asked again without each set. Answers are shared with the
studies on disk and counted as if computed; seconds are stated where a method's answers were all computed in this run,
which `--fresh` makes sure of.

Peers run where they are installed:

    pip install --no-deps context-cite==0.0.4 memory-blackbox==0.1.1 && pip install datasets blake3 orjson pydantic

A second start continues after the last row. A row is one method in one cell; a second row of it says in how many events
the harm ended. "(whole)" and "(answer selected)" are what ContextCite was asked to explain.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.attribution.minja.qa_data import check_qa_data
from benchmarks.attribution.minja.study import Study
from benchmarks.attribution.minja_qa import AGENT, qa_cell
from benchmarks.attribution.peers import blackbox, contextcite
from benchmarks.attribution.peers.likelihood import load_model, weights_of
from benchmarks.attribution.peers.metered import MeteredBackbone, metered_executor
from benchmarks.attribution.peers.methods import (
    Trial,
    half_ablations,
    leave_one_out,
    measured,
    resemblance,
    set_attribution,
)
from benchmarks.attribution.peers.searching import answer
from benchmarks.attribution.peers.verdicts import Attribution, hits, removal, top
from benchmarks.harness.command import run
from benchmarks.harness.public_data import MINJA_QA, MMLU, add_data
from benchmarks.harness.resultfile import ResultFile
from memory_audit.attribution.replays.ablation import leave_out
from memory_audit.errors import UsageError
from memory_audit.events import HARMFUL
from memory_audit.jobs.executors.replay_group import ReplayQuestion
from memory_audit.jobs.watching.progress import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memory_audit.jobs.executors.local import LocalExecutor

OURS, LOO, HALVES = "ours (set)", "leave-one-out", "random halves"
CITE, CITE_PART = "context-cite 0.0.4 (whole)", "context-cite 0.0.4 (answer selected)"
BLACKBOX = "memory-blackbox 0.1.1"
RULES = ("top_n", "own_rule")
"""Removed sets: as many as ours removes, and what the method itself would remove."""

METHODS = {
    "set": (OURS,),
    "loo": (LOO,),
    "halves": (HALVES,),
    "context-cite": (CITE, CITE_PART),
    "blackbox": (BLACKBOX,),
}

COLLECTIVE_RHO = 0.5
CALLS_BAR = 3.0
"""Set attribution at that rho: at most this many times the calls of plain leave-one-out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every method is given."""

    options: argparse.Namespace
    study: Study
    executor: LocalExecutor
    backbone: MeteredBackbone
    results: ResultFile


def main() -> None:
    """Run what is missing."""
    options = _options()
    check_qa_data(options.data)
    executor, backbone = metered_executor(options.backbone, kv_gib=options.kv_gib)
    study = Study(executor, Reporter(Console()))
    config = {
        "backbone": backbone.model_id, "retrieval": options.retrieval, "k": options.k, "size": options.size,
        "victims": options.victims, "poison": options.poison, "one_writer": options.one_writer, "agent": AGENT,
        "fresh": options.fresh,
    }  # fmt: skip
    command = f"python -m benchmarks.attribution.peers --data DATA --backbone {options.backbone} --rho"
    results = ResultFile(
        f"attribution_peers{options.suffix}", f"{command} {' '.join(str(rho) for rho in options.rho)}", config
    )
    bench = Bench(options=options, study=study, executor=executor, backbone=backbone, results=results)
    try:
        for rho in options.rho:
            for seed in options.seeds:
                _run_cell(bench, rho, seed)
    finally:
        executor.close()
    _bars(results)


def _run_cell(bench: Bench, rho: float, seed: int) -> None:
    key = {"rho": rho, "seed": seed}
    rows = [row for row in bench.results.rows if (row["rho"], row["seed"]) == (rho, seed)]
    done = {row["method"]: row for row in rows if "calls" in row}
    asked = {row["method"] for row in rows if "harm_ended" in row}
    wanted = [name for name in METHODS if name in bench.options.methods and METHODS[name][0] not in done]
    if (not wanted and asked >= set(done)) or any(row["events"] == 0 for row in rows):
        return
    bench.study.reporter.say(f"ρ = {rho}, seed {seed}: {', '.join(wanted)}")
    # Only victims matter here: probes and held-out queries are the QA study's.
    cell = dataclasses.replace(qa_cell(bench.options, bench.executor, rho, seed), held_out=(), benign=())
    attacked = bench.study.attack(cell)
    events = bench.study.events(cell, attacked)
    if not events:
        bench.results.add_row({**key, "method": "none: no harm was done", "events": 0})
        return
    trial = Trial(
        executor=bench.executor, config=cell.config, memory=attacked["memory"], events=events,
        reporter=bench.study.reporter,
    )  # fmt: skip
    for name in wanted:
        for method, found in _attributions(bench, name, trial).items():
            # Ours needs no count: it is where the count comes from, and reaches memories that no event retrieved.
            own = found.chosen if method == OURS else None
            if own is None and OURS not in done:
                raise UsageError("how many memories to remove is not known yet: run method set first")
            ranked = top(found, len(done[OURS]["top_n"]["ids"])) if own is None else own
            done[method] = {
                **key, "method": method, **hits(found, cell.poison), "poison": len(cell.poison), **found.cost.row(),
                **_removals(found, ranked, cell.poison), **found.more,
            }  # fmt: skip
            bench.results.add_row(done[method])
            bench.study.reporter.say(f"{method}: first right in {done[method]['hit_at_1']:g} of {len(events)}")
    _ask_again(bench, trial, key, {method: row for method, row in done.items() if method not in asked})


def _attributions(bench: Bench, name: str, trial: Trial) -> Mapping[str, Attribution]:
    """Run one method; a peer that is not installed gives nothing."""
    if name == "set":
        resembles = resemblance(trial.memory.entries, trial.config, trial.executor)
        return {OURS: _metered(bench, lambda: set_attribution(trial, resembles))}
    if name == "loo":
        return {LOO: _metered(bench, lambda: leave_one_out(trial))}
    if name == "halves":
        return {HALVES: _metered(bench, lambda: half_ablations(trial))}
    module = contextcite if name == "context-cite" else blackbox
    if not module.installed():
        trial.reporter.say(f"{name} is not installed: left out")
        return {}
    if name == "context-cite":
        model, tokenizer = load_model(weights_of(bench.options.backbone))
        whole, part = contextcite.attribute(trial, model, tokenizer, part=answer_part)
        return {CITE: whole} if part is None else {CITE: whole, CITE_PART: part}
    return {BLACKBOX: blackbox.attribute(trial)}


def _metered(bench: Bench, method: Callable[[], Attribution]) -> Attribution:
    return measured(method, [bench.backbone], fresh=bench.options.fresh)


def answer_part(output: str) -> tuple[int, int] | None:
    """Return the range of the last "Answer: X": what a user would select, who asks why the agent answered X."""
    found = list(re.finditer(r"answer\s*(?:is|:)\s*\W{0,3}[A-Z]\b", output, re.IGNORECASE))
    return found[-1].span() if found else None


def _removals(found: Attribution, ranked: frozenset[str], poison: frozenset[str]) -> dict[str, Any]:
    candidates = frozenset(name for scores in found.scores.values() for name in scores)
    sets = {"top_n": ranked} | ({} if found.chosen is None else {"own_rule": found.chosen})
    return {rule: {**removal(chosen, candidates, poison), "ids": sorted(chosen)} for rule, chosen in sets.items()}


def _ask_again(bench: Bench, trial: Trial, key: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Ask every harmful event again without each removed set, all together; a row per method says how many ended."""
    asked = {
        (method, rule, event.event_id): leave_out(event.event_id, "removal", "text", set(row[rule]["ids"]))
        for method, row in rows.items()
        for rule in RULES
        if rule in row
        for event in trial.events
    }
    queries = {event.event_id: event.query for event in trial.events}
    questions = [
        (query, ReplayQuestion(ablation=ablation, memories=trial.memory.retrieve(query, frozenset(ablation.removed))))
        for ablation in {ablation.pair_id: ablation for ablation in asked.values()}.values()
        for query in (queries[ablation.event_id],)
    ]
    outcomes = answer(trial.executor, trial.program, questions, trial.reporter, "asking again")
    for method, row in rows.items():
        ended = {
            rule: sum(
                harm is not None and harm < HARMFUL
                for event in trial.events
                for harm in (outcomes[asked[method, rule, event.event_id].pair_id].harm,)
            )
            for rule in RULES
            if rule in row
        }
        bench.results.add_row({**key, "method": method, "events": len(trial.events), "harm_ended": ended})


def _bars(results: ResultFile) -> None:
    """State the issue's bar on calls, over all cells at that rho."""
    rows = [row for row in results.rows if row["rho"] == COLLECTIVE_RHO and "calls" in row]
    calls = {name: sum(row["calls"] for row in rows if row["method"] == name) for name in (OURS, LOO)}
    cells = {name: {row["seed"] for row in rows if row["method"] == name} for name in (OURS, LOO)}
    if not calls[LOO] or cells[OURS] != cells[LOO]:
        return
    ratio = round(calls[OURS] / calls[LOO], 2)
    results.add_bar(
        f"set attribution at ρ = {COLLECTIVE_RHO}: calls over plain leave-one-out", ratio, "x", f"<= {CALLS_BAR:.0f}",
        ratio <= CALLS_BAR,
    )  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser, MMLU, MINJA_QA)
    parser.add_argument("--backbone", default="packaged:1.5b")
    parser.add_argument("--rho", type=float, nargs="+", default=[0.2, 0.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS))
    parser.add_argument("--fresh", action="store_true", help="compute every method's answers, to take their time")
    parser.add_argument("--retrieval", choices=("dense", "levenshtein"), default="dense")
    parser.add_argument("--k", type=int, default=3, help="memories retrieved")
    parser.add_argument("--size", type=int, default=40, help="memories in the store")
    parser.add_argument("--victims", type=int, default=8)
    parser.add_argument("--poison", choices=("composed", "injected"), default="composed")
    parser.add_argument("--one-writer", action="store_true", help="all poison from one account")
    parser.add_argument("--kv-gib", type=int, default=2, help="prefix cache of the packaged backbones")
    parser.add_argument("--suffix", default="", help="added to the result's file name")
    # Of the QA study: the same store needs the same split of the questions.
    parser.add_argument("--held-out", type=int, default=4, help=argparse.SUPPRESS)
    parser.add_argument("--probes", type=int, default=6, help=argparse.SUPPRESS)
    parser.set_defaults(copies=1)
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
