"""Ray Serve's deployments beside plain actors, for models that audits ask.

    python -m benchmarks.scale.ray_serve        # needs ray[serve], which the product does not

Replicas are stand-ins that sleep, one on each of the simulated nodes (`ray.cluster_utils`): what is measured is what
lies between who asks and who answers.

    start       until one replica answers; a deployment's with its controller, without a proxy for HTTP
    memory      of the processes that are there beside the replica (unique set size, as they share Ray's own pages)
    call        one after the other, what is answered at once: median; CPU time of all processes a call, 64 at a time
    replays     REPLAYS answers of 50 ms each, AT_ONCE at a time
    grown       from when a second node is there until a replica on it has answered
    lost        that node is killed: calls that failed within WATCH_S, and the longest time without an answer

Both sides run in one process each, by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import statistics
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.harness.command import run
from benchmarks.harness.resultfile import RESULTS, ResultFile
from benchmarks.systems.house import HERE, called

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

ANSWER_S = 0.05
REPLAYS, CALLS, AT_ONCE = 640, 1_280, 16
ONE_BY_ONE = 200
LOOK_S = 0.05
WATCH_S = 20.0
"""How long a node's loss, or its coming, is watched at most."""

SIDES = ("actors", "serve")


class Replica:
    """A stand-in for a model."""

    def __init__(self, *_specs: object) -> None:
        pass

    async def model_id(self) -> str:
        """See `memory_audit.models.services.actors`."""
        return "sleeper"

    async def is_there(self) -> bool:
        """See `memory_audit.models.services.actors`."""
        return True

    async def answer(self, seconds: float) -> int:
        """Take so long, and say which process this is."""
        if seconds:
            await asyncio.sleep(seconds)
        return os.getpid()


@contextmanager
def actors() -> Iterator[Any]:
    """Keep plain actors, as audits do."""
    import ray  # noqa: PLC0415 - which takes seconds

    from memory_audit.models.loading import ModelSpecs  # noqa: PLC0415
    from memory_audit.models.services.keeper import Keeper  # noqa: PLC0415
    from memory_audit.models.services.places import Place  # noqa: PLC0415
    from memory_audit.models.services.replicas import Call, Replicas  # noqa: PLC0415

    def places(_role: str) -> list[Place]:
        return [Place(node["NodeID"], 0) for node in ray.nodes() if node["Alive"] and "replica" in node["Resources"]]

    keeper = Keeper(places)
    replicas = Replicas(keeper.start("backbone", Replica, ModelSpecs(backbone="fake")))
    turn = 0

    async def ask(seconds: float) -> int:
        nonlocal turn
        turn += 1
        call, number = Call(replicas), turn
        while True:
            replica = call.replica(number)
            if replica is None:
                await asyncio.sleep(call.pause_s())
                continue
            try:
                found: int = await replica.handle.answer.remote(seconds)
            except ray.exceptions.RayError as error:
                call.lost(replica, error)
            else:
                return found

    yield ask
    keeper.close()


@contextmanager
def serve() -> Iterator[Any]:
    """Start a deployment that has as many replicas as it finds room for, as long as they are busy."""
    from ray import serve as ray_serve  # noqa: PLC0415

    ray_serve.start(proxy_location="Disabled")
    scaling = {
        "min_replicas": 1, "max_replicas": 4, "initial_replicas": 1, "target_ongoing_requests": AT_ONCE // 4,
        "upscale_delay_s": 0.0, "downscale_delay_s": 600.0, "metrics_interval_s": 1.0, "look_back_period_s": 2.0,
    }  # fmt: skip
    deployment = ray_serve.deployment(
        autoscaling_config=scaling, max_ongoing_requests=4 * AT_ONCE, health_check_period_s=5.0,
        ray_actor_options={"num_cpus": 0, "resources": {"replica": 1}},
    )(Replica)  # fmt: skip
    handle: Any = ray_serve.run(deployment.bind(), name="bench", route_prefix=None)  # type: ignore[attr-defined]

    async def ask(seconds: float) -> int:
        found: int = await handle.answer.remote(seconds)
        return found

    yield ask
    ray_serve.shutdown()


