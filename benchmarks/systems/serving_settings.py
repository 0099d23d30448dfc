"""Which settings serve replays fastest on this machine's CPU, and which keep the answers. Each in a process of its own.

    python -m benchmarks.systems.serving_settings [--only NAME …] [--events 2]

Every setting loads the backbone, answers the same replays from an empty prefix cache (cold) and again (warm), and
compares its answers with those of `base`. Rows are written as they come; a second start skips those that are there.
The machine's load average stands beside each number: absolute seconds compare only where it is alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

from benchmarks.harness.resultfile import ResultFile
from benchmarks.systems.replay_prompts import event_requests
from memory_audit.models.backbone.generator_vllm import VllmGenerator, VllmSettings
from memory_audit.models.loading import ModelSpecs, load_generator

BASE = VllmSettings()
SETTINGS: dict[str, tuple[str, VllmSettings]] = {
    "base": ("packaged:1.5b", BASE),
    "one core reserved (vLLM's own default)": ("packaged:1.5b", replace(BASE, reserved_cores=1)),
    "block size 32": ("packaged:1.5b", replace(BASE, block_size=32)),
    "int8 weights": ("packaged:1.5b-int8", BASE),
    "compiled graphs": ("packaged:1.5b", replace(BASE, enforce_eager=False)),
    "block size 16": ("packaged:1.5b", replace(BASE, block_size=16)),
    "prefix cache of 1 GiB": ("packaged:1.5b", replace(BASE, kv_cache_gib=1)),
    "base again": ("packaged:1.5b", BASE),
}
LIMIT_S = 900
MARK = "RESULT "


async def measure(name: str, events: int) -> dict[str, Any]:
    """Serve with one setting and return its row."""
    backbone, settings = SETTINGS[name]
    began = time.perf_counter()
    generator = load_generator(ModelSpecs(backbone=backbone, vllm=settings))
    if not isinstance(generator, VllmGenerator):
        raise TypeError(backbone)
    requests = [request for number in range(events) for request in event_requests(number)]
    await generator.generate(replace(event_requests(events)[-1], max_tokens=2))
    load_s = time.perf_counter() - began
    row: dict[str, Any] = {"setting": name, "model": generator.model_id, "load_s": round(load_s, 1)}
    await generator.reset_prefix_cache()
    for phase in ("cold", "warm"):
        began = time.perf_counter()
        completions = await asyncio.gather(*(generator.generate(request) for request in requests))
        row[f"{phase}_s"] = round(time.perf_counter() - began, 2)
        row[f"{phase}_tokens_computed"] = sum(
            item.usage.prompt_tokens - item.usage.cached_tokens for item in completions
        )
    row["replays"] = len(requests)
    row["load_average"] = round(os.getloadavg()[0], 1)
    row["answers"] = [item.text for item in completions]
    await generator.close()
    return row


def main() -> None:
    """Run the settings that have no row yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--events", type=int, default=2)
    parser.add_argument("--measure", choices=list(SETTINGS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(MARK + json.dumps(asyncio.run(measure(arguments.measure, arguments.events))))
        return
    command = f"python -m benchmarks.systems.serving_settings --events {arguments.events}"
    result = ResultFile("serving_settings", command, {"events": arguments.events})
    for name in arguments.only:
        if any(row["setting"] == name for row in result.rows):
            continue
        row = _in_a_process(name, arguments.events)
        base = next((old for old in [*result.rows, row] if old["setting"] == "base" and "answers" in old), None)
        if base and "answers" in row:
            pairs = list(zip(base["answers"], row["answers"], strict=True))
            row["same_answer_as_base"] = round(sum(a == b for a, b in pairs) / len(pairs), 3)
            row["same_letter_as_base"] = round(sum(_letter(a) == _letter(b) for a, b in pairs) / len(pairs), 3)
        result.add_row(row)
        print({key: value for key, value in row.items() if key != "answers"})


def _in_a_process(name: str, events: int) -> dict[str, Any]:
    try:
        process = subprocess.run(
            [sys.executable, "-m", "benchmarks.systems.serving_settings", "--measure", name, "--events", str(events)],
            capture_output=True, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"setting": name, "failed": f"no end after {LIMIT_S} s"}
    for line in process.stdout.splitlines():
        if line.startswith(MARK):
            row: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return row
    return {"setting": name, "failed": (process.stderr.strip().splitlines() or ["no output"])[-1][:300]}


def _letter(answer: str) -> str:
    """Return the last option letter of an answer: what a QA agent's harm scorer reads."""
    found: list[str] = re.findall(r"\b[A-D]\b", answer)
    return found[-1] if found else ""


if __name__ == "__main__":
    main()
