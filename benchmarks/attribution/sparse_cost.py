"""Cost where one memory of many is poison: this project's search against plain leave-one-out as anyone would write it.

    python -m benchmarks.attribution.sparse_cost [--backbone packaged:1.5b-int8] [--k 10 20 40] [--events 3]

The events are incidents of `benchmarks/attribution/trace`: the five memories of one, and benign memories of other
fields up to k, all retrieved. Both sides run in one process on one engine, and nothing comes from disk. Plain
leave-one-out asks with all k memories, then k times without one of them: one request at a time, each from an empty
prefix cache. The search runs whole: gate, ranking, growth of S, and the replay that shows the harm gone; its prefix
cache is empty at first. Verdicts are equal where both name the same memories as the cause. Tokens computed are prompt
tokens less those found in the cache, and generated ones. A second start continues after the last row.
"""

from __future__ import annotations

import argparse
import random
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from rich.console import Console

from benchmarks.attribution.minja.qa_store import make_entries
from benchmarks.attribution.minja.study import NOW_MS, TENANT
from benchmarks.attribution.peers.metered import metered_executor
from benchmarks.attribution.peers.searching import Searched, run_searches
from benchmarks.attribution.trace.incidents import load_incidents
from benchmarks.attribution.trace_task import AGENT, HARM_KIND, Case, ask, harmful, leave_one_out
from benchmarks.harness.resultfile import ResultFile
from memory_audit.attribution.replays.retrieval import RankedMemory, dense_ranker
from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.settings import SearchSettings
from memory_audit.config import AuditConfig
from memory_audit.events import Event
from memory_audit.jobs.executors.replay_group import Program
from memory_audit.jobs.watching.progress import Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.attribution.peers.metered import Cost, MeteredBackbone
    from benchmarks.attribution.trace.incidents import Incident
    from memory_audit.jobs.executors.executor import Executor

TOKENS_BAR, WALL_BAR = 10.0, 4.0
PLAIN, OURS = "leave-one-out, one at a time", "memaudit"


def main() -> None:
    """Run what is missing."""
    options = _options()
    executor, backbone = metered_executor(options.backbone)
    reporter = Reporter(Console())
    config = {"backbone": backbone.model_id, "k": options.k, "events": options.events, "agent": AGENT}
    command = (
        f"python -m benchmarks.attribution.sparse_cost --backbone {options.backbone} --events {options.events} --k "
    )
    results = ResultFile("sparse_cost", command + " ".join(map(str, options.k)), config)
    incidents = load_incidents()
    try:
        for k in options.k:
            rows = [row for row in results.rows if row["k"] == k and "event" in row]
            for incident in incidents:
                if sum(row.get("side") == OURS for row in rows) >= options.events:
                    break
                if any(row["event"] == incident.incident_id for row in rows):
                    continue
                for row in measure(executor, backbone, make_case(executor, incident, incidents, k), reporter):
                    rows.append({"k": k, "event": incident.incident_id, **row})
                    results.add_row(rows[-1])
    finally:
        executor.close()
    state(results, options.k)


def measure(
    executor: Executor, backbone: MeteredBackbone, case: Case, reporter: Reporter
) -> list[dict[str, float | int | str | bool]]:
    """Attribute one event both ways; a single row says so where it is no incident."""
    program = Program.of(AGENT, {"kind": HARM_KIND, "literals": {case.query: case.harm}}, 0)
    with_all, without = ask(executor, program, [case], reporter)
    if not harmful(with_all[case.event_id]) or harmful(without[case.event_id]):
        return [{"passed_over": True}]
    event = Event(
        event_id=case.event_id, tenant=TENANT, ts_ms=NOW_MS, query=case.query, output=with_all[case.event_id].output,
        retrieved=case.ids, harm="harmful",
    )  # fmt: skip
    backbone.begin(fresh=True, alone=True)
    try:
        dropped = leave_one_out(executor, program, [case], reporter)[case.event_id]
    finally:
        plain = backbone.end()
    settings = SearchSettings(attribution_nats=AuditConfig().attribution_nats)
    search = SetSearch(case.memory, [event], settings, scorer=program.build()[1])
    backbone.begin(fresh=True)
    try:
        run_searches(executor, program, [Searched(search=search, memory=case.memory)], reporter, "memaudit")
    finally:
        ours = backbone.end()
    named = {PLAIN: {name for name, drop in dropped.items() if drop > 0}, OURS: search.removal.ids}
    reporter.say(f"k = {len(case.ids)}: {plain.computed_tokens / ours.computed_tokens:.1f} times fewer tokens")
    return [
        {
            "side": side, **_cost(cost), "named": len(named[side]), "poison_named": len(named[side] & case.poison),
            "equal": named[PLAIN] == named[OURS],
        }
        for side, cost in ((PLAIN, plain), (OURS, ours))
    ]  # fmt: skip


