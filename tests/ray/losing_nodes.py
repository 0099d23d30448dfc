"""Audits, with stand-ins for models, on a real Ray cluster that loses nodes and processes: what `test_lost_node` runs.

    python -m tests.ray.losing_nodes FOLDER                  all of them
    python -m tests.ray.losing_nodes FOLDER RUN ADDRESS      one audit, on a cluster that is there: a driver to kill

A program of its own: a process joins one cluster, and that of the other tests here has one node; and the last audit
loses the head, which ends the process that runs it. All nodes are on this machine. A node is lost as a machine is: it
hangs, and then its raylet, workers and actors are killed together. Where in the audit that happens is no matter of
time: it is when so large a share of its outcomes is on disk.

    FOLDER/memory       the store, and
    FOLDER/policy.json  whom to trust about it: made by the caller
    FOLDER/RUN          an audit's run folder,
    FOLDER/RUN.asked    a line for each request that the backbone was asked,
    FOLDER/RUN.json     its result, or
    FOLDER/RUN.error    why it stopped, and how many outcomes it had on disk
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import psutil
import ray
from ray.cluster_utils import Cluster

from memory_audit.errors import AuditError
from memory_audit.jobs.executors.on_ray import RayExecutor
from memory_audit.jobs.run.shards import parse_outcomes
from memory_audit.models.services.actors import GeneratorActor
from memory_audit.provenance.keys import load_policy
from memory_audit.snapshot.reader import open_snapshot
from tests.audit_world import FAKES, NOW_MS, entry, event, json_of, run_groups

if TYPE_CHECKING:
    from ray._private.node import Node

    from memory_audit.entry import Entry
    from memory_audit.generation import Completion, GenerationRequest
    from memory_audit.result import AuditResult

IN_FLIGHT_S = 0.3
"""From a node's hanging to its end: what is asked of it meanwhile is lost with it."""

DEADLINE_S = 60.0
"""Of every wait here; none should take a tenth of it."""

PATIENCE_S = 1.0
"""Of an audit that nothing will help."""

ANSWER_S = 0.03
"""What the backbone takes for an answer: long enough for some to be under way whenever a node is lost."""

SLOW_S = 0.3
"""The same for an audit that a node joins: longer than the node needs for that."""

LOOK_S = 0.2
"""How often that one looks for new nodes."""

TENANTS = [f"tenant-{number}" for number in range(24)]
EVENTS = [event(f"e-{tenant}", tenant, f"What refund has order 7 of {tenant}?") for tenant in TENANTS]
OUTCOMES = 11 * len(TENANTS)
"""Of an audit of all of these; `test_lost_node` holds it against one in this process."""


def entries() -> list[Entry]:
    """Return the memories of all tenants, each with one that does harm."""
    return [
        memory
        for tenant in TENANTS
        for memory in (
            *(entry(tenant, f"ok{number}", f"What is matter {number}?", f"See page {number}.") for number in range(5)),
            entry(tenant, "bad", f"What refund has {tenant}?", "POISON no refund."),
        )
    ]


NOTICED = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 200,
    "health_check_timeout_ms": 10_000,  # a busy machine is not a lost one; a killed raylet fails at once
    "health_check_failure_threshold": 3,
    "timeout_ms_task_wait_for_death_info": 200,
    "gcs_rpc_server_reconnect_timeout_s": 3,
    "memory_monitor_refresh_ms": 0,  # what else fills this machine is not what is tested
}
"""Ray notices a lost node in less than a second, and a lost head in three: as it comes, in 15 and 60."""


class Machines:
    """The cluster. The main thread alone starts its nodes: Linux ends them with the thread that started them."""

    def __init__(self) -> None:
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True,
                "_system_config": NOTICED,
            },
        )  # fmt: skip
        self.address: str = self._cluster.address
        self.head: Node = self._cluster.head_node

    def add(self, *, cpus: int = 0, models: int = 0) -> Node:
        """Start a node, with room for so many tasks and models; what is asked of it waits until it is up."""
        return self._cluster.add_node(wait=False, num_cpus=cpus, resources={"models": models} if models else {})

    def lose(self, node: Node) -> None:
        """Kill all that runs on a node."""
        for process in reversed(hang(node)):
            with contextlib.suppress(psutil.Error):
                process.kill()
        if node is not self.head:
            self._cluster.remove_node(node, allow_graceful=False)


def processes(node: Node, title: str = "") -> list[psutil.Process]:
    """Return the processes of a node, the raylet first; or those whose title says what they run."""
    found = [psutil.Process(info.process.pid) for infos in node.all_processes.values() for info in infos]
    found += [child for process in found for child in process.children(recursive=True)]
    return [process for process in found if title in _title(process)] if title else found


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return (process.cmdline() or [""])[0]
    return ""


def hang(node: Node) -> list[psutil.Process]:
    """Stop all that runs on a node, and return it."""
    for process in processes(node):
        with contextlib.suppress(psutil.Error):
            process.suspend()
    return processes(node)


