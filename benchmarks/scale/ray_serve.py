"""Ray Serve's deployments beside plain actors, for models that audits ask.

    python -m benchmarks.scale.ray_serve        # needs ray[serve], which the product does not

Replicas are stand-ins that sleep, one on each of the simulated nodes (`ray.cluster_utils`): what is measured is what
lies between who asks and who answers.

    start       until one replica answers; a deployment's with its controller, without a proxy for HTTP
    memory      of the processes that are there beside the replica (unique set size, as they share Ray's own pages)
    call        one after the other, what is answered at once: median; CPU time of all processes a call, 64 at a time
    replays     REPLAYS answers of 50 ms each, AT_ONCE at a time
    lost        of two nodes one is killed: calls that failed, and the longest time without an answer
    grown       from a second node's start until both replicas have answered

Both sides run in one process each, by turns.
"""

from __future__ import annotations

import argparse
import asyncio
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
REPLAYS, CALLS, AT_ONCE = 1_280, 1_280, 64
ONE_BY_ONE = 200
LOOK_S = 0.05
WATCH_S = 90.0
"""How long a node's loss, or its coming, is watched at most."""

SIDES = ("actors", "serve")

Ask = "Callable[[float], Awaitable[int]]"
"""From the seconds that an answer takes to the process that gave it."""


class Replica:
    """A stand-in for a model."""

    async def answer(self, seconds: float) -> int:
        """Take so long, and say which process this is."""
        if seconds:
            await asyncio.sleep(seconds)
        return os.getpid()


@contextmanager
def actors(replicas: int) -> Iterator[Any]:
    """Start plain actors; a lost one is started anew by Ray, and the others are asked meanwhile."""
    import ray  # noqa: PLC0415 - which takes seconds

    remote = ray.remote(num_cpus=0, resources={"replica": 1}, max_restarts=-1, max_concurrency=4 * AT_ONCE)(Replica)
    handles = [remote.remote() for _ in range(replicas)]
    turn = 0

    async def ask(seconds: float) -> int:
        nonlocal turn
        turn += 1
        found: int = await handles[turn % len(handles)].answer.remote(seconds)
        return found

    yield ask
    for handle in handles:
        ray.kill(handle)


@contextmanager
def serve(replicas: int) -> Iterator[Any]:
    """Start a deployment that has up to so many replicas."""
    from ray import serve as ray_serve  # noqa: PLC0415

    ray_serve.start(proxy_location="Disabled")
    scaling = {
        "min_replicas": 1, "max_replicas": 2, "initial_replicas": replicas, "target_ongoing_requests": AT_ONCE // 4,
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


async def watched(ask: Any, until: Callable[[set[int]], bool]) -> dict[str, float]:
    """Ask on and on from AT_ONCE places, until enough is seen."""
    began = last = time.perf_counter()
    gap = failed = 0.0
    seen: set[int] = set()
    ended = False

    async def place() -> None:
        nonlocal last, gap, failed, ended
        while not ended:
            try:
                process = await ask(ANSWER_S)
            except Exception:  # noqa: BLE001 - whatever either side raises for a lost replica
                failed += 1
                await asyncio.sleep(LOOK_S)
            else:
                seen.add(process)
                gap, last = max(gap, time.perf_counter() - last), time.perf_counter()
            ended = ended or until(seen) or time.perf_counter() - began > WATCH_S

    await asyncio.gather(*(place() for _ in range(AT_ONCE)))
    return {"seconds": round(time.perf_counter() - began, 2), "failed": failed, "longest_gap_s": round(gap, 2)}


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
    start = {"actors": actors, "serve": serve}[side]
    row: dict[str, Any] = {"side": side}
    loop = asyncio.new_event_loop()
    before = set(processes())
    began = time.perf_counter()
    with start(1) as ask:
        loop.run_until_complete(ask(0.0))
        row["start_s"] = round(time.perf_counter() - began, 2)
        extra = [(title, mib) for pid, (title, _, mib) in processes().items() if pid not in before]
        beside = [(title, mib) for title, mib in extra if "Replica" not in title and "IDLE" not in title]
        row["processes_beside"] = len(beside)
        row["mib_beside"] = round(sum(mib for _, mib in beside))
        row["mib_replica"] = round(sum(mib for title, mib in extra if "Replica" in title))

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
        if side == "serve":
            node = cluster.add_node(num_cpus=0, resources={"replica": 1})
            row["grown"] = loop.run_until_complete(watched(ask, lambda seen: len(seen) > 1))
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=0, resources={"replica": 1})
            row["lost"] = loop.run_until_complete(watched(ask, lambda seen: len(seen) > 2))
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
