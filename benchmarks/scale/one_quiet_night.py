"""One night on which no harm reproduces, in this process: part of `benchmarks.scale.quiet_night`.

    python -m benchmarks.scale.one_quiet_night benchmarks.attribution.large_tenant --tenants 1000

The module is `large_tenant` of the checkout, which may be an older one: stand-ins, memories and all names of the
product are taken from it. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import random
import resource
import tempfile
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

NOW_MS = 1_800_000_000_000
SMALLEST, LARGEST = 50, 150
"""Memories of a tenant: a hundred on average."""


def sizes(tenants: int) -> list[int]:
    """Return how many memories each tenant has."""
    rng = random.Random(0)
    return [rng.randint(SMALLEST, LARGEST) for _ in range(tenants)]


def store_of(product: Any, tenants: int, folder: Path, keyring: Any) -> None:
    """Publish the store."""
    entries: list[Any] = []
    first = 0
    for tenant, size in enumerate(sizes(tenants)):
        entries += [replace(product.memory(number), tenant=f"t{tenant}") for number in range(first, first + size)]
        first += size
    product.create_store(folder, entries, keyring, now_ms=NOW_MS)


def night(product: Any, tenants: int, folder: Path) -> dict[str, float]:
    """Audit one event of each tenant, and return what that took."""
    keyring = product.generate_keys("bench")
    maker = get_context("fork").Process(target=store_of, args=(product, tenants, folder / "store", keyring))
    maker.start()  # its memory is not the audit's
    maker.join()
    events = tuple(
        product.Event(
            event_id=f"e{tenant}", tenant=f"t{tenant}", ts_ms=NOW_MS, query=f"How do I refund order {tenant} now?",
            output="HARM", retrieved=None, harm="harmful",
        )
        for tenant in range(tenants)
    )  # fmt: skip
    models = product.StandIns()
    began, worked = time.perf_counter(), time.process_time()
    snapshot = product.open_snapshot(folder / "store", keyring.policy, now_ms=NOW_MS + 1)
    reporter = product.Reporter(product.Console(file=io.StringIO()))
    if hasattr(product, "AuditRequest"):
        executor = product.LocalExecutor(product.ModelSpecs(backbone="fake", nli="fake", embedder="fake"))
        executor.embedder = executor.entailment = models
        file = product.EventsFile(events=events, digest="night")
        request = product.AuditRequest(snapshot=snapshot, events=file, config=product.CONFIG)
        with reporter:
            result, _ = product.audit_all(request, executor, folder / "run", now_ms=NOW_MS)
    else:
        result = product.run_audit(
            snapshot, (events, "night"), product.CONFIG, models, folder / "run", reporter, now_ms=NOW_MS
        )  # fmt: skip
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - worked
    written = [path for path in (folder / "run").rglob("*") if path.is_file()]
    told = {verdict for tenant in result.tenants for verdict in _verdicts(tenant)}
    if told != {"not reproduced"}:
        raise RuntimeError(f"no night without harm: {sorted(told)}")
    return {
        "memories": sum(sizes(tenants)),
        "pairs": models.asked["directed pairs"] // 2,
        "texts": models.asked["texts"],
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "result_bytes": sum(path.stat().st_size for path in written if path.name.startswith("result")),
        "report_bytes": sum(path.stat().st_size for path in written if path.suffix == ".html"),
        "run_bytes": sum(path.stat().st_size for path in written),
    }


def _verdicts(tenant: Any) -> list[str]:
    if hasattr(tenant, "tally"):
        return [name for name, count in tenant.tally.verdicts.items() if count]
    return [event.verdict for event in tenant.events]


def main() -> None:
    """Run one night."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module")
    parser.add_argument("--tenants", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(night(importlib.import_module(options.module), options.tenants, Path(folder))))


if __name__ == "__main__":
    main()
