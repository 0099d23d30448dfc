"""Published attribution methods beside this project's, on the same stores, backbone and harmful events.

    python -m benchmarks.attribution.published_methods --data DATA [--store poisonedrag conflictqa clean]
        [--poisons 5 2 1] [--methods ours RAGOrigin] [--readers packaged:1.5b-int8 packaged:0.5b]

The stores are those of `benchmarks.attribution.public_stores`; `clean` is ConflictQA without what is planted, where
every wrong answer is reported. The agent is run first; what it does harmfully are the events. RAGForensics and
RAGOrigin run in one pass, and until the harm of all events ends; each of `--readers` is their judge and proxy (as a
proxy, the original of one rounded to int8). TracLLM's scores are told how many passages of each event are planted, and
are cut at half of the maximum. ContextCite and memory-blackbox run where they are installed;
`benchmarks.attribution.peers` says how, and how costs are counted.

A row is one method on one store: what it removed of either kind, what it found of the passages planted where memory
mattered (there), harmful answers and right probes before and after. A second start continues after the last row.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.attribution.minja.study import Study
from benchmarks.attribution.peers import blackbox, contextcite
from benchmarks.attribution.peers.embedded_store import EmbeddedStore
from benchmarks.attribution.peers.likelihood import TeacherForced, load_model, weights_of
from benchmarks.attribution.peers.metered import MeteredBackbone, metered_executor
from benchmarks.attribution.peers.methods import (
    Reading,
    Trial,
    leave_one_out,
    measured,
    reading_with,
    resemblance,
    set_attribution,
)
from benchmarks.attribution.peers.ragforensics import rag_forensics
from benchmarks.attribution.peers.ragorigin import rag_origin
from benchmarks.attribution.peers.repeated import until_harm_ends
from benchmarks.attribution.peers.tracllm import above_half, single_text, true_count
from benchmarks.attribution.public_stores.stores import CONTRADICTIONS, PASSAGES, Asked, build_stores, planted_there
from benchmarks.harness.command import run
from benchmarks.harness.public_data import CONFLICTQA, POISONEDRAG, add_data
from benchmarks.harness.resultfile import ResultFile
from memory_audit.events import HARMFUL
from memory_audit.jobs.watching.progress import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.attribution.peers.likelihood import Likelihood
    from benchmarks.attribution.peers.verdicts import Attribution
    from benchmarks.attribution.public_stores.stores import PlantedStore

__all__ = ["Bench", "Reader", "compare", "state"]

CLEAN = "clean"
SIZES = {PASSAGES: (40, 70), CONTRADICTIONS: (40, 80), CLEAN: (40, 80)}
"""Questions, and passages of others, by default."""

OURS, LOO, FORENSICS, ORIGIN, TRACLLM = "ours", "leave-one-out", "RAGForensics", "RAGOrigin", "TracLLM"
CITE, BLACKBOX = "context-cite", "memory-blackbox"
METHODS = (OURS, LOO, FORENSICS, ORIGIN, TRACLLM, CITE, BLACKBOX)
"""What a method's name in a row begins with."""

NO_HARM = "none: no harm was done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A model that judges texts, and one of the same weights that says how likely they are."""

    name: str
    judge: Reading
    proxy: Likelihood


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where methods run, and what is wanted."""

    study: Study
    meters: Sequence[MeteredBackbone]
    readers: Sequence[Reader]
    """Those of the backbone's weights first."""

    backbone: str
    methods: Sequence[str]
    fresh: bool
    results: ResultFile


