"""The whole graphs of one store, made in one way: part of `benchmarks.scale.whole_graph`.

    python -m benchmarks.scale.one_whole_graph ray --memories 10000 --tenants 1

The ways are `before` (an older checkout, in this process), `local` (this process) and `ray` (Ray Data). Prints one line
of JSON. What is timed is from a store on disk to its graphs, with Ray and its actors started.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import resource
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOW_MS = 1_800_000_000_000
LARGE_TENANT = {"before": "benchmarks.large_tenant"}
LOOK_S = 0.2


def store_of(product: Any, memories: int, tenants: int, folder: Path, keyring: Any) -> None:
    """Publish the store."""
    entries = [replace(product.memory(number), tenant=f"t{number % tenants}") for number in range(memories)]
    product.create_store(folder, entries, keyring, now_ms=NOW_MS)


@contextmanager
def most_memory() -> Iterator[dict[str, int]]:
    """Yield what will say how much main memory each kind of child process took at most, MiB."""
    peaks: dict[str, int] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            for child in psutil.Process().children(recursive=True):
                try:
                    title, memory = (child.cmdline() or ["?"])[0].split("(")[0], child.memory_info()
                except psutil.Error:
                    continue
                name = title if title.startswith("ray::") else "Ray's own"
                peaks[name] = max(peaks.get(name, 0), (memory.rss - memory.shared) >> 20)

    watch = threading.Thread(target=look)
    watch.start()
    yield peaks
    over.set()
    watch.join()


def before(product: Any, snapshot: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Make graphs as the older checkout does."""
    consistency, embedding, runs = (
        importlib.import_module(f"jobs.{name}") for name in ("consistency", "embedding", "run_folder")
    )
    reporter, models = product.Reporter(product.Console(file=io.StringIO())), product.StandIns()
    run = runs.RunFolder(folder, {})
    stores = {tenant: snapshot.entries(tenant) for tenant in snapshot.tenants}
    texts = [text for entries in stores.values() for entry in entries for text in (entry.text, entry.response)]
    embedding.embed_texts(texts, models, run, reporter)
    graphs = consistency.consistency_graphs(stores, product.CONFIG, models, run, reporter)
    return (graph.graph.cas for _, graph in sorted(graphs.items())), {"directed pairs": models.asked["directed pairs"]}


def local(product: Any, snapshot: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Make graphs in this process."""
    from memory_audit.jobs.run.graphs import consistency_graphs  # noqa: PLC0415 - not in the older checkout
    from memory_audit.jobs.run.run_folder import RunFolder  # noqa: PLC0415

    models = product.StandIns()
    executor = product.LocalExecutor(product.ModelSpecs(backbone="fake", nli="fake", embedder="fake"))
    executor.embedder = executor.entailment = models
    stores = {tenant: snapshot.entries(tenant) for tenant in snapshot.tenants}
    graphs = consistency_graphs(stores, replace(product.CONFIG, graph="full"), executor, RunFolder(folder, {}))
    cas = (np.array([graph.cas(entry.entry_id) for entry in graph.entries]) for _, graph in sorted(graphs.items()))
    return cas, {"directed pairs": models.asked["directed pairs"]}


@contextmanager
def on_ray(product: Any) -> Iterator[Callable[[Any, Path], tuple[Any, dict[str, Any]]]]:
    """Start Ray and the stand-ins, and yield what makes graphs there."""
    import ray  # noqa: PLC0415 - importing it takes seconds

    from memory_audit.jobs.graph.blocks import whole_graph  # noqa: PLC0415
    from memory_audit.jobs.graph.whole_graphs import store_graphs  # noqa: PLC0415
    from memory_audit.jobs.run.run_seal import Sealer  # noqa: PLC0415
    from memory_audit.models.services import actors  # noqa: PLC0415

    module: Any = importlib.import_module("memory_audit.jobs.executors.on_ray")

    def hosting(actor: type) -> type:
        class Hosting(actor):  # type: ignore[misc]
            """A replica of the stand-ins."""

            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                self.__dict__["_model"] = (
                    product.StandIns()
                )  # Ray cannot send a class with a cached property of its own

        return Hosting

    module.EmbedderActor = hosting(actors.EmbedderActor)
    module.EntailmentActor = hosting(actors.EntailmentActor)
    config = replace(product.CONFIG, graph="full")
    executor = module.RayExecutor(product.ModelSpecs(backbone="fake", nli="fake", embedder="fake"))
    assert executor.embedder.model_id == executor.entailment.model_id  # noqa: S101 - asking for them starts them

    def made(snapshot: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
        events = tuple(
            product.Event(
                event_id=f"e{tenant}", tenant=tenant, ts_ms=NOW_MS, query="?", output="HARM", retrieved=None,
                harm="harmful",
            )
            for tenant in snapshot.tenants
        )  # fmt: skip
        request = product.AuditRequest(
            snapshot=snapshot, events=product.EventsFile(events=events, digest="bench"), config=config
        )  # fmt: skip
        groups = [
            group.tenants for group in importlib.import_module("memory_audit.jobs.run.groups.plan").groups_of(request)
        ]
        stored, asked = store_graphs(request, groups, executor, (folder / "graph", Sealer().codes({})))

        def cas() -> Iterator[Any]:
            for tenant in sorted(snapshot.tenants):
                graph = whole_graph(snapshot.entries(tenant), config)
                yield np.concatenate([part.cas for part in stored.graph(tenant, graph).parts()])

        files = list((folder / "graph").rglob("pairs-*"))
        written = {"files": len(files), "pairs_bytes": sum(path.stat().st_size for path in files)}
        return cas(), {"directed pairs": 2 * asked, **written}

    yield made
    executor.close()
    ray.shutdown()


def measured(way: str, memories: int, tenants: int, folder: Path) -> dict[str, Any]:
    """Make the graphs once."""
    product = importlib.import_module(LARGE_TENANT.get(way, "benchmarks.attribution.large_tenant"))
    keyring = product.generate_keys("bench")
    maker = get_context("fork").Process(target=store_of, args=(product, memories, tenants, folder / "store", keyring))
    maker.start()  # its memory is not the graph's
    maker.join()
    with on_ray(product) if way == "ray" else _here(product, {"before": before, "local": local}.get(way)) as make:
        with most_memory() as peaks:
            began = time.perf_counter()
            snapshot = product.open_snapshot(folder / "store", keyring.policy, now_ms=NOW_MS + 1)
            graphs, row = make(snapshot, folder / "run")
            seconds = time.perf_counter() - began
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # before the graphs are read, to compare them
        digest = 0
        for cas in graphs:
            digest = crc32(cas.tobytes(), digest)
    return {
        "way": way, "memories": memories, "tenants": tenants, "seconds": round(seconds, 2), "driver_peak_mib": own,
        "largest_peak_mib": max([own, *peaks.values()]), "peaks_mib": dict(sorted(peaks.items())), **row,
        "cas digest": digest,
    }  # fmt: skip


@contextmanager
def _here(product: Any, make: Any) -> Iterator[Callable[[Any, Path], tuple[Any, dict[str, Any]]]]:
    yield lambda snapshot, folder: make(product, snapshot, folder)


def main() -> None:
    """Make graphs once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=["before", "local", "ray"])
    parser.add_argument("--memories", type=int, required=True)
    parser.add_argument("--tenants", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(options.way, options.memories, options.tenants, Path(folder))))


if __name__ == "__main__":
    main()
