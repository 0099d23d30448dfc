"""The deterministic harness of MemLineage's idea: a scripted agent, three defences, attacks that succeed without one.

    python -m benchmarks.gate.lineage             everything; rewrites results/lineage*.json and lineage_tau_k.svg
    python -m benchmarks.gate.lineage --rows      only print the rows, as canonical JSON

Parts: `matrix` (defences x workloads), `tau_sweep` (τ x K over five attribution configurations, by the paper's rules
and by the defaults), `tool_workloads` (coarse taint against parameter-level authority), `latency` (the only one with
times, in a result of its own). The rows of the first three hold no time, path, key or hash, so two runs, on any
machines, give the same bytes. `benchmarks.gate.lineage.laundering` is a benchmark of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from typing import Any

from benchmarks.gate.lineage.latency import graph_sizes, measure
from benchmarks.gate.lineage.matrix import matrix_rows
from benchmarks.gate.lineage.policies import DEFAULT, PAPER
from benchmarks.gate.lineage.tau_sweep import draw, sweep_rows
from benchmarks.gate.lineage.tool_workloads import tool_rows
from benchmarks.harness.resultfile import RESULTS, ResultFile

GATE_LIMIT_US = 100
APPEND_LIMIT_US = 200


def all_rows() -> bytes:
    """Every deterministic row, as canonical JSON."""
    rows = {
        "matrix": matrix_rows(), "tau_k": sweep_rows(PAPER), "tau_k_defaults": sweep_rows(DEFAULT),
        "tools": tool_rows(),
    }  # fmt: skip
    return (json.dumps(rows, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()


def again(seed: str) -> bytes:
    """The same from a process of its own, with another order of hashes."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gate.lineage", "--rows"], capture_output=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip
    return done.stdout


def main() -> None:
    """Run what is asked for, print it, and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate.lineage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", action="store_true", help="only print the deterministic rows")
    parser.add_argument("--part", choices=("all", "rows", "latency", "graph"), default="all")
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=2_000)
    options = parser.parse_args()
    if options.rows:
        sys.stdout.buffer.write(all_rows())
        return
    if options.part in ("all", "rows"):
        _rows()
    if options.part in ("all", "latency"):
        _latency(options.entries, options.repeats)
    if options.part in ("all", "graph"):
        edges = 1_000_000
        row = graph_sizes(edges)
        print(row)
        ResultFile(
            "lineage_graph", "python -m benchmarks.gate.lineage --part graph", {"edges": edges}, fresh=True
        ).add_row(row)


def _rows() -> None:
    first, second = again("1"), again("2")
    rows = json.loads(first)
    (RESULTS / "lineage_rows.json").write_bytes(first)
    draw(rows["tau_k"], RESULTS / "lineage_tau_k.svg")
    digest = hashlib.sha256(first).hexdigest()
    config = {"rows": "lineage_rows.json", "heat_map": "lineage_tau_k.svg"}
    result = ResultFile("lineage", "python -m benchmarks.gate.lineage --part rows", config, fresh=True)
    for row in [*rows["matrix"], *(row for row in rows["tools"] if row["tool"] == "all")]:
        result.add_row(row)
        print(row)
    for part in ("tau_k", "tau_k_defaults"):
        result.add_row({"part": part, "cells": len(rows[part]), "refused": sum(cell["refused"] for cell in rows[part])})
    lost = sum(row["attacks_succeeded"] for row in rows["matrix"] if row["defence"].startswith("MemLineage"))
    result.add_bar("attacks that succeed against MemLineage, all workloads", lost, "", "= 0", met=lost == 0)
    none = [row for row in rows["matrix"] if row["defence"] == "none"]
    asr = min(row["attacks_succeeded"] / row["attacks"] for row in none)
    result.add_bar("ASR without a defence, lowest workload", 100 * asr, "%", "= 100", asr == 1, "variant")
    result.add_bar(f"byte-equal over two runs, SHA-256 {digest[:16]}", int(first == second), "", "= 1",
                   met=first == second)  # fmt: skip
    result.add_bar("cells of the heat map", len(rows["tau_k"]), "", "= 140", met=len(rows["tau_k"]) == 140)
    by_method: dict[str, Any] = {row["method"]: row for row in rows["tools"] if row["tool"] == "all"}
    repair = by_method["authority, repair"]
    result.add_bar("attacker values blocked by authority repair, four tools",
                   repair["attacks"] - repair["attacks_succeeded"], f"of {repair['attacks']}", "= all",
                   met=repair["attacks_succeeded"] == 0)  # fmt: skip


def _latency(entries: int, repeats: int) -> None:
    config = {"entries": entries, "repeats": repeats}
    result = ResultFile("lineage_latency", "python -m benchmarks.gate.lineage --part latency", config, fresh=True)
    rows = measure(entries, repeats)
    for row in rows:
        result.add_row(row)
        print(row)
    gate = max(row["median_us"] for row in rows if row["operation"].startswith("gate"))
    result.add_bar(f"gate at {entries} entries, median, slowest of four modes", gate, "us", f"<= {GATE_LIMIT_US}",
                   met=gate <= GATE_LIMIT_US)  # fmt: skip
    append = round(sum(row["median_us"] for row in rows if row["operation"].startswith("append")), 1)
    result.add_bar(f"append (sign, log, edges) at {entries} entries, median", append, "us", f"<= {APPEND_LIMIT_US}",
                   met=append <= APPEND_LIMIT_US)  # fmt: skip


if __name__ == "__main__":
    main()
