"""The paper's tables 1 to 5 over ten seeds, one plot a table, from the committed rows of both tracks.

    python -m benchmarks.harness.ten_seeds

Reads `benchmarks/results/minja_*_ten_seeds.json`, which the commands that `RUNS` names write, and draws
`ten_seeds_1.svg` to `ten_seeds_5.svg` beside them; prints the tables. A value is the mean of the seeds'
rates, and an interval a percentile bootstrap over seeds, 95 %. A seed is a store of its own: another mixture, other
poison, other victims. All methods of a seed share its replays.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")  # no display here, and figures must be the same everywhere
from matplotlib import pyplot as plt
from rich.console import Console

from benchmarks.attribution.minja.methods import CMIS_ONLY, MCG_ONLY, NNC, OWN_COUNT, PLAIN, RD, RF, SET
from benchmarks.harness.intervals import bootstrap
from benchmarks.harness.pages.shown import table
from benchmarks.harness.resultfile import RESULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["RUNS", "TABLES", "Line", "lines", "main", "markdown"]

TRACKS = {"QA": "minja_qa_ten_seeds", "RAP": "minja_rap_ten_seeds"}

RUNS = {
    track: f"python -m benchmarks.attribution.{module} --data DATA --backbone packaged:1.5b-int8 --rho {ratios} "
    "--seeds 0 1 2 3 4 5 6 7 8 9 --victims 4 --held-out 0 --probes 0 --suffix _ten_seeds"
    for track, module, ratios in (("QA", "minja_qa", "0.2 0.25 0.5"), ("RAP", "minja_rap", "0.15 0.25 0.5"))
}
"""The size that ten seeds can afford: four victims a store of forty memories."""

MAIN = {"QA": 0.2, "RAP": 0.15}

NAMES = {
    SET: "set search", OWN_COUNT: "CMIS + CAS, own count", PLAIN: "CMIS + CAS", CMIS_ONLY: "CMIS only",
    MCG_ONLY: "CAS only", RD: "random (RD)", RF: "retrieved most (RF)", NNC: "contradicts neighbours (NNC)",
}  # fmt: skip

ALPHAS = {MCG_ONLY: "α = 0", "plain α=0.2": "α = 0.2", "plain α=0.4": "α = 0.4", PLAIN: "α = 0.6",
          "plain α=0.8": "α = 0.8", CMIS_ONLY: "α = 1"}  # fmt: skip

TABLES: dict[int, tuple[str, dict[str, str], str | None]] = {
    1: ("Methods that remove the same number of memories", {m: NAMES[m] for m in (SET, PLAIN, RD, RF, NNC)}, None),
    2: ("What each half of the published score does", {m: NAMES[m] for m in (PLAIN, CMIS_ONLY, MCG_ONLY)}, None),
    3: ("The weight of CMIS against CAS", ALPHAS, None),
    4: ("More poison, QA", {m: NAMES[m] for m in (SET, OWN_COUNT, PLAIN)}, "QA"),
    5: ("More poison, RAP", {m: NAMES[m] for m in (SET, OWN_COUNT, PLAIN)}, "RAP"),
}
"""By the paper's number: title, methods by what they are called here, and the track whose ratios are swept."""

COLOURS = ("#1b7f5c", "#d98e04", "#c0392b", "#7f8c8d", "#34495e", "#8e44ad")


class Line:
    """A method in a setting: what its seeds came to.

    Args:
        place: Track and contamination ratio.
        method: As `benchmarks.attribution.minja.methods` has it.
        rows: One for each seed.
    """

    def __init__(self, place: tuple[str, float], method: str, rows: Sequence[dict[str, Any]]) -> None:
        self.place, self.method, self.seeds = place, method, len(rows)
        self.before = _mean(100 * row["hijacked_before"] / row["victims"] for row in rows)
        self.after = _mean(100 * row["hijacked_after"] / row["victims"] for row in rows)
        seen = [row for row in rows if row["events"]]
        """Seeds in which an event was harmful; in the others there was nothing to audit."""

        self.found = _mean(100 * row["poison_removed"] / row["poison"] for row in seen)
        self.benign = sum(row["benign_removed"] for row in rows)


Mean = tuple[float, float, float]
"""Mean, lower and upper bound, per cent."""


def _mean(values: Iterable[float]) -> Mean | None:
    known = list(values)
    return (sum(known) / len(known), *bootstrap(known)) if known else None


