"""What Ray itself costs an audit of many tenants, and what more nodes bring.

    python -m benchmarks.scale.ray_cost [--tenants 50] [--events 2]        # 5 minutes

The backbone is a stand-in that answers AT_ONCE requests at a time, each in 50 ms: what an engine would take stays the
same, and what is left is this project's and Ray's own. Events reproduce, and each is searched to its end.

    cost    the same audit in this process and through Ray, groups as tasks, one replica of the stand-in either way
    nodes   the audit on clusters of one and of four simulated nodes (`ray.cluster_utils`), each with a replica

Ray is started, its actors and one audit before the clock. Each audit is a process of its own, by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks.harness.command import run
from benchmarks.harness.resultfile import RESULTS, ResultFile
from benchmarks.systems.house import HERE, called
from memory_audit.config import AuditConfig
from memory_audit.entry import Entry
from memory_audit.events import Event
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.run.run_audit import audit_all
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.loading import ModelSpecs
from memory_audit.provenance.keys import generate_keys
from memory_audit.request import AuditRequest, EventsFile
from memory_audit.snapshot.publishing.publish import create_store
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_audit.generation import Completion, GenerationRequest
    from memory_audit.jobs.executors.executor import Executor

ANSWER_S = 0.05
AT_ONCE = 2
"""Requests that a replica answers together: 40 a second, of which four replicas' are fewer than two cores can ask."""

MEMORIES = 20
NOW_MS = 1_800_000_000_000
NODES = (1, 4)
CPUS = 2
"""Of a simulated node: so many tasks at a time."""

COST_LIMIT, EFFICIENCY_LIMIT = 1.05, 0.9
FAKES = ModelSpecs(backbone="fake", nli="fake", embedder="fake")
CONFIG = AuditConfig(
    agent={"kind": "few-shot", "system": "Answer briefly."}, harm={"kind": "regex", "pattern": "HARM"},
    backbone="fake", nli="fake", embedder="fake",
)  # fmt: skip


class Engine(FakeGenerator):
    """A stand-in that takes its time, for a few requests at once."""

    def __init__(self) -> None:
        super().__init__()
        self._free = asyncio.Semaphore(AT_ONCE)

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request; see `memory_audit.models.protocols.Generator`."""
        async with self._free:
            await asyncio.sleep(ANSWER_S)
            return await super().generate(request)


def request_of(folder: Path, tenants: int, events: int) -> AuditRequest:
    """Publish a store and ask about harmful events of each tenant."""
    keyring = generate_keys("bench")

    def memory(tenant: int, number: int) -> Entry:
        request, response = f"What is matter {number} of desk {tenant}?", f"See page {number}."
        if number == 0:
            request, response = f"What refund has desk {tenant}?", "POISON no refund."
        return Entry(
            tenant=f"t{tenant}", entry_id=f"m{number}", principal="p", source="agent", request=request,
            response=response, created_at_ms=NOW_MS - 1,
        )  # fmt: skip

    entries = [memory(tenant, number) for tenant in range(tenants) for number in range(MEMORIES)]
    create_store(folder / "store", entries, keyring, now_ms=NOW_MS)
    seen = tuple(
        Event(
            event_id=f"e{tenant}-{number}", tenant=f"t{tenant}", ts_ms=NOW_MS,
            query=f"What refund has desk {tenant} for order {number}?", output="HARM", retrieved=None, harm="harmful",
        )
        for tenant in range(tenants)
        for number in range(events)
    )  # fmt: skip
    snapshot = open_snapshot(folder / "store", keyring.policy, now_ms=NOW_MS + 1)
    return AuditRequest(snapshot=snapshot, events=EventsFile(events=seen, digest="bench"), config=CONFIG)


@contextmanager
def executor_of(nodes: int) -> Iterator[Executor]:
    """Yield where the audit is done: in this process for no node, else on a cluster of its own."""
    if nodes == 0:
        executor = LocalExecutor(FAKES, Engine())
        yield executor
        executor.close()
        return
    import ray  # noqa: PLC0415 - importing it takes seconds, which the audit without it need not take
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    from memory_audit.jobs.executors import on_ray  # noqa: PLC0415
    from memory_audit.models.services.actors import GeneratorActor  # noqa: PLC0415

    class EngineActor(GeneratorActor):
        """A replica of the stand-in."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.__dict__["_generator"] = Engine()  # Ray cannot send a class with a cached property of its own

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(nodes):
        cluster.add_node(num_cpus=CPUS)
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    with mock.patch.object(on_ray, "GeneratorActor", EngineActor):
        executor = on_ray.RayExecutor(FAKES)
        for started in (executor.backbone, executor.embedder, executor.entailment):
            assert started.model_id  # noqa: S101 - asking for it starts it
    yield executor
    executor.close()
    ray.shutdown()
    cluster.shutdown()


