"""Trace one harmful answer to its memory: one poisoned and four benign were retrieved, all with the same trust label.

    python -m benchmarks.trace_task --data ../shared/data [--cases 100]

Every incident is an agent's own: a store of one poison among human-written examples, the five best matches of a victim
question by embedding, and the harmful answer that the backbone gave with those five in front of it; questions whose
answer was not harmful, or whose five had no poison, are passed over. This project ranks the five by the first phases of
its search, up to where memories are ranked; it never sees labels. `memory-blackbox` (PyPI, 0.1.1) traces the same
incidents where it is installed; it ranks by trust label, recency and centrality.

A row is one batch of questions and the incidents among them; a second start continues after the last row. Calls and
tokens are those of ranking, counted as if no answer had been on disk.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from audit.attribution.ablation import leave_out
from audit.attribution.retrieval import RankedMemory, dense_ranker
from audit.attribution.search import HARMFUL, SearchSettings, SetSearch
from audit.config import AuditConfig
from audit.events import Event
from benchmarks.attribution_peers import blackbox
from benchmarks.attribution_peers.metered import MeteredBackbone, metered_executor
from benchmarks.attribution_peers.searching import GROWING, Searched, answer, run_searches
from benchmarks.attribution_peers.verdicts import hit_at_1
from benchmarks.intervals import wilson
from benchmarks.minja.qa_data import load_questions, note_steps, poisoned_response, split_questions, worked_examples
from benchmarks.minja.qa_store import make_entries
from benchmarks.minja.study import NOW_MS, TENANT
from benchmarks.minja_qa import AGENT, HARM
from benchmarks.resultfile import ResultFile
from jobs.progress import Reporter
from jobs.replay_group import Program, ReplayQuestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from audit.entry import Entry
    from jobs.executor import Executor

RETRIEVED = 5
STORE_BENIGN = 39
"""Benign memories around the one poison of a case's store, drawn from all worked examples."""

LIKELY = 10
"""The poison's question is one of this many that are most like the victim's: an attacker writes for his victims."""

BATCH = 64
"""Questions asked at once in search of incidents: as many as the engine decodes together."""

MOST_BATCHES = 40

BAR = 0.99
OURS, BLACKBOX = "memaudit", "memory-blackbox 0.1.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A victim question and the five memories it retrieves, one of them poison."""

    event_id: str
    query: str
    memory: RankedMemory
    poison: frozenset[str]


def main() -> None:
    """Run what is missing."""
    options = _options()
    executor, backbone = metered_executor(options.backbone)
    reporter = Reporter(Console())
    config = {
        "backbone": backbone.model_id, "cases": options.cases, "retrieved": RETRIEVED, "store": STORE_BENIGN + 1,
        "agent": AGENT,
    }  # fmt: skip
    command = f"python -m benchmarks.trace_task --data DATA --backbone {options.backbone} --cases {options.cases}"
    results = ResultFile("trace_task", command, config)
    if not blackbox.installed():
        reporter.say("memory-blackbox is not installed: its side is left out")
    try:
        maker = CaseMaker(executor, options.data)
        batches = [row for row in results.rows if "batch" in row]
        for number in range(len(batches), MOST_BATCHES):
            missing = options.cases - sum(row["cases"] for row in batches)
            if missing <= 0:
                break
            row = trace_batch(executor, backbone, maker.batch(number), missing, reporter)
            results.add_row({"batch": number, **row})
            batches.append(row)
            found = sum(row["cases"] for row in batches)
            reporter.say(f"{found} incidents, {OURS} right in {sum(row[OURS] for row in batches):g}")
    finally:
        executor.close()
    state(results, batches, options.cases)


class CaseMaker:
    """Makes cases, the same ones at each start: batch n does not depend on the batches before it."""

    def __init__(self, executor: Executor, data: Path) -> None:
        trigger, notes = note_steps(data)
        self._note = notes[0]
        self._food, _ = split_questions(load_questions(data), trigger, seed=0)
        self._benign = worked_examples(data, trigger)
        texts = [*(question.text for question in self._food), *(request for request, _ in self._benign)]
        vectors = executor.embed(texts)
        self._vectors = dict(zip(texts, vectors, strict=True))
        food = np.round(vectors[: len(self._food)] @ vectors[: len(self._food)].T, 6)
        self._alike = np.argsort(-food, axis=1, kind="stable")

    def batch(self, number: int, size: int = BATCH) -> list[Case]:
        """Return the cases of one batch."""
        rng = random.Random(number)
        cases: list[Case] = []
        while len(cases) < size:
            asked = rng.randrange(len(self._food))
            victim = self._food[asked]
            near = [self._food[other] for other in self._alike[asked] if other != asked][:LIKELY]
            source = rng.choice(near)
            entries, poison = make_entries(
                rng.sample(self._benign, STORE_BENIGN), [(source.text, poisoned_response(source, self._note))],
                rng.randrange(1 << 30),
            )  # fmt: skip
            store = self._memory(entries, victim.text)
            retrieved = store.retrieve(victim.text)
            if not any(entry.entry_id in poison for entry in retrieved):
                continue
            five = tuple(entry for entry in entries if entry in retrieved)
            cases.append(
                Case(
                    event_id=f"trace-{number:02d}-{len(cases):02d}", query=victim.text,
                    memory=self._memory(five, victim.text), poison=poison,
                )
            )  # fmt: skip
        return cases

    def _memory(self, entries: Sequence[Entry], query: str) -> RankedMemory:
        vectors = np.stack([self._vectors[entry.request] for entry in entries])
        return RankedMemory(entries, dense_ranker(vectors, {query: self._vectors[query]}), RETRIEVED)


