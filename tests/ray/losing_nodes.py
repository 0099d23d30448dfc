"""Audits, with the fakes, on a real Ray cluster whose nodes are lost on the way: what `test_lost_node` runs.

    python -m tests.ray.losing_nodes FOLDER

A program of its own: a process joins one cluster, and that of the other tests here has one node; and the last audit
loses the head, which ends the process that runs it. All nodes are on this machine. A node is lost as a machine is: it
hangs, and then its raylet, workers and actors are killed together. Where in the audit that happens is no matter of
time: the audit itself stops the processes at a named call, so that what it asks of them next is in flight when they go.

    FOLDER/memory       the store, and
    FOLDER/policy.json  whom to trust about it: made by the caller
    FOLDER/RUN          an audit's run folder,
    FOLDER/RUN.json     its result, or
    FOLDER/RUN.error    why it stopped, and how many outcomes it had on disk
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import psutil
import ray
from ray.cluster_utils import Cluster

from memory_audit.errors import AuditError
from memory_audit.jobs.executors.on_ray import RayExecutor
from memory_audit.jobs.run.shards import parse_outcomes
from memory_audit.provenance.keys import load_policy
from memory_audit.snapshot.reader import open_snapshot
from tests.audit_world import FAKES, NOW_MS, json_of, run_with

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ray._private.node import Node

    from memory_audit.result import AuditResult

IN_FLIGHT_S = 0.3
"""From a node's hanging to its end: what is asked of it meanwhile is lost with it."""

DEADLINE_S = 60.0
"""Of every wait here; none should take a tenth of it."""

PATIENCE_S = 1.0
"""Of an audit that nothing will help."""

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
    shards = (run / "replays").glob("*.parquet")
    return [outcome.pair_id for shard in shards for outcome in parse_outcomes(shard.read_bytes(), shard.name)]


class Losing(RayExecutor):
    """An executor that places its models where there is room for them, and stops at named calls.

    Args:
        stops: From a call, such as "entail 2" for the second, to what happens there before it is made.
    """

    def __init__(self, stops: Mapping[str, Callable[[], object]]) -> None:
        super().__init__(FAKES)
        self._stops = stops
        self._calls: Counter[str] = Counter()
        self._reached = {stop: threading.Event() for stop in stops}

    def await_call(self, stop: str) -> None:
        """Wait until the audit is there, and what it asks next is under way."""
        assert self._reached[stop].wait(DEADLINE_S), f"never at {stop}"
        time.sleep(IN_FLIGHT_S)

    @property
    def entailment(self):
        model = super().entailment
        ask = model.probabilities

        def probabilities(pairs):
            self._stop("entail")
            return ask(pairs)

        setattr(model, "probabilities", probabilities)  # noqa: B010 - of this model alone
        return model

    def replay(self, groups, program):
        self._stop("replay")
        yield from super().replay(groups, program)

    def _stop(self, call: str) -> None:
        self._calls[call] += 1
        stop = f"{call} {self._calls[call]}"
        if stop in self._stops:
            self._stops[stop]()
            self._reached[stop].set()

    def _pool(self, role):
        placed: Any = ray.remote(resources={"models": 0.01})
        with mock.patch.object(ray, "remote", placed):
            return super()._pool(role)


class Audits:
    """Runs audits in a thread, while the main thread takes nodes away."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._snapshot = open_snapshot(folder / "memory", load_policy(folder / "policy.json"), now_ms=NOW_MS + 1)
        self._thread = ThreadPoolExecutor(1)

    def start(self, run: str, executor: Losing) -> Future[AuditResult]:
        return self._thread.submit(run_with, executor, self._snapshot, self._folder / run)

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
    models = machines.add(models=1)
    ray.init(address=machines.address, log_to_driver=False, configure_logging=False)
    audits = Audits(folder)

    def lose_models() -> Node:
        machines.lose(models)
        return machines.add(models=1)

    with mock.patch(
        "memory_audit.jobs.executors.on_ray.REPLAYS_PER_TASK", 1
    ):  # some on the head, some on the node of the tasks
        executor = Losing({
            "entail 2": lambda: hang(models),
            "replay 3": lambda: running(models, "GeneratorActor").suspend(),  # it will answer, but later
            "replay 5": lambda: hang(models),
        })  # fmt: skip
        audit = audits.start("lost", executor)
        tasks = machines.add(cpus=2)
        executor.await_call("entail 2")
        models = lose_models()
        executor.await_call("replay 3")
        running(tasks, "_replay_task")
        machines.lose(tasks)
        running(models, "GeneratorActor").resume()
        executor.await_call("replay 5")
        running(machines.head, "_replay_task")
        models = lose_models()
        audits.finish("lost", audit)

    with mock.patch("memory_audit.models.ray_actors.PATIENCE_S", PATIENCE_S):
        executor = Losing({"replay 3": lambda: hang(models)})
        audit = audits.start("stopped", executor)
        executor.await_call("replay 3")
        running(machines.head, "_replay_task")
        machines.lose(models)
        audits.finish("stopped", audit)

    models = machines.add(models=1)
    executor = Losing({"replay 3": lambda: hang(models)})
    audit = audits.start("stopped", executor)
    executor.await_call("replay 3")
    machines.lose(machines.head)
    audits.finish("stopped", audit)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
