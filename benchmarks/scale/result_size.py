"""What a run of many tenants takes on disk, and how long its page takes to open, beside an earlier build.

    python -m benchmarks.scale.result_size [--tenants 1000] [--entries 100] [--neighbours 8] [--before 09c124a]

Both builds write the same synthetic findings, each in a process of its own that does nothing else: scores and pairs of
all entries, one event a tenant, and three entries to remove in one tenant of ten. The earlier build is taken out of the
repository's history. A browser's time is that of headless Chromium to load the main page and print its DOM, less that
for an empty page; the least of some tries.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
PACKAGE = os.environ.get("MEMAUDIT_BUILD", "memory_audit")
"""Import package of the build that writes: an earlier one was called `audit`."""

results: Any = import_module(f"{PACKAGE}.result")
EARLIER = not hasattr(results, "TenantSummary")
"""The build that is imported kept a result in one file."""
EVERY = 10
"""One tenant of so many has something to remove."""

MAX_RATIO, MAX_INDEX_BYTES, MAX_OPEN_S = 0.1, 1_000_000, 1.0
TRIES = 3
NOW_MS = 1_800_000_000_000


def tenant(number: int, entries: int, neighbours: int) -> tuple[Any, dict[str, dict[str, str]]]:
    """Return the findings of one tenant, and the texts of what it removes."""
    draw = random.Random(number)
    names = [f"mem-{draw.randrange(10**8):08}" for _ in range(entries)]
    removed = (
        dict.fromkeys(names[:3], "alone it raises the odds of the harm by 5.1 nats") if number % EVERY == 0 else {}
    )

    def drawn(low: float, high: float) -> float:
        return float(np.float32(draw.uniform(low, high)))

    event = results.EventFinding(
        event_id=f"e-{number}", verdict="cleared" if removed else "not reproduced",
        query=f"What is the refund window for order {draw.randrange(10**6)}?", output_observed="Never refund anything.",
        output_before="Never refund anything." if removed else "Thirty days.", output_after="Thirty days.",
        harm_before=float(bool(removed)), harm_after=0.0, harm_without_memory=0.0, retrieved=tuple(names[:5]),
        retrieved_reconstructed=False, retrieved_after=tuple(names[3:8]), causes=tuple(removed), reason="replayed",
    )  # fmt: skip
    scores = tuple(
        results.EntryScore(
            entry_id=name, cmis=drawn(1, 3) if name in removed else None, cas=drawn(0, 1.4), cmis_normalised=0.0,
            cas_normalised=drawn(0, 1), ds=drawn(0, 1), rank=rank, cas_flagged=draw.random() < 0.02,
            density=drawn(0.3, 0.9),
            **({"removed": name in removed, "reason": removed.get(name, "")} if EARLIER else {}),
        )
        for rank, name in enumerate(names, start=1)
    )  # fmt: skip
    pairs = sorted({
        (min(place, other), max(place, other))
        for place in range(entries)
        for other in draw.sample([*range(place), *range(place + 1, entries)], neighbours)
    })  # fmt: skip
    edges = tuple(
        results.GraphEdge(a=names[a], b=names[b], similarity=drawn(0.3, 0.9), contradiction=drawn(0, 0.2))
        for a, b in pairs
    )
    texts = {
        name: {"request": event.query, "response": "Never refund. " * 8, "principal": "bot-7", "source": "agent"}
        for name in removed
    }
    found: dict[str, Any] = {
        "tenant": f"tenant-{number:05}", "entries": entries, "events": (event,), "probes": (), "scores": scores,
        "edges": edges,
    }  # fmt: skip
    if not EARLIER:
        found["removal"] = results.RemovalSet(attributed=removed)
        found["texts"] = tuple(results.EntryText(entry_id=name, **text) for name, text in texts.items())
        found["cost"] = {"replays": draw.randrange(1, 200)}
    return results.TenantResult(**found), texts


def write(out: Path, count: int, entries: int, neighbours: int) -> dict[str, Any]:
    """Write the findings with the build that is imported, and say what they take."""
    found = (tenant(number, entries, neighbours) for number in range(count))
    begun = time.process_time()
    run: dict[str, Any] = {
        "run_id": "r" * 16, "store": "5" * 32, "snapshot_version": 1, "snapshot_digest": "d" * 64, "started_ms": NOW_MS,
        "seconds": 1.0, "config": {"alpha": "0.6"}, "models": {"backbone": "stand-in"}, "counters": {"replays": count},
    }  # fmt: skip
    result = _parts(out, run, found) if not EARLIER else _whole(run, found)
    (out / "result.json").write_text(import_module(f"{PACKAGE}.report.json").to_json(result))
    written = time.process_time() - begun
    _write_report(out, result)
    return {
        "result_bytes": sum(path.stat().st_size for path in (out / "result.json", *out.glob("findings/*"))),
        "result_files": 1 + len(list(out.glob("findings/*"))),
        "main_page_bytes": (out / "report.html").stat().st_size,
        "pages_bytes": sum(path.stat().st_size for path in out.glob("report/*")),
        "write_s": round(written, 2),
        "report_s": round(time.process_time() - begun - written, 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _whole(run: dict[str, Any], found: Iterator[tuple[Any, dict[str, dict[str, str]]]]) -> Any:
    all_found = list(found)
    texts = {f"{of.tenant}/{name}": text for of, held in all_found for name, text in held.items()}
    return results.AuditResult(**run, tenants=tuple(of for of, _ in all_found), entries_text=texts)


def _parts(out: Path, run: dict[str, Any], found: Iterator[tuple[Any, dict[str, dict[str, str]]]]) -> Any:
    from memory_audit.jobs.run.run_findings import PART_TENANTS, write_part  # noqa: PLC0415 - not in an earlier build

    summaries: list[Any] = []
    files: dict[str, str] = {}
    while part := [of for of, _ in (next(found, (None, None)) for _ in range(PART_TENANTS)) if of is not None]:
        told, digests = write_part(part, lambda name, data: (out / name).write_bytes(data))
        summaries += told
        files |= digests
    return results.AuditResult(**run, tenants=tuple(summaries), files=files)


def _write_report(out: Path, result: Any) -> None:
    if EARLIER:
        (out / "report.html").write_text(import_module(f"{PACKAGE}.report.html").render_html(result))
        return
    from memory_audit.jobs.run.run_findings import RunFindings  # noqa: PLC0415
    from memory_audit.report.html import report_files  # noqa: PLC0415

    for name, page in report_files(result, RunFindings(out, result), every=False):
        (out / name).write_text(page)


def in_a_process(package: str, path: str, out: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Write with the build on a path."""
    for folder in ("findings", "report"):
        (out / folder).mkdir(parents=True)
    shape = [str(arguments.tenants), str(arguments.entries), str(arguments.neighbours)]
    done = subprocess.run(
        [sys.executable, __file__, "--write", str(out), *shape], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path, "MEMAUDIT_BUILD": package},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def earlier_build(commit: str, folder: Path) -> str:
    """Take a build out of the history, and return the path that it is imported from."""
    source = folder / "source"
    source.mkdir()
    archive = subprocess.run(
        ["git", "archive", commit, "audit", "models", "jobs"], cwd=REPOSITORY, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    return str(source)


def open_seconds(page: str, folder: Path) -> float | None:
    """Return how long Chromium takes for a page beyond an empty one; None where there is no Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return None
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --dump-dom"

    def least(address: str) -> float:
        spent = []
        for _ in range(TRIES):
            begun = time.perf_counter()
            command = [browser, *flags.split(), f"--user-data-dir={folder / 'profile'}", address]
            subprocess.run(command, capture_output=True, check=True, timeout=120)
            spent.append(time.perf_counter() - begun)
        return min(spent)

    return round(max(least(page) - least("about:blank"), 0.0), 3)


def main() -> None:
    """Write with both builds, and hold them against the bars."""
    from benchmarks.harness.resultfile import ResultFile  # noqa: PLC0415 - the child process has another path

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--entries", type=int, default=100)
    parser.add_argument("--neighbours", type=int, default=8)
    parser.add_argument("--before", default="09c124a")
    given = parser.parse_args()
    file = ResultFile("result_size", "python -m benchmarks.scale.result_size", vars(given), fresh=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {}
        here = os.pathsep.join(sys.path)
        for build, package, path in (
            ("earlier", "audit", earlier_build(given.before, folder)), ("this", "memory_audit", here),
        ):  # fmt: skip
            rows[build] = in_a_process(package, path, folder / build, given)
            rows[build]["open_s"] = open_seconds((folder / build / "report.html").as_uri(), folder)
            file.add_row({"build": build, **rows[build]})
    now, before = rows["this"], rows["earlier"]
    ratio = round(now["result_bytes"] / before["result_bytes"], 3)
    file.add_bar("result on disk, of the earlier build's", ratio, "x", f"<= {MAX_RATIO}", ratio <= MAX_RATIO)
    file.add_bar(
        "index page",
        now["main_page_bytes"],
        "bytes",
        f"<= {MAX_INDEX_BYTES}",
        now["main_page_bytes"] <= MAX_INDEX_BYTES,
    )
    opened = now["open_s"]
    file.add_bar("index page opens", opened, "s", f"<= {MAX_OPEN_S}", None if opened is None else opened <= MAX_OPEN_S)
    print(json.dumps({"rows": file.rows, "ratio": ratio}, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        print(json.dumps(write(Path(sys.argv[2]), *map(int, sys.argv[3:6]))))
    else:
        main()
