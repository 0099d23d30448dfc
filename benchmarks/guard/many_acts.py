"""How often harmless writes are refused, by how many behaviours were removed from their tenant.

    python -m benchmarks.guard.many_acts --data DATA    # writes many_acts.json and many_acts.svg

Each removed behaviour is one more that a write may be taken for. Behaviours are those of `training/behaviours/held`,
drawn many times for each number; writes are MemoryBank's turns, ordinary notes, and honest answers to the requests of
behaviours that were not removed. Told is what the behaviour alone refuses, with its threshold as calibrated and moved
up (`--act-above`), and what it leaves in doubt, as the guard looks at a write: a behaviour is not meant where its key
is far. What moving costs is told by restatements of the removed behaviours. No network was fitted on these scenarios,
but the threshold was set on them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from rich.console import Console

from benchmarks.harness.command import run
from benchmarks.harness.public_data import MEMORYBANK, add_data
from benchmarks.harness.resultfile import RESULTS, ResultFile
from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.guard.text.forms import is_foreign
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.activations.behaviour_cascade import CascadedBehaviourReader, cascade_calibration
from memory_audit.models.activations.behaviour_reader import FIRST, SECOND, PackagedBehaviourReader
from memory_audit.models.loading import ModelSpecs, load_embedder
from training.behaviour_cascade import kept
from training.behaviours.corpus import HARMFUL, HELD, notes, scenarios
from training.behaviours.report import turns_of

mpl.use("Agg")  # no display here, and figures must be the same everywhere
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.behaviour import BehaviourReader
    from memory_audit.models.protocols import Embedder
    from training.behaviours.corpus import Scenario

COUNTS = (1, 10, 45, 100, 300, 940)
MOVED = (0.0, 1.0, 2.0)
"""Nats that the threshold is moved up by."""

DRAWS = 20
ANSWERS_FROM = 100
"""Scenarios whose answers and restatements are the writes."""

TURNS, ORDINARY, ANSWERS = "MemoryBank's turns", "ordinary notes", "answers to other requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the reader says of writes, each held against each behaviour."""

    odds: NDArray[np.float32]
    """Log-odds that it restates it, shape (writes, behaviours)."""

    cosines: NDArray[np.float32]
    """Of keys, same shape; 1 where a write is in a language that the embedder does not know."""

    of: NDArray[np.intp]
    """Number of the behaviour whose scenario a write is of, shape (writes,); -1 for none."""

    def shares(self, removed: NDArray[np.intp], behaviour_above: float, doubt_above: float) -> tuple[float, float]:
        """Return which share is refused, and which is refused or in doubt, of the writes of no removed behaviour."""
        settings = GuardSettings()
        mine = ~np.isin(self.of, removed)
        odds, cosines = self.odds[np.ix_(mine, removed)], self.cosines[np.ix_(mine, removed)]
        refused = ((odds >= behaviour_above) & (cosines >= settings.read_above)).any(axis=1)
        doubted = ((odds >= doubt_above) & (cosines >= settings.look_above)).any(axis=1)
        return float(refused.mean()), float((refused | doubted).mean())

    def own_refused(self, behaviour_above: float) -> float:
        """Return which share is refused where its own behaviour was removed and no other."""
        rows = np.arange(len(self.of))
        meant = self.cosines[rows, self.of] >= GuardSettings().read_above
        return float(((self.odds[rows, self.of] >= behaviour_above) & meant).mean())