async def together(ask: Any, calls: int, seconds: float) -> list[int]:
    """Make calls, AT_ONCE at a time."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one() -> int:
        async with free:
            found: int = await ask(seconds)
            return found

    return await asyncio.gather(*(one() for _ in range(calls)))


async def watched(ask: Any, change: Callable[[], object], until: Callable[[set[int]], bool]) -> dict[str, float]:
    """Ask on and on from AT_ONCE places while the cluster changes, until `until` holds of who answered after it."""
    last, gap, failed, ended, answered = time.perf_counter(), 0.0, 0, False, 0
    changed_s: float | None = None
    seen: set[int] = set()

    async def place() -> None:
        nonlocal last, gap, failed, ended, answered
        while not ended:
            asked_s = time.perf_counter()
            try:
                process = await ask(ANSWER_S)
            except Exception:  # noqa: BLE001 - whatever either side raises for a lost replica
                failed += 1
                await asyncio.sleep(LOOK_S)
            else:
                answered += 1
                gap, last = max(gap, time.perf_counter() - last), time.perf_counter()
                if changed_s is not None and asked_s > changed_s:
                    seen.add(process)
            waited = 0.0 if changed_s is None else time.perf_counter() - changed_s
            ended = ended or until(seen) or waited > WATCH_S

    places = [asyncio.create_task(place()) for _ in range(AT_ONCE)]
    await asyncio.sleep(1.0)
    await asyncio.to_thread(change)
    changed_s = time.perf_counter()
    await asyncio.gather(*places)
    return {
        "seconds": round(time.perf_counter() - changed_s, 2), "answered": answered, "failed": failed,
        "longest_gap_s": round(gap, 2),
    }  # fmt: skip


def processes() -> dict[int, tuple[str, float, float]]:
    """Return title, CPU seconds and unique memory in MiB of each process of this benchmark."""
    found = {}
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
            title = (process.cmdline() or [""])[0]
            found[process.pid] = (title, times.user + times.system, process.memory_full_info().uss / 2**20)
        except psutil.Error:
            continue
    return found


def cpu_s() -> float:
    """Return the CPU time of all processes of this benchmark so far."""
    return sum(seconds for _, seconds, _ in processes().values())


def measured(side: str) -> dict[str, Any]:
    """Measure one side on a cluster of its own."""
    import ray  # noqa: PLC0415
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    system = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "memory_monitor_refresh_ms": 0}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": system},
    )  # fmt: skip
    cluster.add_node(num_cpus=0, resources={"replica": 1})
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    row: dict[str, Any] = {"side": side}
    loop = asyncio.new_event_loop()
    began = time.perf_counter()
    with {"actors": actors, "serve": serve}[side]() as ask:
        loop.run_until_complete(ask(0.0))
        row["start_s"] = round(time.perf_counter() - began, 2)
        beside = [mib for title, _, mib in processes().values() if title.startswith(("ray::Serve", "ray::Proxy"))]
        row["processes_beside"], row["mib_beside"] = len(beside), round(sum(beside))

        async def one_by_one() -> list[float]:
            took = []
            for _ in range(ONE_BY_ONE):
                asked = time.perf_counter()
                await ask(0.0)
                took.append(time.perf_counter() - asked)
            return took

        loop.run_until_complete(together(ask, AT_ONCE, 0.0))
        row["call_ms"] = round(1000 * statistics.median(loop.run_until_complete(one_by_one())), 2)
        cpu, asked = cpu_s(), time.perf_counter()
        loop.run_until_complete(together(ask, CALLS, 0.0))
        row["calls_a_second"] = round(CALLS / (time.perf_counter() - asked))
        row["cpu_ms_a_call"] = round(1000 * (cpu_s() - cpu) / CALLS, 2)
        asked = time.perf_counter()
        loop.run_until_complete(together(ask, REPLAYS, ANSWER_S))
        row["replays_over_ideal"] = round((time.perf_counter() - asked) / (ANSWER_S * REPLAYS / AT_ONCE), 3)
        nodes = [cluster.add_node(num_cpus=0, resources={"replica": 1}) for _ in range(1)]
        row["grown"] = loop.run_until_complete(watched(ask, lambda: None, lambda seen: len(seen) > 1))
        lose = functools.partial(cluster.remove_node, nodes[0], allow_graceful=False)
        row["lost"] = loop.run_until_complete(watched(ask, lose, lambda _: False))
    ray.shutdown()
    cluster.shutdown()
    return row


def main(arguments: Sequence[str] | None = None, results_folder: Path = RESULTS) -> None:
    """Measure both sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", choices=SIDES, help="only this side, printed as a line of JSON")
    options = parser.parse_args(arguments)
    if options.one is not None:
        print(json.dumps(measured(options.one)))
        return
    results = ResultFile(
        "ray_serve", "python -m benchmarks.scale.ray_serve", {"at_once": AT_ONCE}, folder=results_folder
    )
    for side in SIDES:
        if not any(row["side"] == side for row in results.rows):
            command = (sys.executable, "-m", "benchmarks.scale.ray_serve", "--one", side)
            printed = called(*command, cwd=HERE, python_path=os.environ.get("PYTHONPATH"))
            results.add_row(json.loads(printed.strip().splitlines()[-1]))
            print(results.rows[-1])


if __name__ == "__main__":
    run(main)
