"""The table of attack and repair in `docs/results/attribution.md`, from the committed rows of both tracks.

A line for each method at each contamination ratio, counts over all seeds, intervals Wilson, 95 %;
`benchmarks.harness.tables` has every row.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from benchmarks.attribution.minja.methods import CMIS_ONLY, OWN_COUNT, PLAIN, SET
from benchmarks.harness.tables import Group, pool, rate, read_rows

__all__ = ["lines"]

STUDIES = {
    "minja_qa_1.5b-int8": ("QA, int8", (0.15, 0.2, 0.25, 0.5, 0.63)),
    "minja_qa_0.5b": ("QA, 0.5B bf16", (0.2, 0.5)),
    "minja_qa_lev_1.5b-int8": ("QA, int8, Levenshtein", (0.5,)),
    "minja_qa_copies_1.5b-int8": ("QA, int8, each poison ten times", (0.25, 0.5)),
    "minja_qa_copies220_1.5b-int8": ("QA, int8, each poison ten times, 220 memories", (0.25,)),
    "minja_qa_copies340_1.5b-int8": ("QA, int8, each poison ten times, 340 memories", (0.5,)),
    "minja_rap_1.5b-int8": ("RAP, int8", (0.15, 0.25, 0.5)),
    "minja_rap_copies_1.5b-int8": ("RAP, int8, each poison ten times", (0.25, 0.5)),
}
"""Results in the page's order: what they are called there, and the ratios that it shows."""

METHODS = {
    SET: "**set search**",
    PLAIN: "plain, count given",
    OWN_COUNT: "plain, own count",
    CMIS_ONLY: "CMIS only, count given",
}

HEAD = (
    "| track, weights | ρ (seeds) | method | ASR before | ASR after | held-out before → after | poison removed "
    "| benign removed | probes right |"
)


def lines() -> list[str]:
    """Return the table, line by line."""
    found: dict[tuple[str, float, str], list[dict[str, Any]]] = defaultdict(list)
    for row in read_rows():
        found[row["result"], row["rho"], row["method"]].append(row)
    table = [HEAD, "|" + "---|" * HEAD.count(" |")]
    for result, (name, ratios) in STUDIES.items():
        for rho in ratios:
            cells = {method: pool(found[result, rho, method]) for method in METHODS if found[result, rho, method]}
            if SET in cells and cells[SET]["hijacked_before"]:
                table += [_line(name, rho, method, cells) for method in cells]
    return table


def _line(name: str, rho: float, method: str, cells: dict[str, Group]) -> str:
    cell = cells[method]
    ours, fewer = method == SET, cell["runs"] != cells[SET]["runs"]
    before = rate(cell["hijacked_before"], cell["victims"]) if ours or fewer else ""
    after = rate(cell["hijacked_after"], cell["victims"]) if ours or cell["hijacked_after"] else "0 %"
    columns = [
        name if ours else "",
        f"{rho:.2f} ({cell['runs']})" if ours else f"({cell['runs']})" if fewer else "",
        METHODS[method],
        before,
        "**" + after.replace(" %", " %**", 1) if ours else after,
        f"{cell['held_out_before']:g} → {cell['held_out_after']:g} of {cell['held_out']}",
        f"{cell['poison_removed']} of {cell['poison']}",
        str(cell["benign_removed"]),
        f"{cell['probes_right_before']:g} → {cell['probes_right_after']:g} of {cell['probes']}",
    ]
    return "| " + " | ".join(columns) + " |"
