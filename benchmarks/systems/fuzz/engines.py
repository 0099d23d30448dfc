"""Two of the three engines that run a target a given number of times; the third, hypothesis, is in `tests/fuzz`."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from memory_audit.errors import AuditError

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.systems.fuzz.target import Target

__all__ = ["run_atheris", "run_mutation"]


def run_mutation(target: Target, inputs: int) -> dict[str, object]:
    """Run mutated seeds, drawn by the target's name: the same inputs in every run.

    Raises:
        Exception: what the decoder raised that is not ours; the input is printed.
    """
    draw, refused, start = random.Random(target.name), 0, time.perf_counter()
    for _ in range(inputs):
        data = target.make(draw)
        try:
            refused += not target.accepts(data)
        except BaseException:
            print(f"{target.name}: {data!r}")
            raise
    return _row(target, "mutation", inputs, refused, time.perf_counter() - start)


def run_atheris(target: Target, inputs: int, folder: Path) -> dict[str, object]:
    """Run coverage-guided inputs in a process of their own; corpus and crashes lie in `folder`.

    Raises:
        AuditError: a foreign exception was found, or the engine died before its last input.
    """
    place = folder / target.name.replace(" ", "-")
    place.mkdir(parents=True, exist_ok=True)
    (place / "state.json").unlink(missing_ok=True)
    start = time.perf_counter()
    arguments = [target.name, str(place), str(inputs)]
    done = subprocess.run([sys.executable, "-m", "benchmarks.systems.fuzz.atheris_child", *arguments], check=False)
    state = json.loads((place / "state.json").read_text()) if (place / "state.json").exists() else {"inputs": 0}
    if done.returncode != 0 or state["inputs"] < inputs:
        raise AuditError(
            f"{target.name}: ended after {state['inputs']} inputs with code {done.returncode}: see {place}"
        )
    return _row(target, "atheris", state["inputs"], state["refused"], time.perf_counter() - start)


def _row(target: Target, engine: str, inputs: int, refused: int, seconds: float) -> dict[str, object]:
    return {
        "decoder": target.name, "engine": engine, "inputs": inputs, "refused": refused, "foreign": 0,
        "seconds": round(seconds, 1),
    }  # fmt: skip
