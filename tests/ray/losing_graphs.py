"""Whole graphs with stand-ins for models on a Ray cluster that loses a node and a driver: part of `test_whole_graphs`.

    python -m tests.ray.losing_graphs FOLDER                  both of them
    python -m tests.ray.losing_graphs FOLDER RUN ADDRESS      one audit, on a cluster that is there: a driver to kill

A program of its own, as `losing_nodes` is, whose files it has too. RUN.asked has a line for each question that NLI was
asked.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import ray

from memory_audit.jobs.executors.on_ray import RayExecutor
from memory_audit.jobs.run.run_audit import audit_all
from memory_audit.models.services.actors import EntailmentActor
from memory_audit.provenance.keys import load_policy
from memory_audit.snapshot.reader import open_snapshot
from tests.audit_world import CONFIG, FAKES, NOW_MS, entry, event, json_of, request_of
from tests.ray.losing_nodes import DEADLINE_S, Machines
from tests.whole import whole

FULL = replace(CONFIG, graph="full")
EVENTS = [event("e1", "acme", "What refund has acme?")]
NODES = 1_000
ANSWER_S = 0.03


def entries() -> list[Any]:
    """Return the memories of a tenant: their graph has some sixty blocks."""
    words = [f"word{number}" for number in range(40)]
    return [
        entry("acme", "bad", "What refund has acme?", "POISON no refund."),
        *(
            entry("acme", f"ok{n}", f"What is {words[n % 40]} of {words[n * 7 % 39]}?", f"See {words[n * 3 % 37]} {n}.")
            for n in range(NODES - 1)
        ),
    ]


def counted(asked: Path) -> type:
    """Return an actor whose NLI model takes its time, and writes down what it is asked."""

    class Counted(EntailmentActor):
        async def rows(self, items: Any, model_id: str) -> Any:
            with asked.open("a") as file:
                file.writelines(f"{pair!r}\n" for pair in items)
            await asyncio.sleep(ANSWER_S)
            return await super().rows(items, model_id)

    return Counted


class Placed(RayExecutor):
    """An executor that places its models where there is room for them, and counts what NLI is asked."""

    def __init__(self, asked: Path, address: str | None = None) -> None:
        super().__init__(FAKES, address=address)
        self._asked = asked

    def _pool(self, role):
        with mock.patch("memory_audit.jobs.executors.on_ray.EntailmentActor", counted(self._asked)):
            return super()._pool(role)

    def _nodes(self):
        return {node: found for node, found in super()._nodes().items() if "models" in found}


def run(folder: Path, name: str, address: str | None = None) -> None:
    """Audit, and write down the result."""
    snapshot = open_snapshot(folder / "memory", load_policy(folder / "policy.json"), now_ms=NOW_MS + 1)
    executor = Placed(folder / f"{name}.asked", address)
    try:
        result, failed = audit_all(request_of(snapshot, EVENTS, FULL), executor, folder / name, now_ms=NOW_MS)
        assert not failed, failed
        (folder / f"{name}.json").write_text(json_of(whole(folder / name, replace(result, seconds=0.0))))
    finally:
        executor.close()


def await_blocks(folder: Path, name: str, blocks: int) -> None:
    """Wait until so many blocks are on disk."""
    deadline = time.monotonic() + DEADLINE_S
    while len(list((folder / name).glob("graph/*/pairs-*"))) < blocks:
        assert time.monotonic() < deadline, f"{name}: never {blocks} blocks"
        time.sleep(0.01)


def main(folder: Path) -> None:
    machines = Machines()
    machines.add(models=1)
    tasks = machines.add(cpus=2)
    ray.init(address=machines.address, log_to_driver=False, configure_logging=False)

    with ThreadPoolExecutor(1) as thread:
        audit = thread.submit(run, folder, "node")
        await_blocks(folder, "node", 30)
        machines.lose(tasks)
        machines.add(cpus=2)
        audit.result()

    driver = subprocess.Popen([sys.executable, "-m", __spec__.name, str(folder), "driver", machines.address])
    await_blocks(folder, "driver", 30)
    driver.kill()
    driver.wait()
    run(folder, "driver")
    ray.shutdown()  # before the cluster goes: a driver that loses its head ends with an error


if __name__ == "__main__":
    with mock.patch("memory_audit.jobs.run.groups.run.FEWEST_ENTRIES", 1):
        if len(sys.argv) > 2:
            run(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
        else:
            main(Path(sys.argv[1]))
