"""Print what the shipped defaults must meet, of all committed results; those not met first.

python -m benchmarks.harness.bars          # the defaults
python -m benchmarks.harness.bars --all    # and ablations, baselines and other settings
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness.resultfile import RESULTS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_bars"]


def read_bars(folder: Path = RESULTS, *, variants: bool = False) -> list[dict[str, Any]]:
    """Return the defaults' bars, or all, with the name of their result; not met first, then not measured, then met."""
    order = {False: 0, None: 1, True: 2}
    bars = [
        {**bar, "result": path.stem}
        for path in sorted(folder.glob("*.json"))
        for bar in json.loads(path.read_text(encoding="utf-8")).get("bars", [])
        if variants or bar["of"] == "default"
    ]
    return sorted(bars, key=lambda bar: (order[bar["met"]], bar["result"], bar["name"]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="ablations, baselines and other settings, too")
    variants = parser.parse_args().all
    table = Table(title="bars" if variants else "bars of the defaults")
    for column in ("", "bar", "value", "limit", "result", *(["of"] * variants)):
        table.add_column(column, overflow="fold")
    words = {False: "NOT MET", None: "not measured", True: "met"}
    for bar in read_bars(variants=variants):
        value = "" if bar["value"] is None else f"{bar['value']} {bar['unit']}"
        cells = (words[bar["met"]], bar["name"], value, bar["limit"], bar["result"], *([bar["of"]] * variants))
        table.add_row(*map(str, cells))
    Console().print(table)


if __name__ == "__main__":
    main()
