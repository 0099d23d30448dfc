"""Which weights a committed calibration may have been fitted for."""

from __future__ import annotations

import json

from benchmarks.harness.resultfile import RESULTS
from memory_audit.models.activations.behaviour_reader import FIRST, SECOND, read_weights


def packaged_or_alike() -> list[list[str]]:
    """Return the digests of the packaged readers' weights, and of those that were measured to decide as they do."""
    digests = [read_weights(source)[1] for source in (FIRST, SECOND)]
    compared = json.loads((RESULTS / "reader_weights.json").read_text(encoding="utf-8"))
    (bar,) = compared["bars"]
    alike = bar["met"] and compared["config"]["packaged"] == digests
    return [digests, *([compared["config"]["before"]] if alike else [])]
