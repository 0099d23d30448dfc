"""Print every bar of every committed result, those not met first.

python -m benchmarks.harness.bars
"""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table

from benchmarks.harness.resultfile import RESULTS

__all__ = ["read_bars"]


def read_bars() -> list[dict[str, object]]:
    """Return all bars with the name of their result; not met first, then not measured, then met."""
    order = {False: 0, None: 1, True: 2}
    bars = [
        {**bar, "result": path.stem}
        for path in sorted(RESULTS.glob("*.json"))
        for bar in json.loads(path.read_text(encoding="utf-8")).get("bars", [])
    ]
    return sorted(bars, key=lambda bar: (order[bar["met"]], bar["result"], bar["name"]))


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    table = Table(title="bars")
    for column in ("", "bar", "value", "limit", "result"):
        table.add_column(column, overflow="fold")
    words = {False: "NOT MET", None: "not measured", True: "met"}
    for bar in read_bars():
        value = "" if bar["value"] is None else f"{bar['value']} {bar['unit']}"
        table.add_row(words[bar["met"]], str(bar["name"]), value, str(bar["limit"]), str(bar["result"]))
    Console().print(table)


if __name__ == "__main__":
    main()
