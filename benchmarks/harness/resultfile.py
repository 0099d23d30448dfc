"""One shape for every result: `benchmarks/results/NAME.json`, written as the benchmark goes, resumable.

    {"name": "merkle", "command": "python -m benchmarks.systems.merkle", "commit": "1a2b3c4d5e6f", "machine": {…},
     "started": "2026-11-21T22:10:00Z", "seconds": 12.5, "config": {…}, "rows": [{…}], "bars": [{"name": "ratio",
     "value": 1.1, "unit": "x", "limit": "<= 1.3", "met": true, "of": "default"}]}

A second `ResultFile` with the same name and an equal configuration takes over the rows already written, so that a long
benchmark continues where it stopped; with another configuration it starts empty. `bars` are replaced by name. A bar is
what the shipped default must meet (`"of": "default"`), or is about an ablation, a baseline or another setting
(`"of": "variant"`); a figure without a limit is a row. The machine is described by what matters for numbers (CPU,
cores, memory, Python), never by host name or path.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

__all__ = ["RESULTS", "BarOf", "ResultFile", "describe_machine"]

RESULTS = Path(__file__).parents[1] / "results"

BarOf = Literal["default", "variant"]


class ResultFile:
    """A result being written.

    Args:
        name: File name without `.json`.
        command: The command that reproduces the result.
        config: Everything that changes the numbers; JSON-able. Equal configurations resume.
        folder: Where results lie; tests give another one.
        fresh: Throw away earlier rows even where the configuration is equal.
    """

    def __init__(
        self, name: str, command: str, config: dict[str, Any], *, folder: Path = RESULTS, fresh: bool = False
    ) -> None:
        self.path = folder / f"{name}.json"
        self._began = time.perf_counter()
        earlier = None if fresh else _load(self.path)
        config = json.loads(json.dumps(config))  # what a file can hold, so that equality means what a reader sees
        resumed = earlier if earlier is not None and earlier.get("config") == config else None
        machine = describe_machine()
        self._elsewhere = {} if resumed is None or resumed["machine"] == machine else {"machine": machine["cpu"]}
        self._seconds_before = float(resumed["seconds"]) if resumed else 0.0
        self._record: dict[str, Any] = {
            "name": name,
            "command": command,
            "commit": _commit(),
            "machine": resumed["machine"] if resumed else machine,
            "started": resumed["started"] if resumed else datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seconds": self._seconds_before,
            "config": config,
            "rows": list(resumed["rows"]) if resumed else [],
            "bars": list(resumed["bars"]) if resumed else [],
        }

    @property
    def config(self) -> dict[str, Any]:
        """What changes the numbers, as the file has it."""
        return dict(self._record["config"])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows written so far, this run's and those it resumed: a benchmark skips what is here."""
        return list(self._record["rows"])

    def add_row(self, row: dict[str, Any]) -> None:
        """Append one row and write the file; where a file is resumed on another machine, its rows name theirs."""
        self._record["rows"].append(row | self._elsewhere)
        self._write()

    def add_bar(  # noqa: PLR0917
        self,
        name: str,
        value: float | None,
        unit: str,
        limit: str,
        met: bool | None,  # noqa: FBT001
        of: BarOf = "default",
    ) -> None:
        """State one bar, replacing an earlier one of that name; `value` and `met` are None where not measured."""
        bar = {"name": name, "value": value, "unit": unit, "limit": limit, "met": met, "of": of}
        self._record["bars"] = [old for old in self._record["bars"] if old["name"] != name] + [bar]
        self._write()

    def _write(self) -> None:
        self._record["seconds"] = round(self._seconds_before + time.perf_counter() - self._began, 3)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(f".{os.getpid()}.part")
        partial.write_text(json.dumps(self._record, indent=1, ensure_ascii=False, default=str, allow_nan=False) + "\n")
        partial.replace(self.path)


def describe_machine() -> dict[str, Any]:
    """CPU model, usable cores, memory in GiB, accelerators, operating system and Python: no names, no paths."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": _gpus(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"],
            capture_output=True, text=True, check=False, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()] if answer.returncode == 0 else []


def _commit() -> str:
    """Return the checked-out commit, with `+` where tracked files differ from it, or `unknown` outside a clone."""
    root = Path(__file__).parents[2]
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=root, capture_output=True, text=True, check=False
        )
        dirty = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "*.py"], cwd=root, check=False)
    except OSError:
        return "unknown"
    return head.stdout.strip() + ("+" if dirty.returncode == 1 else "") if head.returncode == 0 else "unknown"


def _load(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None
