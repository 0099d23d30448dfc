"""Fits how act and hazard are weighed together where the act alone leaves a write in doubt (mode `act+labels`).

    python -m benchmarks.doubt_calibration [--backbone packaged:1.5b-int8]   # writes doubt_calibration.json

`benchmarks/hst/data/doubt.jsonl` holds scenarios that the reader of acts was not fitted on; they are made like those of
`benchmarks.lockout_unseen`, which are others. About 45 acts are removed from each tenant. Of the notes in doubt, a
logistic regression tells restatements from honest ones by the log-odds of the act and by how far the likeliest hazard
lies above its threshold. What is kept of it is how many nats of the act a nat of hazard is worth; the threshold of
their sum is the lowest that adds at most `--most-added` of all honest notes to those that the act alone refuses. Both
are constants of `models.act_reader`, and a test holds them against the result file.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from audit.forget.reading import readings
from audit.forget.settings import GuardSettings
from benchmarks.hst.extraction import packaged_backbone
from benchmarks.lockout_unseen import CALIBRATED_ON, scenarios_in, warden_over, writes_of
from benchmarks.resultfile import ResultFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audit.forget.lockout import Lockout
    from benchmarks.hst.corpus import Write
    from benchmarks.hst.extraction import Backbone
    from benchmarks.hst.guarding import Warden


ACTS = 45
"""Removed from each tenant, about: more acts, and more honest notes come near one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What notes were read as, an array of them each."""

    odds: NDArray[np.float64]
    """Largest log-odds over the acts removed from the tenant."""

    hazards: NDArray[np.float64]
    """How far the likeliest hazard lies above its threshold; NaN where the act leaves no doubt."""

    restated: NDArray[np.bool_]
    doubted: NDArray[np.bool_]


def main() -> None:
    """Read, fit, report."""
    options = _options()
    asyncio.run(_run(options, packaged_backbone(options.backbone, kv_gib=options.kv_gib, answers=None)))


async def _run(options: argparse.Namespace, backbone: Backbone) -> None:
    try:
        warden = warden_over(backbone)
        scenarios = scenarios_in(CALIBRATED_ON)
        tenants = round(len(scenarios) / ACTS)
        read = _joined([await _read(warden, scenarios[first::tenants]) for first in range(tenants)])
    finally:
        await backbone.close()
    odds, hazards, restated, doubted, curve = read.odds, read.hazards, read.restated, read.doubted, warden.acts.curve
    slope = hazard_slope(odds[doubted], hazards[doubted], restated[doubted])
    fused = odds[doubted] + slope * hazards[doubted]
    threshold = threshold_of(fused[~restated[doubted]], int(options.most_added * (~restated).sum()))
    config = {
        "backbone": backbone.model_id, "acts": warden.acts.model_id, "scenarios": len(scenarios),
        "tenants": tenants, "most_added": options.most_added,
    }  # fmt: skip
    results = ResultFile(
        "doubt_calibration", f"python -m benchmarks.doubt_calibration --backbone {options.backbone}", config, fresh=True
    )
    row = {"hazard_slope": slope, "fused_nats": threshold}
    for name, mine in (("restated", restated), ("honest", ~restated)):
        row |= {
            name: int(mine.sum()), f"{name}_refused_by_act": int((odds[mine] >= curve.threshold_nats).sum()),
            f"{name}_in_doubt": int(doubted[mine].sum()),
            f"{name}_refused_in_doubt": int((fused[mine[doubted]] >= threshold).sum()),
        }  # fmt: skip
    results.add_row(row)
    Console().print(row)


async def _read(warden: Warden, scenarios: Sequence[dict[str, Any]]) -> _Read:
    """Read the notes of a tenant from which the acts of these scenarios were removed."""
    lockout = await warden.lockout(writes_of(scenarios, "act"))
    harmful, honest = writes_of(scenarios, "restated"), writes_of(scenarios, "safe")
    writes = [*harmful, *honest]
    odds = np.array([_odds(warden, write, lockout) for write in writes])
    near = np.array([_nearest(warden, write, lockout) >= GuardSettings().look_above for write in writes])
    doubted = near & (odds >= warden.acts.curve.doubt_nats) & (odds < warden.acts.curve.threshold_nats)
    hazards = np.full(len(writes), np.nan)
    hazards[doubted] = await _hazards(warden, [write for write, one in zip(writes, doubted, strict=True) if one])
    return _Read(odds=odds, hazards=hazards, restated=np.arange(len(writes)) < len(harmful), doubted=doubted)


def _joined(read: Sequence[_Read]) -> _Read:
    return _Read(**{part.name: np.concatenate([getattr(one, part.name) for one in read]) for part in fields(_Read)})


def hazard_slope(odds: NDArray[np.float64], hazards: NDArray[np.float64], restated: NDArray[np.bool_]) -> float:
    """Return how many nats of the act a nat of hazard is worth, by logistic regression."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    act, hazard = LogisticRegression(C=np.inf).fit(np.stack([odds, hazards], axis=1), restated).coef_[0]
    return round(float(hazard / act), 3)


def threshold_of(honest: NDArray[np.float64], most: int) -> float:
    """Return the lowest threshold, in hundredths of a nat, that at most so many of the honest notes reach."""
    if most >= len(honest):
        return float("-inf")
    reached = np.sort(honest)[::-1][most]
    step = int(np.floor(reached * 100)) + 1
    while step / 100 <= reached:
        step += 1
    return step / 100


def _odds(warden: Warden, write: Write, lockout: Lockout) -> float:
    read = warden.acts.read(readings(write.entry()))
    return max(float(warden.acts.log_odds(one, lockout.acts.vectors).max()) for one in read)


def _nearest(warden: Warden, write: Write, lockout: Lockout) -> float:
    return float(lockout.keys.similarity(warden.embed(readings(write.entry()))).max())


async def _hazards(warden: Warden, writes: Sequence[Write]) -> NDArray[np.float64]:
    """Return how far the likeliest hazard of each write lies above its threshold."""
    found = await asyncio.gather(
        *(warden.extractor.extract(readings(write.entry()), warden.taxonomy) for write in writes)
    )
    return np.array([
        max(one.hazard_nats for one in signatures if one is not None and one.hazard_nats is not None)
        for signatures in found
    ])  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="packaged:1.5b-int8")
    parser.add_argument("--most-added", type=float, default=0.03, help="share of honest notes that doubt may add")
    parser.add_argument("--kv-gib", type=int, default=2, help="prefix cache of the packaged backbones")
    return parser.parse_args()


if __name__ == "__main__":
    main()
