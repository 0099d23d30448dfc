"""Fits how behaviour and hazard are weighed together where the behaviour leaves doubt; and how the behaviour alone is.

    python -m training.doubt_calibration [--backbone packaged:1.5b-int8]   # writes doubt_calibration.json

`benchmarks/guard/hst/data/doubt.jsonl` holds scenarios that the reader of behaviours was not fitted on; they are made
like those of `benchmarks.guard.lockout_unseen`, which are others. About 45 behaviours are removed from each tenant, and
the guard's own look says which notes are in doubt. Of these, a logistic regression tells restatements from honest ones
by the log-odds of the behaviour and by how far the likeliest hazard lies above its threshold. What is kept of it is how
many nats of the behaviour a nat of hazard is worth; the threshold of their sum is the lowest that adds at most
`--most-added` of all honest notes to those that the behaviour alone refuses. The second row is the same without
hazards: what mode `behaviour` refuses in doubt, where a key is near. All three are in `models/data/act_cascade.json`,
and a test holds them against the result file.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from benchmarks.guard.hst.extraction import packaged_backbone
from benchmarks.guard.lockout_unseen import CALIBRATED_ON, WAYS, scenarios_in, warden_over, writes_of
from benchmarks.harness.resultfile import ResultFile
from memory_audit.guard.decide.judge import Case, by_behaviours
from memory_audit.guard.decide.prefilter import ToRead
from memory_audit.guard.decide.readers import Readers
from memory_audit.guard.decide.rules import Rules
from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.guard.decide.thresholds import Thresholds
from memory_audit.guard.decide.write import Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from benchmarks.guard.hst.extraction import Backbone
    from benchmarks.guard.hst.guarding import Warden


BEHAVIOURS = 45
"""Removed from each tenant, about: more behaviours, and more honest notes come near one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a note was read as, by the guard's own look at it."""

    largest: float
    """Log-odds, over the behaviours removed from the tenant whose keys are not far."""

    odds: float
    """Largest of the tombstones that are in doubt and near; -inf where none is."""

    restated: bool
    way: str
    hazard: float = np.nan
    """How far the likeliest hazard lies above its threshold; NaN where the behaviour leaves no doubt."""

    @property
    def in_doubt(self) -> bool:
        """It was shown to the backbone."""
        return not np.isnan(self.hazard)

    def fused(self, slope: float) -> float:
        """Return the log-odds of behaviour and hazard together, with so many nats for a nat of hazard."""
        return self.odds + slope * self.hazard


def main() -> None:
    """Read, fit, report."""
    options = _options()
    asyncio.run(_run(options, packaged_backbone(options.backbone, kv_gib=options.kv_gib, answers=None)))


async def _run(options: argparse.Namespace, backbone: Backbone) -> None:
    try:
        warden = warden_over(backbone)
        scenarios = scenarios_in(CALIBRATED_ON)
        tenants = round(len(scenarios) / BEHAVIOURS)
        config = {
            "backbone": backbone.model_id, "acts": warden.behaviours.model_id, "scenarios": len(scenarios),
            "tenants": tenants, "most_added": options.most_added,
        }  # fmt: skip
        command = f"python -m training.doubt_calibration --backbone {options.backbone}"
        results = ResultFile("doubt_calibration", command, config, fresh=True)
        read = [note for first in range(tenants) for note in await read_notes(warden, scenarios[first::tenants])]
    finally:
        await backbone.close()
    doubted = [note for note in read if note.in_doubt]
    slope = hazard_slope(
        *(np.array([getattr(note, part) for note in doubted]) for part in ("odds", "hazard", "restated"))
    )
    for evidence, nats in (("act and hazard", slope), ("act", 0.0)):
        row = counted(read, nats, warden.behaviours.curve.threshold_nats, options.most_added)
        results.add_row({"evidence": evidence} | row)
        Console().print(results.rows[-1])


