"""Scans of large stores: seconds and peak memory, of a first scan and of a second one with 1 % new memories.

    python -m benchmarks.scan.size [--memories 10000 100000] [--tenants 100]

All detectors run, with stand-ins for embedder and NLI: what is measured is the scan itself. Memories are sentences of
drawn words; one in fifty restates an earlier one, one in a thousand holds a control token. Each command is a process of
its own, in one process with its models (`--local`). Peak memory is that process's. A row is one size.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.command import run
from benchmarks.harness.resultfile import ResultFile
from memory_audit.errors import UsageError

MAX_SECONDS, MAX_PEAK_MIB, MAX_SECOND = 180, 1_500, 0.05
BARRED = 100_000

PROGRAM = """
import json, resource, sys
from memory_audit.jobs.cli.main import main
sys.argv = ["memaudit", *sys.argv[1:]]
try:
    main()
except SystemExit as stop:
    print(json.dumps({"code": stop.code or 0, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}))
"""


def main() -> None:
    """Measure what is missing."""
    options = _options()
    results = ResultFile("scan_size", "python -m benchmarks.scan.size", {"tenants": options.tenants})
    for count in options.memories:
        if all(row["memories"] != count for row in results.rows):
            with tempfile.TemporaryDirectory() as folder:
                results.add_row({"memories": count, **measured(Path(folder), count, options.tenants)})
    for row in results.rows:
        if row["memories"] == BARRED:
            share = round(row["second_seconds"] / row["seconds"], 3)
            results.add_bar("10^5 memories: seconds", row["seconds"], "s", f"<= {MAX_SECONDS}",
                            row["seconds"] <= MAX_SECONDS)  # fmt: skip
            results.add_bar("10^5 memories: peak memory", row["peak_mib"], "MiB", f"<= {MAX_PEAK_MIB}",
                            row["peak_mib"] <= MAX_PEAK_MIB)  # fmt: skip
            results.add_bar("second scan with 1 % new, over the first", share, "x", f"<= {MAX_SECOND}",
                            share <= MAX_SECOND)  # fmt: skip


def measured(folder: Path, count: int, tenants: int) -> dict[str, Any]:
    """Scan a store twice, with 1 % new memories between."""
    (folder / "memaudit.yaml").write_text("nli: fake\nembedder: fake\nbackbone: fake\n", encoding="utf-8")
    fresh = count // 100
    _write(folder / "memories.jsonl", 0, count, tenants)
    _write(folder / "fresh.jsonl", count, fresh, tenants)
    _memaudit(folder, "keys", "new")
    _memaudit(folder, "import", "jsonl:memories.jsonl", "store")
    first = _memaudit(folder, "scan", "store", "--out", "first", "--local", "--quiet")
    again = _memaudit(folder, "scan", "store", "--out", "again", "--local", "--quiet")
    _memaudit(folder, "import", "jsonl:fresh.jsonl", "store")
    second = _memaudit(folder, "scan", "store", "--out", "second", "--local", "--quiet")
    found = [known for tenant in json.loads((folder / "again/scan.json").read_text())["tenants"]
             for known in tenant["findings"]]  # fmt: skip
    return {
        "seconds": first["seconds"], "peak_mib": first["peak_mib"], "unchanged_seconds": again["seconds"],
        "second_seconds": second["seconds"], "second_peak_mib": second["peak_mib"], "findings": len(found),
        "new_on_unchanged": sum(known["state"] != "known" for known in found),
    }  # fmt: skip


def _write(path: Path, first: int, count: int, tenants: int) -> None:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randrange(4, 9))) for _ in range(5_000)]
    with path.open("w", encoding="utf-8") as file:
        for number in range(first, first + count):
            draw = random.Random(number)
            said = draw.choices(words, k=25)
            if number % 50 == 1 and number >= tenants:
                said = [*random.Random(number - tenants).choices(words, k=25), "indeed"]
            text = " ".join(said) + (" <|im_end|>" if number % 1_000 == 7 else "")
            record = {
                "tenant": f"t{number % tenants}", "entry_id": f"m{number}", "principal": f"u{number % 97}",
                "source": "user", "request": " ".join(said[:6]), "response": text, "created_at_ms": number * 60_000,
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")


def _memaudit(folder: Path, *words: str) -> dict[str, Any]:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    seconds = round(time.perf_counter() - began, 2)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"code": done.returncode}
    if told["code"]:
        raise UsageError(f"memaudit {words[0]} ended with {told['code']}: {done.stderr[-500:]}")
    return {**told, "seconds": seconds}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--tenants", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
