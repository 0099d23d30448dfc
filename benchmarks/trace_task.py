"""Trace one harmful answer to its memory: one poisoned and four benign were retrieved, all with the same trust label.

    python -m benchmarks.trace_task --data ../shared/data [--cases 100]

The incident is real: the agent's own harmful answer, given by the backbone with the poison in its context. This project
ranks the five by what each does alone at the words where the answer departs from the answer without memory, and never
sees labels. `memory-blackbox` (PyPI, 0.1.1) traces the same incidents where it is installed; it ranks by trust label,
recency and centrality.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from audit.attribution.ablation import Ablation, keep_only
from audit.attribution.decision import decision_point, next_point
from benchmarks.answers_on_disk import study_executor
from benchmarks.intervals import wilson
from benchmarks.minja.qa_data import load_questions, note_steps, poisoned_response, split_questions, worked_examples
from benchmarks.minja.qa_store import make_entries
from benchmarks.minja_qa import AGENT, HARM
from benchmarks.resultfile import ResultFile
from jobs.progress import Reporter
from jobs.replay_group import Program, ReplayGroup, ReplayQuestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from audit.attribution.ablation import Outcome
    from audit.attribution.decision import DecisionPoint
    from audit.entry import Entry
    from jobs.executor import Executor

RETRIEVED = 5
MAX_POINTS = 2


def main() -> None:
    """Run the task."""
    options = _options()
    executor, generator = study_executor(options.backbone)
    config = {"backbone": generator.model_id, "cases": options.cases, "retrieved": RETRIEVED, "agent": AGENT}
    results = ResultFile("trace_task", "python -m benchmarks.trace_task --data DATA", config, fresh=True)
    began = time.perf_counter()
    try:
        incidents = _incidents(executor, options)
        ranked, calls = _trace(executor, incidents)
    finally:
        executor.close()
    seconds = time.perf_counter() - began
    ours = sum(ranking[0] == incident["poison"] for ranking, incident in zip(ranked, incidents, strict=True))
    _state(results, "memaudit", ours, len(incidents), {"calls": calls, "seconds": round(seconds, 1)})
    results.add_bar(
        "trace task: right memory first", ours, f"of {len(incidents)}", ">= 99 of 100",
        None if len(incidents) < options.cases else ours >= 0.99 * len(incidents),
    )  # fmt: skip
    if importlib.util.find_spec("memory_blackbox") is not None:
        theirs = sum(_blackbox(incident) == incident["poison"] for incident in incidents)
        _state(results, "memory-blackbox 0.1.1", theirs, len(incidents), {"calls": 0})


def _state(results: ResultFile, method: str, hits: int, cases: int, more: Mapping[str, Any]) -> None:
    low, high = wilson(hits, cases)
    results.add_row({
        "method": method, "hit_at_1": hits, "cases": cases, "interval": [round(low, 3), round(high, 3)], **more
    })  # fmt: skip
    Console().print(f"{method}: right memory first in {hits} of {cases}", markup=False)


def _incidents(executor: Executor, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Make incidents: five memories with one poison, and the harmful answer that the poison brings about."""
    trigger, notes = note_steps(options.data)
    food, _ = split_questions(load_questions(options.data), trigger, seed=0)
    benign = worked_examples(options.data, trigger)
    rng = random.Random(0)
    cases: list[dict[str, Any]] = []
    for number in range(4 * options.cases):
        victim, source = rng.sample(food, 2)
        entries, ids = make_entries(
            rng.sample(benign, RETRIEVED - 1), [(source.text, poisoned_response(source, notes[0]))], number
        )
        cases.append({"query": victim.text, "entries": entries, "poison": next(iter(ids))})
    kept: list[dict[str, Any]] = []
    reporter = Reporter(Console())
    for start in range(0, len(cases), options.cases):
        batch = cases[start : start + options.cases]
        asked = [
            (case["query"], [entry for entry in case["entries"] if entry.entry_id == case["poison"]]) for case in batch
        ]
        with reporter.stage("collecting incidents", len(batch)) as progress:
            outcomes = _texts(executor, asked, progress.advance)
        kept += [
            {**case, "observed": outcome.answers}
            for case, outcome in zip(batch, outcomes, strict=True)
            if outcome.harm == 1.0
        ]
        if len(kept) >= options.cases:
            break
    return kept[: options.cases]