def main() -> None:
    """Run what is missing."""
    options = _options()
    draws = list(_draws(options))
    executor, backbone = metered_executor(options.backbone, kv_gib=options.kv_gib)
    meters = {options.backbone: backbone}
    for name in options.readers:
        if name not in meters:
            meters[name] = metered_executor(name, kv_gib=1)[1]
    command = (
        f"python -m benchmarks.attribution.published_methods --data DATA --backbone {options.backbone} "
        f"--readers {' '.join(options.readers)}{' --fresh' * options.fresh}"
    )
    results = ResultFile(
        f"attribution_methods{options.suffix}", command, {"backbone": backbone.model_id, "fresh": options.fresh}
    )
    bench = Bench(
        study=Study(executor, Reporter(Console())), meters=tuple(meters.values()), backbone=options.backbone,
        methods=options.methods, fresh=options.fresh, results=results,
        readers=[
            Reader(name=name, judge=reading_with(executor, meters[name]), proxy=TeacherForced(partial(_load, name)))
            for name in options.readers
        ],
    )  # fmt: skip
    try:
        for key, stores in draws:
            for part, store in enumerate(stores):
                compare(bench, {**key, "part": part, "parts": len(stores)}, store)
            state(results, key["kind"], key["poisons"])
    finally:
        for meter in bench.meters[1:]:
            executor.run(meter.close())
        executor.close()


def compare(bench: Bench, key: Mapping[str, Any], store: PlantedStore) -> None:
    """Run the methods that have no row yet on one store."""
    study, cell = bench.study, store.cell
    done = {row["method"] for row in bench.results.rows if row.items() >= key.items()}
    if NO_HARM in done:
        return
    study.reporter.say(f"{key['kind']}, {key['poisons']} planted, store {key['part'] + 1} of {key['parts']}")
    attacked, alone = study.attack(cell), study.without_memory(cell)
    events = tuple(event for event in study.events(cell, attacked) if event.harm == "harmful")
    if not events:
        bench.results.add_row({**key, "method": NO_HARM, "events": 0})
        return
    mattered = [event for event in events for harm in (alone[event.query].harm,) if harm is not None and harm < HARMFUL]
    there = planted_there(cell, mattered)
    embedded = EmbeddedStore(cell.entries, cell.victims, cell.config.k, study.executor.embedder)
    trial = Trial(
        executor=study.executor, config=cell.config, memory=embedded.without(), events=events, reporter=study.reporter
    )
    for name, method in _methods(bench, trial, embedded, cell.poison):
        if name in done or not name.startswith(tuple(bench.methods)):
            continue
        found = measured(method, bench.meters, [reader.proxy for reader in bench.readers], fresh=bench.fresh)
        removed = found.chosen or frozenset()
        row = {
            **key, "method": name, "events": len(events), "mattered": len(mattered), "there": len(there),
            "there_removed": len(removed & there), **study.after(cell, attacked, removed), **found.cost.row(),
            **found.more,
        }  # fmt: skip
        bench.results.add_row(row)
        study.reporter.say(f"{name}: removed {row['poison_removed']} planted and {row['benign_removed']} others")


def _methods(
    bench: Bench, trial: Trial, embedded: EmbeddedStore, poison: frozenset[str]
) -> Iterator[tuple[str, Callable[[], Attribution]]]:
    """Yield every method that can run here by the name that its rows have."""
    yield OURS, lambda: set_attribution(trial, resemblance(trial.memory.entries, trial.config, trial.executor))
    yield LOO, partial(leave_one_out, trial)
    for reader in bench.readers:
        forensics = partial(rag_forensics, judge=reader.judge)
        origin = partial(rag_origin, judge=reader.judge, proxy=reader.proxy, similarity=embedded.similarity)
        for title, method in ((FORENSICS, forensics), (ORIGIN, origin)):
            yield f"{title}, one pass ({reader.name})", partial(method, trial)
            yield f"{title}, until the harm ends ({reader.name})", partial(until_harm_ends, trial, embedded, method)

    def single(choose: Callable[[Mapping[str, Mapping[str, float]]], frozenset[str]]) -> Attribution:
        found = single_text(trial, bench.readers[0].proxy)
        return dataclasses.replace(found, chosen=choose(found.scores))

    yield f"{TRACLLM} STC, true count", partial(single, partial(true_count, poison=poison))
    yield f"{TRACLLM} STC, above half", partial(single, above_half)
    if contextcite.installed():
        yield f"{CITE} 0.0.4", lambda: contextcite.attribute(trial, *_load(bench.backbone))[0]
    if blackbox.installed():
        yield f"{BLACKBOX} 0.1.1", partial(blackbox.attribute, trial)


