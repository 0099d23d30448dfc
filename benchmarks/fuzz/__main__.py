"""A million inputs for every decoder: each is refused with our own error, or is the one form of what it says.

    python -m benchmarks.fuzz [--inputs 1000000] [--only NAME] [--results FOLDER]
    python -m benchmarks.fuzz --engine atheris --folder FOLDER [--inputs 1000000] [--only NAME]

Engines: `mutation` changes bytes, tokens and values of seeds, drawn with a fixed seed (`benchmarks.fuzz.mutation`);
`atheris` (the extra `fuzz`) is guided by coverage and keeps its corpus and what it finds in FOLDER. Any exception but
the decoder's own ends the run and shows the input. Decoders in the result file with as many inputs are skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.fuzz.engines import run_atheris, run_mutation
from benchmarks.fuzz.targets import targets
from benchmarks.resultfile import RESULTS, ResultFile

if TYPE_CHECKING:
    from collections.abc import Sequence

FULL = 1_000_000
ENGINES = ("mutation", "atheris")


def main() -> None:
    """Fuzz what is not in the result file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--inputs", type=int, default=FULL, help="inputs per decoder")
    parser.add_argument("--only", action="append", default=[], help="a decoder's name; may be repeated")
    parser.add_argument("--folder", type=Path, help="corpus and crashes of atheris")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where fuzz.json lies")
    options = parser.parse_args()
    table = targets()
    unknown = sorted(set(options.only) - {target.name for target in table})
    if unknown:
        sys.exit(f"no decoder {unknown[0]!r}; there are {', '.join(target.name for target in table)}")
    if options.engine == "atheris":
        if importlib.util.find_spec("atheris") is None:
            sys.exit("atheris is not installed: pip install 'memaudit[fuzz]', or use --engine mutation")
        if options.folder is None:
            sys.exit("--engine atheris needs --folder, where corpus and crashes are kept")
    result = ResultFile(
        "fuzz", "python -m benchmarks.fuzz", {"mutation": "seeded by the decoder's name"}, folder=options.results
    )
    for target in table:
        if options.only and target.name not in options.only:
            continue
        if _inputs(result.rows, target.name, options.engine) >= options.inputs:
            continue
        if options.engine == "atheris":
            row = run_atheris(target, options.inputs, options.folder)
        else:
            row = run_mutation(target, options.inputs)
        result.add_row(row)
        print(row, flush=True)
        state_bars(result, [item.name for item in table])


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