def lines(track: str | None, methods: Iterable[str]) -> list[Line]:
    """Return the lines of a table: of one track at every ratio, or (None) of both at the main one.

    Only seeds that every method of the table has are counted, so that all are asked the same.
    """
    wanted = list(methods)
    found: list[Line] = []
    for name, result in TRACKS.items():
        path = RESULTS / f"{result}.json"
        if track not in {None, name} or not path.exists():
            continue
        cells: dict[float, dict[str, dict[int, dict[str, Any]]]] = defaultdict(lambda: defaultdict(dict))
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            cells[row["rho"]][row["method"]][row["seed"]] = row
        for rho, by_method in sorted(cells.items()):
            if track is None and rho != MAIN[name]:
                continue
            seeds = set.intersection(*(set(by_method[method]) for method in wanted))
            found += [
                Line((name, rho), method, [by_method[method][seed] for seed in sorted(seeds)])
                for method in wanted
                if seeds
            ]
    return found


def markdown(names: dict[str, str], drawn: Iterable[Line]) -> str:
    """Write lines as a table, methods by their names here."""
    head = ("where", "seeds", "method", "ASR before", "ASR after", "poison found", "benign removed")
    return table(head, [
        (f"{line.place[0]}, ρ = {line.place[1]:.2f}", line.seeds, names[line.method], _shown(line.before),
         _shown(line.after), _shown(line.found), line.benign)
        for line in drawn
    ])  # fmt: skip


def _shown(mean: Mean | None) -> str:
    return "–" if mean is None else f"{mean[0]:.0f} % ({mean[1]:.0f}–{mean[2]:.0f})"


def main() -> None:
    """Print the tables, and draw the plots; say what is yet to be run."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    mpl.rcParams["svg.hashsalt"] = "ten seeds"  # equal data, equal file
    console = Console(soft_wrap=True)
    for name, result in TRACKS.items():
        if not (RESULTS / f"{result}.json").exists():
            console.print(f"{name} was not run: {RUNS[name]}", markup=False)
    for number, (title, names, track) in TABLES.items():
        if drawn := lines(track, names):
            console.print(f"### {number}. {title}\n\n{markdown(names, drawn)}\n", markup=False)
            (_sweep if track else _bars)(number, title, names, drawn)


def _bars(number: int, title: str, names: dict[str, str], drawn: Sequence[Line]) -> None:
    places = sorted({line.place for line in drawn})
    figure, axes = plt.subplots(1, len(places), figsize=(4.6 * len(places), 3.2), squeeze=False, sharey=True)
    for axis, place in zip(axes[0], places, strict=True):
        here = [line for line in drawn if line.place == place]
        means = [here[0].before, *(line.after for line in here)]
        labels = ["before", *(names[line.method] for line in here)]
        axis.barh(labels[::-1], [mean[0] if mean else 0 for mean in means][::-1], xerr=_whiskers(means[::-1]),
                  capsize=3, ecolor="#555555", color=["#7f8c8d", *["#1b7f5c"] * len(here)][::-1])  # fmt: skip
        axis.set_title(f"{place[0]}, ρ = {place[1]:.2f}, {here[0].seeds} seeds", fontsize=9)
        axis.set_xlim(0, 103)
        axis.set_xlabel("victims answered harmfully, %")
        axis.grid(alpha=0.3, axis="x")
    _save(figure, number, title)


def _sweep(number: int, title: str, names: dict[str, str], drawn: Sequence[Line]) -> None:
    figure, axis = plt.subplots(figsize=(6, 3.4))
    shown: list[tuple[str, str, Callable[[Line], Mean | None]]] = [(SET, "before", lambda line: line.before)]
    shown += [(method, f"after, {name}", lambda line: line.after) for method, name in names.items()]
    for (method, label, value), colour, aside in zip(shown, ("#7f8c8d", *COLOURS), range(len(shown)), strict=False):
        points = [(line.place[1] + 0.004 * aside, value(line)) for line in drawn if line.method == method]
        known = [(rho, mean) for rho, mean in points if mean is not None]
        axis.errorbar([rho for rho, _ in known], [mean[0] for _, mean in known],
                      yerr=_whiskers([mean for _, mean in known]), color=colour, label=label, marker="o", capsize=3,
                      linestyle="--" if label == "before" else "-")  # fmt: skip
    axis.set_xlabel("contamination ratio ρ")
    axis.set_ylabel("victims answered harmfully, %")
    axis.set_ylim(-3, 103)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, frameon=False)
    _save(figure, number, title)


def _whiskers(means: Sequence[Mean | None]) -> list[list[float]]:
    known = [mean or (0.0, 0.0, 0.0) for mean in means]
    return [[max(mean - low, 0.0) for mean, low, _ in known], [max(high - mean, 0.0) for mean, _, high in known]]


def _save(figure: Any, number: int, title: str) -> None:
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(RESULTS / f"ten_seeds_{number}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