def make_case(executor: Executor, incident: Incident, incidents: Sequence[Incident], k: int) -> Case:
    """Put an incident's five memories among benign ones of other fields; all k are retrieved, best match first."""
    draw = random.Random(crc32(incident.incident_id.encode()))
    others = [memory for other in incidents if other.field != incident.field for memory in other.benign]
    benign = [*incident.benign, *draw.sample(others, k - 1 - len(incident.benign))]
    entries, poison = make_entries(benign, [incident.poison], draw.randrange(1 << 30))
    vectors = executor.embedder.embed([*(entry.request for entry in entries), incident.question])
    ranker = dense_ranker(np.asarray(vectors[:-1]), {incident.question: vectors[-1]})
    return Case(
        event_id=incident.incident_id, query=incident.question, poison=poison, harm=incident.harm,
        memory=RankedMemory(entries, ranker, k), contradicted=incident.truth is not None,
    )  # fmt: skip


def state(results: ResultFile, ks: Sequence[int]) -> None:
    """Write one row per k over its events, and the bars at the largest k; nothing where they are there."""
    if any("tokens_ratio" in row for row in results.rows):
        return
    for k in ks:
        rows = [row for row in results.rows if row["k"] == k and "side" in row]
        total = {
            side: {
                name: sum(row[name] for row in rows if row["side"] == side) for name in ("computed_tokens", "seconds")
            }
            for side in (PLAIN, OURS)
        }
        equal = sum(row["equal"] for row in rows if row["side"] == OURS)
        events = sum(row["side"] == OURS for row in rows)
        if not events:
            continue
        tokens, wall = (total[PLAIN][name] / total[OURS][name] for name in ("computed_tokens", "seconds"))
        results.add_row({
            "k": k, "events": events, "equal_verdicts": equal, "tokens_ratio": round(tokens, 2),
            "wall_ratio": round(wall, 2),
        })  # fmt: skip
        Console().print(
            f"k = {k}: {tokens:.1f} x fewer tokens, {wall:.1f} x less time, {equal} of {events} verdicts equal"
        )
        if k == max(ks):
            results.add_bar(
                f"tokens, leave-one-out over ours, k = {k}",
                round(tokens, 2),
                "x",
                f">= {TOKENS_BAR:g}",
                tokens >= TOKENS_BAR,
            )
            results.add_bar(
                f"wall time, leave-one-out over ours, k = {k}",
                round(wall, 2),
                "x",
                f">= {WALL_BAR:g}",
                wall >= WALL_BAR,
            )


def _cost(cost: Cost) -> dict[str, float | int]:
    return {
        "calls": cost.calls, "computed_tokens": cost.computed_tokens, "prompt_tokens": cost.usage.prompt_tokens,
        "completion_tokens": cost.usage.completion_tokens, "seconds": round(cost.seconds or 0.0, 2),
    }  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="packaged:1.5b-int8")
    parser.add_argument("--k", type=int, nargs="+", default=[10, 20, 40], help="memories retrieved, at least 5")
    parser.add_argument("--events", type=int, default=3, help="for each k")
    return parser.parse_args()


if __name__ == "__main__":
    main()
