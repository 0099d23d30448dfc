"""What does a scan say of memories that nobody poisoned?

    python -m benchmarks.scan.clean --data DATA    # writes scan_clean.json; detectors that read texts alone

Each memory is taken for one of an external source, whose findings are rated worst, and for one of the user's own. The
bar is at most one finding of high severity in 1,000 memories. No detector here has a threshold that was set on these
texts; `benchmarks.scan.clean_harm` measures `instructions`, whose threshold is.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from benchmarks.harness.command import run
from benchmarks.harness.public_data import MEMORYBANK, MMLU, WEBSHOP, add_data
from benchmarks.harness.resultfile import ResultFile
from benchmarks.scan.clean_texts import clean_texts
from memory_audit.entry import Entry
from memory_audit.scan.detector import ScannedMemory
from memory_audit.scan.detectors import DETECTORS
from memory_audit.scan.severity import SeverityRules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.scan.clean_texts import Pair
    from memory_audit.scan.detector import Detector

NOW_MS = 1_760_000_000_000
LIMIT = 1 / 1_000
SOURCES: tuple[Literal["external", "user"], ...] = ("external", "user")


def main() -> None:
    """Scan each data set under each detector, and write how many findings there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser, MEMORYBANK, MMLU, WEBSHOP)
    asked = parser.parse_args()
    command = "python -m benchmarks.scan.clean --data DATA"
    detectors = [make() for name, make in sorted(DETECTORS.items()) if not make().needs]
    results = ResultFile("scan_clean", command, {"detectors": [one.name for one in detectors]}, fresh=True)
    high: Counter[str] = Counter()
    memories = 0
    for name, pairs in clean_texts(asked.data).items():
        memories += len(pairs)
        for source in SOURCES:
            for row in rows(name, pairs, source, detectors):
                results.add_row(row)
                if source == "external":
                    high[row["detector"]] += row["high"]
                Console().print(row)
    share = high.total() / memories
    results.add_bar(
        "findings of severity high in 1,000 clean memories", round(1_000 * share, 3), "findings", "<= 1", share <= LIMIT
    )


def rows(
    name: str, pairs: Sequence[Pair], source: Literal["external", "user"], detectors: Sequence[Detector]
) -> list[dict[str, Any]]:
    """Return a row for each detector: findings by severity and kind, and what it took."""
    entries = [
        Entry(
            tenant="clean", entry_id=f"m{number}", principal=f"writer-{number % 10}", source=source, request=request,
            response=response, created_at_ms=NOW_MS,
        )
        for number, (request, response) in enumerate(pairs)
    ]  # fmt: skip
    by_id = {entry.entry_id: entry for entry in entries}
    memory, rules, told = ScannedMemory(tenant="clean", entries=entries, now_ms=NOW_MS), SeverityRules(), []
    for detector in detectors:
        began = time.perf_counter()
        found = [
            rules.rate(one, by_id[one.entry_ids[0]], detector.kinds[one.kind].taxonomy)
            for one in detector.scan(memory, entries)
        ]
        seconds = time.perf_counter() - began
        severities = Counter(one.severity for one in found)
        told.append({
            "set": name, "source": source, "memories": len(entries), "detector": detector.name,
            "high": severities["high"], "medium": severities["medium"], "low": severities["low"],
            "info": severities["info"], "kinds": dict(Counter(one.kind for one in found)),
            "us_per_memory": round(seconds / len(entries) * 1e6, 1),
        })  # fmt: skip
    return told


if __name__ == "__main__":
    run(main)
