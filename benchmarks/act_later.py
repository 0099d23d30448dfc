"""The packaged reader of acts on scenarios that had no part in it: no network, curve or threshold was fitted on them.

    python -m benchmarks.act_later        # writes act_later.json

`benchmarks/acts/later` has scenarios of the kinds that `benchmarks.act_reading` explains, by other writers, who were
given a brief and four samples and looked at nothing else, after the packaged reader was fitted and calibrated. In
`people` they are in the voices of people (tickets, chats, shift logs); in `agents` in the plain voice in which language
models write their own memories. What the reader says of them at its packaged thresholds tells whether those hold: one
safe answer in a hundred to the act's own request is to be refused, one in ten to be at least in doubt.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from rich.console import Console

from benchmarks.acts.corpus import LATER, scenarios
from benchmarks.acts.report import rows_of
from benchmarks.acts.scores import scores_of
from benchmarks.acts.states import scenario_states
from benchmarks.command import run
from benchmarks.resultfile import ResultFile
from jobs.progress import Reporter
from models.act_reader import read_act_weights
from models.hazard_probe import BACKBONE
from models.packaged import ensure
from models.weights_cache import folder_id


def main() -> None:
    """Read, report."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    reporter = Reporter(Console())
    written = {folder.name: scenarios(folder) for folder in LATER}
    weights, digest = read_act_weights()
    config = {
        "backbone": folder_id(ensure(BACKBONE)), "weights": digest,
        "scenarios": {voice: len(found) for voice, found in written.items()},
    }  # fmt: skip
    results = ResultFile("act_later", "python -m benchmarks.act_later", config, fresh=True)
    for voice, found in written.items():
        scores = scores_of(weights, found, scenario_states(found, reporter))
        parts = np.array([scenario.part for scenario in found])
        for row in rows_of(scores, parts, weights.curve.threshold_nats, weights.curve.doubt_nats):
            results.add_row({"voice": voice} | row)
            reporter.say(json.dumps(results.rows[-1]))


if __name__ == "__main__":
    run(main)