def counted(read: Sequence[Note], slope: float, behaviour_above: float, most_added: float) -> dict[str, Any]:
    """Find the threshold, and count what it refuses."""
    honest = [note for note in read if not note.restated]
    fused = np.array([note.fused(slope) for note in honest if note.in_doubt])
    threshold = threshold_of(fused, int(most_added * len(honest)))
    row: dict[str, Any] = {"hazard_slope": slope, "fused_nats": threshold}
    for name, mine in (("restated", [note for note in read if note.restated]), ("honest", honest)):
        more = [note for note in mine if note.in_doubt and note.fused(slope) >= threshold]
        row |= {
            name: len(mine), f"{name}_refused_by_act": sum(note.largest >= behaviour_above for note in mine),
            f"{name}_in_doubt": sum(note.in_doubt for note in mine), f"{name}_refused_in_doubt": len(more),
            f"{name}_refused_in_doubt_by_way": dict(Counter(note.way for note in more).most_common()),
        }  # fmt: skip
    return row


async def read_notes(warden: Warden, scenarios: Sequence[dict[str, Any]]) -> list[Note]:
    """Read the notes of a tenant from which the behaviours of these scenarios were removed."""
    block_list = await warden.block_list(writes_of(scenarios, "act"))
    curve, settings = warden.behaviours.curve, GuardSettings()
    readers = Readers(
        embed=warden.embed, behaviours=warden.behaviours, extractor=None, taxonomies=[warden.taxonomy],
        timeout_s=settings.model_timeout_s,
    )  # fmt: skip
    weighed = replace(Thresholds.of(curve, settings), fused_nats=0.0)  # both are weighed together: how, is fitted here
    rules = Rules.of(
        block_list, settings, weighed, taxonomies=readers.taxonomies, calibrated_for=warden.taxonomy.digest
    )
    found: list[Note] = []
    asked: dict[int, list[str]] = {}
    for name, ways in WAYS.items():
        for place, write in enumerate(writes_of(scenarios, name)):
            texts = Write(write.entry()).texts
            case = Case(rules, texts, warden.embed(texts.forms))
            readers.run(by_behaviours(rules, [case]))
            odds = np.full(len(block_list), -np.inf, np.float32) if case.odds is None else case.odds
            seen = case.look(rules.hazards_of(odds))
            near = seen.within_read.any(axis=0) if isinstance(seen, ToRead) else np.zeros(len(block_list), np.bool_)
            if isinstance(seen, ToRead) and near.any() and odds.max() < curve.threshold_nats:
                asked[len(found)] = list(seen.texts)
            found.append(Note(
                largest=float(odds.max()), odds=float(np.where(near, odds, -np.inf).max()),
                restated=name == "restated", way=ways[place % len(ways)],
            ))  # fmt: skip
    for number, hazard in zip(asked, await _hazards(warden, list(asked.values())), strict=True):
        found[number] = replace(found[number], hazard=hazard)
    return found


async def _hazards(warden: Warden, groups: Sequence[Sequence[str]]) -> list[float]:
    """Return how far the likeliest hazard of each group of texts lies above its threshold."""
    found = await asyncio.gather(*(warden.extractor.extract(texts, warden.taxonomy) for texts in groups))
    return [
        max(one.hazard_nats for one in signatures if one is not None and one.hazard_nats is not None)
        for signatures in found
    ]


def hazard_slope(odds: NDArray[np.float64], hazards: NDArray[np.float64], restated: NDArray[np.bool_]) -> float:
    """Return how many nats of the behaviour a nat of hazard is worth, by logistic regression; shapes (notes,)."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    behaviour, hazard = LogisticRegression(C=np.inf).fit(np.stack([odds, hazards], axis=1), restated).coef_[0]
    return round(float(hazard / behaviour), 3)


def threshold_of(honest: NDArray[np.float64], most: int) -> float:
    """Return the lowest threshold, in hundredths of a nat, that at most so many of the honest notes reach."""
    if most >= len(honest):
        return float("-inf")
    reached = np.sort(honest)[::-1][most]
    step = int(np.floor(reached * 100)) + 1
    while step / 100 <= reached:
        step += 1
    return step / 100


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="packaged:1.5b-int8")
    parser.add_argument("--most-added", type=float, default=0.03, help="share of honest notes that doubt may add")
    parser.add_argument("--kv-gib", type=int, default=2, help="prefix cache of the packaged backbones")
    return parser.parse_args()


if __name__ == "__main__":
    main()