def state(results: ResultFile, store: str, poisons: int) -> None:
    """Say where ours is not ahead of each method, and what it costs beside the best of them."""
    totals: dict[str, Counter[str]] = {}
    for row in results.rows:
        if (row["kind"], row["poisons"]) == (store, poisons) and row["method"] != NO_HARM:
            counts = {name: value for name, value in row.items() if isinstance(value, (int, float))}
            totals.setdefault(row["method"], Counter()).update(counts)
    ours = totals.pop(OURS, None)
    if ours is None or any(total["victims"] != ours["victims"] for total in totals.values()):
        return
    of = store if store == CLEAN else f"{store}, {poisons} planted a question"
    if store == CLEAN:
        removed = ours["removed"]
        results.add_bar(f"{of}: memories removed by ours", removed, "", "none", removed == 0)
        return
    ahead = [
        name
        for name, total in totals.items()
        if _recall(total) > _recall(ours) or (total["removed"] and _precision(total) > _precision(ours))
    ]
    results.add_bar(f"{of}: methods ahead of ours in precision or recall", len(ahead), ", ".join(ahead), "none",
                    not ahead if totals else None)  # fmt: skip
    if totals:
        best = max(totals, key=lambda name: (_f1(totals[name]), -totals[name]["computed_tokens"]))
        ratio = ours["computed_tokens"] / max(totals[best]["computed_tokens"], 1)
        results.add_bar(f"{of}: tokens computed, ours over the best of them", round(ratio, 2), f"x {best}", "< 1",
                        ratio < 1)  # fmt: skip


def _precision(total: Counter[str]) -> float:
    return total["poison_removed"] / total["removed"] if total["removed"] else 0.0


def _recall(total: Counter[str]) -> float:
    return total["there_removed"] / total["there"] if total["there"] else 0.0


def _f1(total: Counter[str]) -> float:
    both = _precision(total) + _recall(total)
    return 2 * _precision(total) * _recall(total) / both if both else 0.0


def _load(backbone: str) -> tuple[Any, Any]:
    return load_model(weights_of(backbone))


def _draws(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], list[PlantedStore]]]:
    for store in options.store:
        questions, benign = SIZES[store]
        for poisons in {PASSAGES: options.poisons, CONTRADICTIONS: [1], CLEAN: [0]}[store]:
            key = {
                "kind": store, "poisons": poisons, "seed": options.seed, "questions": options.questions or questions,
                "benign": options.benign or benign,
            }  # fmt: skip
            asked = Asked(
                store=CONTRADICTIONS if store == CLEAN else store, questions=key["questions"], benign=key["benign"],
                poisons=poisons, part=options.part, seed=options.seed,
            )  # fmt: skip
            yield key, build_stores(options.data, asked)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser, CONFLICTQA, POISONEDRAG)
    parser.add_argument("--store", choices=tuple(SIZES), nargs="+", default=list(SIZES))
    parser.add_argument("--questions", type=int, help="of each store: 40")
    parser.add_argument("--benign", type=int, help="passages of other questions: 80, of poisonedrag 70")
    parser.add_argument("--poisons", type=int, nargs="+", default=[5, 2, 1], help="planted of each; of poisonedrag")
    parser.add_argument("--part", type=int, default=20, help="most questions of one store")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backbone", default="packaged:1.5b-int8")
    parser.add_argument("--readers", nargs="+", help="judges and proxies; the backbone")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--fresh", action="store_true", help="compute every method's answers, to take their time")
    parser.add_argument("--kv-gib", type=int, default=2, help="prefix cache of the packaged backbones")
    parser.add_argument("--suffix", default="", help="added to the result's file name")
    options = parser.parse_args()
    options.readers = options.readers or [options.backbone]
    return options


if __name__ == "__main__":
    run(main)
