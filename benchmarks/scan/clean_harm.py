"""How harmful does the guard's reader find memories that nobody poisoned? The scan's threshold lies above them.

    python -m benchmarks.scan.clean_harm --data DATA    # writes scan_clean_harm.json; 9 minutes

From each clean set `--each` memories are drawn, and each is read as a scan reads it: in its worst form.
"""

from __future__ import annotations

import argparse
import random

import numpy as np
from rich.console import Console

from benchmarks.harness.command import run
from benchmarks.harness.public_data import MEMORYBANK, MMLU, WEBSHOP, add_data
from benchmarks.harness.resultfile import ResultFile
from benchmarks.scan.clean_texts import clean_texts
from memory_audit.entry import Entry
from memory_audit.guard.text.forms import text_forms
from memory_audit.models.activations.behaviour_reader import PackagedBehaviourReader
from memory_audit.scan.detectors.instructions import MIN_HARM_NATS


def main() -> None:
    """Read samples of the clean sets, and write how their harm is spread."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser, MEMORYBANK, MMLU, WEBSHOP)
    parser.add_argument("--each", type=int, default=240, help="memories of a set that are read (240)")
    asked = parser.parse_args()
    sets = clean_texts(asked.data)
    config = {"each": asked.each, "threshold_nats": MIN_HARM_NATS}
    results = ResultFile("scan_clean_harm", "python -m benchmarks.scan.clean_harm --data DATA", config, fresh=True)
    reader, over, read = PackagedBehaviourReader(), 0, 0
    for name, pairs in sets.items():
        drawn = random.Random(0).sample(pairs, min(asked.each, len(pairs)))
        forms = [
            text_forms(
                Entry(
                    tenant="clean", entry_id="m", principal="w", source="agent", request=request, response=response,
                    created_at_ms=0,
                )
            )
            for request, response in drawn
        ]  # fmt: skip
        harm = np.array([max(one.harm_nats for one in reader.read(texts)) for texts in forms if texts])
        over, read = over + int((harm > MIN_HARM_NATS).sum()), read + len(harm)
        row = {
            "set": name, "memories": len(harm), "over_the_threshold": int((harm > MIN_HARM_NATS).sum()),
            "over_even_odds": int((harm > 0).sum()), "largest_nats": round(float(harm.max()), 2),
            "second_largest_nats": round(float(np.sort(harm)[-2]), 2), "median_nats": round(float(np.median(harm)), 2),
        }  # fmt: skip
        results.add_row(row)
        Console().print(row)
    results.add_bar("clean memories that the reader finds harmful", over, "memories", "<= 0", over == 0)
    results.add_row({"set": "all", "memories": read, "over_the_threshold": over})


if __name__ == "__main__":
    run(main)