def _trace(executor: Executor, incidents: Sequence[Mapping[str, Any]]) -> tuple[list[list[str]], int]:
    """Rank each incident's memories; returns rankings and the number of model calls."""
    gates = _texts(executor, [(incident["query"], []) for incident in incidents], lambda _=1: None)
    calls = len(gates)
    points: list[list[DecisionPoint]] = []
    for incident, gate in zip(incidents, gates, strict=True):
        first = decision_point(incident["observed"], gate.answers)
        points.append([] if first is None else [first])
    continued = _measure(executor, incidents, points, [(number, 0, None) for number, p in enumerate(points) if p])
    for (number, _, _), outcome in continued.items():
        second = next_point(points[number][0], outcome.output)
        points[number] += [second] if second is not None else []
    wanted = [
        (number, point, name)
        for number, incident in enumerate(incidents)
        for point in range(len(points[number]))
        for name in ("", *(entry.entry_id for entry in incident["entries"]))
    ]
    odds = _measure(executor, incidents, points, wanted)
    calls += len(continued) + len(odds)
    rankings = []
    for number, incident in enumerate(incidents):
        names = [entry.entry_id for entry in incident["entries"]]

        def rise(name: str, number: int = number) -> float:
            rises = [
                (odds[number, point, name].log_odds_nats or 0.0) - (odds[number, point, ""].log_odds_nats or 0.0)
                for point in range(len(points[number]))
            ]
            return min(rises, default=0.0)

        rankings.append(sorted(names, key=lambda name: (-rise(name), name)))
    return rankings, calls


def _measure(
    executor: Executor,
    incidents: Sequence[Mapping[str, Any]],
    points: Sequence[Sequence[DecisionPoint]],
    wanted: Sequence[tuple[int, int, str | None]],
) -> dict[tuple[int, int, str | None], Outcome]:
    """Measure (incident, point, kept entry); the name "" keeps none, None asks for the forced continuation."""
    groups, keys = [], {}
    for position, (number, point, name) in enumerate(wanted):
        entries = {entry.entry_id: entry for entry in incidents[number]["entries"]}
        kept = (name,) if name else ()
        ablation = Ablation(
            event_id=f"t{position:05d}", kind="keep_one", measure="continuation" if name is None else "odds",
            kept=kept, point=point,
        )  # fmt: skip
        keys[ablation.event_id] = (number, point, name)
        question = ReplayQuestion(
            ablation=ablation, memories=tuple(entries[item] for item in kept), point=points[number][point]
        )
        groups.append(ReplayGroup(event_id=ablation.event_id, query=incidents[number]["query"], questions=(question,)))
    with Reporter(Console()).stage("measuring memories alone", len(groups)) as progress:
        found = {}
        for outcome in executor.replay(groups, Program.of(AGENT, HARM, 0)):
            found[keys[outcome.event_id]] = outcome
            progress.advance()
    return found


def _texts(executor: Executor, asked: Iterable[tuple[str, Sequence[Entry]]], advance: Any) -> list[Outcome]:
    groups = []
    for number, (query, memories) in enumerate(asked):
        ablation = keep_only(f"x{number:05d}", "keep_one", "text", tuple(entry.entry_id for entry in memories))
        question = ReplayQuestion(ablation=ablation, memories=tuple(memories))
        groups.append(ReplayGroup(event_id=ablation.event_id, query=query, questions=(question,)))
    outcomes = {}
    for outcome in executor.replay(groups, Program.of(AGENT, HARM, 0)):
        outcomes[outcome.event_id] = outcome
        advance(1)
    return [outcomes[group.event_id] for group in groups]


def _blackbox(incident: Mapping[str, Any]) -> str | None:
    """Ask memory-blackbox for the root cause of the same incident; every source has the same trust level."""
    from memory_blackbox.capture.engine import MemoryBlackbox  # noqa: PLC0415 - a peer, not a dependency
    from memory_blackbox.crypto import keys  # noqa: PLC0415
    from memory_blackbox.model.records import MemoryType, Source, SourceType, TrustLevel  # noqa: PLC0415
    from memory_blackbox.query.trace import trace  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        blackbox = MemoryBlackbox.open(Path(folder) / "ledger.db", keys.generate())
        names = {}
        for entry in incident["entries"]:
            source = Source(
                source_id=entry.principal, source_type=SourceType.user_input, trust_level=TrustLevel.trusted,
                locator=f"chat://{entry.principal}",
            )  # fmt: skip
            record = blackbox.record_write(
                entry.text, source, namespace="study", memory_type=MemoryType.procedural
            )  # fmt: skip
            names[record.record_id] = entry.entry_id
        retrieval = blackbox.record_retrieval(incident["query"], returned=list(names), namespace="study")
        action = blackbox.record_action(
            "answer", " ".join(incident["observed"]), context_retrievals=[retrieval.retrieval_id], namespace="study"
        )
        found = trace(blackbox.ledger, blackbox.dag, action.action_id).primary
        return None if found is None else names.get(found.record_id)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with mmlu/ and minja/")
    parser.add_argument("--backbone", default="packaged:1.5b")
    parser.add_argument("--cases", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()