def trace_batch(
    executor: Executor, backbone: MeteredBackbone, cases: Sequence[Case], most: int, reporter: Reporter
) -> dict[str, Any]:
    """Ask the cases, and trace the first `most` harmful answers among them; returns the row."""
    program = Program.of(AGENT, HARM, 0)
    asked = {case.event_id: leave_out(case.event_id, "full", "text", frozenset()) for case in cases}
    questions = [
        (case.query, ReplayQuestion(ablation=asked[case.event_id], memories=case.memory.retrieve(case.query)))
        for case in cases
    ]
    outcomes = answer(executor, program, questions, reporter, "collecting incidents")
    incidents: list[tuple[Case, Event]] = []
    for case in cases:
        outcome = outcomes[asked[case.event_id].pair_id]
        if outcome.harm is not None and outcome.harm >= HARMFUL and len(incidents) < most:
            event = Event(
                event_id=case.event_id, tenant=TENANT, ts_ms=NOW_MS, query=case.query, output=outcome.output,
                retrieved=tuple(entry.entry_id for entry in case.memory.retrieve(case.query)), harm="harmful",
            )  # fmt: skip
            incidents.append((case, event))
    settings = SearchSettings(culprit_nats=AuditConfig(agent=AGENT, harm=HARM).culprit_nats)
    searches = [
        Searched(search=SetSearch(case.memory, [event], settings), memory=case.memory) for case, event in incidents
    ]
    backbone.begin(fresh=False)
    try:
        run_searches(executor, program, searches, reporter, "ranking memories", stop_at=GROWING)
    finally:
        cost = backbone.end()
    ranked = [
        (case, {name: found.search.states[event.event_id].credit_of(name) for name in event.retrieved or ()})
        for found, (case, event) in zip(searches, incidents, strict=True)
    ]
    row: dict[str, Any] = {
        "asked": len(cases), "cases": len(incidents), "calls": cost.calls, "computed_tokens": cost.computed_tokens,
        OURS: round(sum(hit_at_1(scores, case.poison) for case, scores in ranked), 3),
        "missed": [
            {
                "event": case.event_id, "credits_nats": sorted(round(value, 2) for value in scores.values()),
                "poison_nats": round(max(scores[name] for name in case.poison), 2),
            }
            for case, scores in ranked
            if hit_at_1(scores, case.poison) < 1
        ],
    }  # fmt: skip
    if blackbox.installed():
        began = time.perf_counter()
        row[BLACKBOX] = sum(_blackbox_first(case, event) in case.poison for case, event in incidents)
        row["blackbox_seconds"] = round(time.perf_counter() - began, 2)
    return row


def _blackbox_first(case: Case, event: Event) -> str | None:
    with blackbox.Ledger(case.memory.entries) as ledger:
        ranking = ledger.trace(event.query, event.retrieved or (), event.output)
    return ranking[0] if ranking else None


def state(results: ResultFile, batches: Sequence[Mapping[str, Any]], wanted: int) -> None:
    """Write one row per method over all batches, and the bar; nothing where they are there."""
    if any("method" in row for row in results.rows):
        return
    for method in (OURS, BLACKBOX):
        rows = [row for row in batches if method in row]
        cases, right = sum(row["cases"] for row in rows), sum(row[method] for row in rows)
        if not cases:
            continue
        low, high = wilson(right, cases)
        cost = {name: sum(row[name] for row in rows) for name in ("calls", "computed_tokens")}
        results.add_row({
            "method": method, "hit_at_1": right, "cases": cases, "interval": [round(low, 3), round(high, 3)],
            **(cost if method == OURS else {"calls": 0}),
        })  # fmt: skip
        Console().print(f"{method}: right memory first in {right:g} of {cases}", markup=False)
        if method == OURS:
            results.add_bar(
                "trace task: right memory first", right, f"of {cases}", ">= 99 of 100",
                None if cases < wanted else right >= BAR * cases,
            )  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with mmlu/ and minja/")
    parser.add_argument("--backbone", default="packaged:1.5b")
    parser.add_argument("--cases", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()