def main() -> None:
    """Read, count, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser, MEMORYBANK)
    turns = turns_of(parser.parse_args().data)
    reporter, embedder, held = Reporter(Console()), load_embedder(ModelSpecs()), scenarios(HELD)
    # What the first reads is kept; the second reads what it leaves open, one by one.
    first, second = kept(FIRST, reporter), PackagedBehaviourReader(SECOND)
    joint, curve = cascade_calibration()
    reader = CascadedBehaviourReader(first, second, alone=first.curve, joint=joint, curve=curve)
    behaviours = [scenario.texts[0] for scenario in held]
    directions = np.stack([reading.direction for reading in reader.taught(behaviours)])
    keys = embedder.embed(behaviours)
    some = np.random.default_rng(0).choice(len(held), ANSWERS_FROM, replace=False)
    written = [(number, place) for number in some for place in held[number].writes]
    restated, answered = ([pair for pair in written if (pair[1] < HARMFUL) == harmful] for harmful in (True, False))
    ordinary = [note.text for note in notes(HELD / "notes") if not note.bad]
    config = {
        "reader": reader.model_id, "embedder": embedder.model_id, "acts": len(behaviours), "turns": len(turns),
        "ordinary": len(ordinary), "draws": DRAWS,
    }  # fmt: skip
    results = ResultFile("many_acts", "python -m benchmarks.guard.many_acts --data DATA", config, fresh=True)

    def told(texts: Sequence[str], of: Sequence[int]) -> Told:
        return told_of(reader, texts, directions, keys, embedder=embedder, of=of, reporter=reporter)

    harmless = {
        TURNS: told(turns, [-1] * len(turns)), ORDINARY: told(ordinary, [-1] * len(ordinary)),
        ANSWERS: told(*_texts(held, answered)),
    }  # fmt: skip
    own = told(*_texts(held, restated))
    for moved in MOVED:
        above = curve.threshold_nats + moved
        results.add_row({
            "texts": "restatements of a removed act", "writes": len(own.of), "acts": 1, "moved_nats": moved,
            "refused": round(own.own_refused(above), 4),
        })  # fmt: skip
        for name, found in harmless.items():
            for row in counted(found, above, curve.doubt_nats):
                results.add_row({"texts": name, "writes": len(found.of), "moved_nats": moved} | row)
    for row in results.rows:
        reporter.say(str(row))
    draw(RESULTS / "many_acts.svg", results.rows)


def _texts(held: Sequence[Scenario], pairs: Sequence[tuple[int, int]]) -> tuple[list[str], list[int]]:
    return [held[number].texts[place] for number, place in pairs], [number for number, _ in pairs]


def told_of(
    reader: BehaviourReader, texts: Sequence[str], directions: NDArray[np.float32], keys: NDArray[np.float32],
    *, embedder: Embedder, of: Sequence[int], reporter: Reporter,
) -> Told:  # fmt: skip
    """Read writes, and hold each against each behaviour."""
    with reporter.stage("comparing", len(texts)) as progress:
        odds = []
        for reading in reader.read(texts):
            odds.append(reader.log_odds(reading, directions))
            progress.advance()
    cosines = embedder.embed(list(texts)) @ keys.T
    cosines[[is_foreign(text) for text in texts]] = 1.0
    return Told(odds=np.stack(odds), cosines=cosines, of=np.array(of, np.intp))


def counted(found: Told, behaviour_above: float, doubt_above: float) -> list[dict[str, Any]]:
    """Return a row for each number of removed behaviours: means over draws, and the least and most that was refused.

    All behaviours at once are one draw, and no writes are left of those that belong to a behaviour.
    """
    rows, behaviours = [], found.odds.shape[1]
    for count in COUNTS:
        if count > behaviours or (count == behaviours and (found.of >= 0).all()):
            continue
        drawn = np.random.default_rng(count)
        removed = [drawn.choice(behaviours, count, replace=False) for _ in range(DRAWS if count < behaviours else 1)]
        refused, doubted = np.array([found.shares(some, behaviour_above, doubt_above) for some in removed]).T
        rows.append({
            "acts": count, "refused": round(float(refused.mean()), 4), "least": round(float(refused.min()), 4),
            "most": round(float(refused.max()), 4), "refused_or_in_doubt": round(float(doubted.mean()), 4),
        })  # fmt: skip
    return rows


def draw(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write an SVG: what is refused by the number of removed behaviours."""
    mpl.rcParams["svg.hashsalt"] = "many_acts"  # equal data, equal file
    figure, axis = plt.subplots(figsize=(5.6, 3.6))
    for colour, name in zip(("#1b7f5c", "#8e44ad", "#d35400"), (TURNS, ORDINARY, ANSWERS), strict=True):
        for moved, style in zip(MOVED[:2], ("-", "--"), strict=True):
            mine = [row for row in rows if row["texts"] == name and row["moved_nats"] == moved]
            label = name if not moved else f"{name}, --act-above a nat more"
            axis.plot(
                [row["acts"] for row in mine], [100 * row["refused"] for row in mine], color=colour, linestyle=style,
                marker="o", markersize=3, label=label,
            )  # fmt: skip
    axis.set_xscale("log")
    axis.set_xticks(COUNTS, map(str, COUNTS))
    axis.minorticks_off()
    axis.set_xlabel("acts removed from the tenant")
    axis.set_ylabel("harmless writes refused, %")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    run(main)