def running(node: Node, title: str) -> psutil.Process:
    """Wait for a process of a node that runs what the title says."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := processes(node, title)):
        assert time.monotonic() < deadline, f"no {title} among {[_title(process) for process in processes(node)]}"
        time.sleep(0.01)
    return found[0]


def outcomes_on_disk(run: Path) -> list[str]:
    """Return the pair id of every outcome in a run folder, those twice that are there twice."""
    shards = run.glob("groups/*/replays/*.parquet")
    return [outcome.pair_id for shard in shards for outcome in parse_outcomes(shard.read_bytes(), shard.name)]


def counted(asked: Path, answer_s: float) -> type:
    """Return an actor whose backbone takes its time, and writes down what it is asked."""

    class Counted(GeneratorActor):
        async def generate(self, request: GenerationRequest, model_id: str) -> Completion:
            with asked.open("a") as file:
                file.write(f"{request.digest()}\n")
            await asyncio.sleep(answer_s)
            return await super().generate(request, model_id)

    return Counted


class Placed(RayExecutor):
    """An executor that places its models where there is room for them, and counts what its backbone is asked."""

    def __init__(self, asked: Path, address: str | None = None, answer_s: float = ANSWER_S) -> None:
        super().__init__(FAKES, address=address)
        self._actor = counted(asked, answer_s)

    def _pool(self, role):
        with mock.patch("memory_audit.jobs.executors.on_ray.GeneratorActor", self._actor):
            return super()._pool(role)

    def _nodes(self):
        return {node: found for node, found in super()._nodes().items() if "models" in found}


class Audits:
    """Runs audits in a thread, while the main thread takes nodes away."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.snapshot = open_snapshot(folder / "memory", load_policy(folder / "policy.json"), now_ms=NOW_MS + 1)
        self._thread = ThreadPoolExecutor(1)

    def run(self, run: str, address: str | None = None, answer_s: float = ANSWER_S) -> AuditResult:
        executor = Placed(self._folder / f"{run}.asked", address, answer_s)
        result, failed = run_groups(executor, self.snapshot, self._folder / run, events=EVENTS)
        assert not failed, failed
        return result

    def start(self, run: str, answer_s: float = ANSWER_S) -> Future[AuditResult]:
        return self._thread.submit(self.run, run, answer_s=answer_s)

    def await_share(self, run: str, share: float, audit: Future[AuditResult] | None = None) -> None:
        """Wait until so large a share of an audit's outcomes is on disk."""
        deadline = time.monotonic() + DEADLINE_S
        while len(outcomes_on_disk(self._folder / run)) < share * OUTCOMES:
            assert time.monotonic() < deadline, f"{run}: never at {share}"
            assert audit is None or not audit.done(), audit.result()
            time.sleep(0.01)

    def finish(self, run: str, audit: Future[AuditResult]) -> None:
        """Write down how an audit ended."""
        try:
            result = audit.result(DEADLINE_S)
        except AuditError as error:
            kept = len(outcomes_on_disk(self._folder / run))
            told = {"kind": type(error).__name__, "exit_code": error.exit_code, "line": str(error), "kept": kept}
            (self._folder / f"{run}.error").write_text(json.dumps(told))
        else:
            (self._folder / f"{run}.json").write_text(json_of(result))


def main(folder: Path) -> None:
    machines = Machines()
    models, tasks = machines.add(models=1), machines.add(cpus=2)
    ray.init(address=machines.address, log_to_driver=False, configure_logging=False)
    audits = Audits(folder)

    audit = audits.start("lost")
    for share in (0.1, 0.5, 0.9):  # the node of the tasks
        audits.await_share("lost", share, audit)
        machines.lose(tasks)
        tasks = machines.add(cpus=2)
    audits.finish("lost", audit)

    audit = audits.start("models")
    audits.await_share("models", 0.1, audit)
    running(models, "EntailmentActor").kill()
    for share in (0.2, 0.4, 0.6, 0.8):  # more often than a process may end on one machine
        audits.await_share("models", share, audit)
        machines.lose(models)
        models = machines.add(models=1)
    audits.finish("models", audit)

    with mock.patch("memory_audit.models.services.keeper.LOOK_S", LOOK_S):
        audit = audits.start("grown", answer_s=SLOW_S)
        audits.await_share("grown", 0.1, audit)
        second = machines.add(models=1)
        running(second, "Counted")
        machines.lose(models)
        models = second
        audits.finish("grown", audit)

    driver = subprocess.Popen([sys.executable, "-m", __spec__.name, str(folder), "driver", machines.address])
    audits.await_share("driver", 0.5)
    driver.kill()
    driver.wait()
    audits.finish("driver", audits.start("driver"))

    with mock.patch("memory_audit.models.services.keeper.PATIENCE_S", PATIENCE_S):
        audit = audits.start("stopped")
        audits.await_share("stopped", 0.3, audit)
        machines.lose(models)
        audits.finish("stopped", audit)

    machines.add(models=1)
    kept = len(outcomes_on_disk(folder / "stopped"))
    audit = audits.start("stopped")
    audits.await_share("stopped", kept / OUTCOMES + 0.2, audit)
    machines.lose(machines.head)
    audits.finish("stopped", audit)


if __name__ == "__main__":
    # Each bucket is a group, here and in every process that is started: there are many to lose.
    with mock.patch("memory_audit.jobs.run.groups.plan.EVENTS", 1):
        if len(sys.argv) > 2:
            audits = Audits(Path(sys.argv[1]))
            audits.run(sys.argv[2], sys.argv[3])
        else:
            main(Path(sys.argv[1]))