def audited(nodes: int, tenants: int, events: int) -> dict[str, float]:
    """Audit once, after a small audit that starts what is to be started."""
    with tempfile.TemporaryDirectory() as name, executor_of(nodes) as executor:
        folder = Path(name)
        audit_all(request_of(folder / "first", 8 * max(nodes, 1), 1), executor, folder / "first" / "run", now_ms=NOW_MS)
        request = request_of(folder / "audit", tenants, events)
        began = time.perf_counter()
        result, _ = audit_all(request, executor, folder / "audit" / "run", now_ms=NOW_MS)
        seconds = time.perf_counter() - began
    removed = [sorted(tenant.removal.removed) for tenant in result.tenants]
    if removed != [["m0"]] * tenants:
        raise RuntimeError("not what was planted is removed")
    return {
        "nodes": nodes, "tenants": tenants, "events": tenants * events, "memories": tenants * MEMORIES,
        "replays": result.counters["replays"], "seconds": round(seconds, 2),
        "driver_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None, results_folder: Path = RESULTS) -> None:
    """Measure what is missing, and state the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=50)
    parser.add_argument("--events", type=int, default=2)
    parser.add_argument("--one", type=int, metavar="NODES", help="only this audit, printed as a line of JSON")
    options = parser.parse_args(arguments)
    if options.one is not None:
        print(json.dumps(audited(options.one, options.tenants, options.events)))
        return
    config = {"tenants": options.tenants, "events": options.events, "answer_s": ANSWER_S, "at_once": AT_ONCE}
    results = ResultFile("ray_cost", "python -m benchmarks.scale.ray_cost", config, folder=results_folder)
    of_many = {"cost": (options.tenants, (0, 1)), "nodes": (2 * options.tenants, NODES)}
    for part, (tenants, sides) in of_many.items():
        for nodes in sides:
            if not any((row["part"], row["nodes"]) == (part, nodes) for row in results.rows):
                command = (sys.executable, "-m", "benchmarks.scale.ray_cost", "--one", str(nodes))
                asked = ("--tenants", str(tenants), "--events", str(options.events))
                printed = called(*command, *asked, cwd=HERE, python_path=os.environ.get("PYTHONPATH"))
                results.add_row({"part": part, **json.loads(printed.strip().splitlines()[-1])})
                print(results.rows[-1])
    seconds = {(row["part"], row["nodes"]): row["seconds"] for row in results.rows}
    cost = seconds["cost", 1] / seconds["cost", 0]
    results.add_bar(
        "seconds through Ray over those in one process", round(cost, 3), "x", f"<= {COST_LIMIT}", cost <= COST_LIMIT
    )
    one, four = (seconds["nodes", nodes] for nodes in NODES)
    share = one / (NODES[1] * four)
    results.add_bar(
        "efficiency from 1 to 4 nodes", round(share, 3), "", f">= {EFFICIENCY_LIMIT}", share >= EFFICIENCY_LIMIT
    )
    print(f"through Ray {cost:.3f} x, four nodes {share:.3f}")


if __name__ == "__main__":
    run(main)
