"""A million inputs for every decoder: each is refused with our own error, or is the one form of what it says.

    python -m benchmarks.systems.fuzz [--inputs 1000000] [--only NAME] [--processes 2] [--results FOLDER]
    python -m benchmarks.systems.fuzz --engine atheris --folder FOLDER [--inputs 1000000] [--only NAME]

Engines: `mutation` changes bytes, tokens and values of seeds, drawn with a fixed seed
(`benchmarks.systems.fuzz.mutation`); `atheris` (the extra `fuzz`) is guided by coverage and keeps its corpus and what
it finds in FOLDER. Any exception but the decoder's own ends the run and shows the input. Decoders in the result file
with as many inputs are skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.resultfile import RESULTS, ResultFile
from benchmarks.systems.fuzz.engines import run_atheris, run_mutation
from benchmarks.systems.fuzz.targets import targets
from memory_audit.models.extras import with_extra

if TYPE_CHECKING:
    from collections.abc import Sequence

FULL = 1_000_000
ENGINES = ("mutation", "atheris")


def main() -> None:
    """Fuzz what is not in the result file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--inputs", type=int, default=FULL, help="inputs per decoder")
    parser.add_argument("--only", action="append", default=[], help="a decoder's name; may be repeated")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="decoders run at once")
    parser.add_argument("--folder", type=Path, help="corpus and crashes of atheris")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where fuzz.json lies")
    options = parser.parse_args()
    table = targets()
    unknown = sorted(set(options.only) - {target.name for target in table})
    if unknown:
        sys.exit(f"no decoder {unknown[0]!r}; there are {', '.join(target.name for target in table)}")
    if options.engine == "atheris":
        if importlib.util.find_spec("atheris") is None:
            sys.exit(f"atheris is not installed; {with_extra('fuzz')}, or use --engine mutation")
        if options.folder is None:
            sys.exit("--engine atheris needs --folder, where corpus and crashes are kept")
    result = ResultFile(
        "fuzz",
        "python -m benchmarks.systems.fuzz",
        {"mutation": "seeded by the decoder's name"},
        folder=options.results,
    )
    missing = [
        target.name
        for target in table
        if (not options.only or target.name in options.only)
        and _inputs(result.rows, target.name, options.engine) < options.inputs
    ]
    with ProcessPoolExecutor(options.processes) as pool:
        runs = {pool.submit(_run, name, options.engine, options.inputs, options.folder): name for name in missing}
        try:
            for run in as_completed(runs):
                result.add_row(run.result())
                print(f"{len(result.rows)} rows, {runs[run]}: {result.rows[-1]['seconds']} s", flush=True)
                state_bars(result, [item.name for item in table])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run(name: str, engine: str, inputs: int, folder: Path) -> dict[str, object]:
    """Run one decoder, in a process of the pool."""
    (target,) = (target for target in targets() if target.name == name)
    return run_atheris(target, inputs, folder) if engine == "atheris" else run_mutation(target, inputs)


def _inputs(rows: Sequence[dict[str, object]], decoder: str, engine: str) -> int:
    """Return the most inputs that an engine has run on a decoder."""
    return max(
        (int(str(row["inputs"])) for row in rows if (row["decoder"], row["engine"]) == (decoder, engine)), default=0
    )


def state_bars(result: ResultFile, decoders: Sequence[str]) -> None:
    """State what was run, and not more: a decoder of the table without a row keeps the bar from being met."""
    ran, guided = (
        {row["decoder"] for row in result.rows if row["engine"] in kinds} for kinds in (ENGINES, ENGINES[1:])
    )
    foreign = sum(row["foreign"] for row in result.rows)
    where = f"over {len(ran)} decoders, {len(guided)} of them with atheris too"
    result.add_bar("exceptions that are not ours", foreign, where, "0", met=foreign == 0)
    counts = [count for decoder in decoders if (count := _inputs(result.rows, decoder, "mutation"))]
    if counts:
        met = min(counts) >= FULL and len(counts) == len(decoders)
        where = f"inputs, over {len(counts)} of {len(decoders)} decoders"
        result.add_bar("inputs per decoder", min(counts), where, f">= {FULL}", met=met)


if __name__ == "__main__":
    main()
