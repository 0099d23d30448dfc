"""What a scan says of a memory that is mostly said again: 10,000 entries, of which 97.8 % are copies and restatements.

    python -m benchmarks.scan.copies [--embedder packaged] [--size 10000] [--share 0.978] [--seeds 0 1 2]

220 facts are said once each, and then again: half of the times word for word, else in one of four other wordings
(`benchmarks.scan.flood`; they are written by hand, and know nothing of the detector). Counted are findings for each
fact, and entries that a finding joins with another fact. The same 220 facts alone, each said once, must have none. The
first line that `memaudit scan` prints is kept for the first seed.
`fake` embeds a hashed bag of words: it does not see that two wordings say the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.command import run
from benchmarks.harness.resultfile import BarOf, ResultFile
from benchmarks.scan.flood import Said, flood
from memory_audit.consistency.tenant_graph import TenantGraph
from memory_audit.errors import UsageError
from memory_audit.models.loading import ModelSpecs, load_embedder
from memory_audit.scan.detector import ScannedMemory
from memory_audit.scan.detectors import DETECTORS

if TYPE_CHECKING:
    from memory_audit.models.protocols import Embedder

NEIGHBOURS = 10


def scanned(said: Said, embedder: Embedder) -> dict[str, Any]:
    """Return what the detector of copies says of a memory, against what is true of it."""
    entries = said.entries
    graph = TenantGraph(entries, neighbours=NEIGHBOURS)
    graph.embed(embedder.embed(graph.texts), np.zeros((len(entries), 1), np.float32))
    start = time.perf_counter()
    memory = ScannedMemory(tenant="acme", entries=entries, now_ms=0, graph=graph)
    findings = list(DETECTORS["copies"]().scan(memory, entries))
    seconds = time.perf_counter() - start
    facts, joined = np.array(said.facts), graph.restated
    place = {entry.entry_id: number for number, entry in enumerate(entries)}
    kept = Counter(said.facts[place[finding.entry_ids[0]]] for finding in findings)
    repeated = {fact for fact, count in Counter(said.facts).items() if count > 1}
    again = len(entries) - len(set(said.facts))
    return {
        "entries": len(entries),
        "facts": len(set(said.facts)),
        "distinct texts": len({entry.text for entry in entries}),
        "said again": again,
        "told as said again": int((joined != np.arange(len(entries))).sum()),
        "joined with another fact": int((facts[joined] != facts).sum()),
        "findings": len(findings),
        "repeated facts": len(repeated),
        "repeated facts with one finding": sum(kept[fact] == 1 for fact in repeated),
        "most findings for a fact": max(kept.values(), default=0),
        "kept entries that are the first of their fact": sum(
            said.facts.index(said.facts[place[finding.entry_ids[0]]]) == place[finding.entry_ids[0]]
            for finding in findings
        ),
        "detector_s": round(seconds, 2),
    }


def first_line(said: Said, embedder: str) -> str:
    """Return what the command says first of a store with these entries."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "memaudit.yaml").write_text(f"embedder: {embedder}\n")
        fields = ("tenant", "entry_id", "principal", "source", "request", "response", "created_at_ms")
        records = ({field: getattr(entry, field) for field in fields} for entry in said.entries)
        (folder / "memories.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
        said_last = ""
        for words in (
            "keys new", "import jsonl:memories.jsonl store", "scan store --detector copies --out scan --local --quiet"
        ):  # fmt: skip
            done = subprocess.run(
                [sys.executable, "-c", "from memory_audit.jobs.cli.main import main; main()", *words.split()],
                cwd=folder, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                raise UsageError(f"memaudit {words} ended with {done.returncode}: {done.stderr[-300:]}")
            said_last = done.stdout
        return said_last.splitlines()[0]


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", default="packaged")
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.978)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    embedder = load_embedder(ModelSpecs(embedder=options.embedder))
    stand_in = "" if options.embedder == "packaged" else f"_{options.embedder}"
    command = "python -m benchmarks.scan.copies" + (f" --embedder {options.embedder}" if stand_in else "")
    config = vars(options) | {"model": embedder.model_id}
    result = ResultFile(f"scan_copies{stand_in}", command, config, fresh=True)
    rows = []
    for seed in options.seeds:
        said = flood(options.size, options.share, seed)
        line = {"first line": first_line(said, options.embedder)} if seed == options.seeds[0] else {}
        rows.append({"seed": seed, "store": "flooded"} | scanned(said, embedder) | line)
        first = [said.facts.index(fact) for fact in sorted(set(said.facts))]
        once = Said(entries=[said.entries[place] for place in first], facts=sorted(set(said.facts)), restated=0)
        rows.append({"seed": seed, "store": "each fact once"} | scanned(once, embedder))
    for row in rows:
        result.add_row(row)
        print(row)
    flooded, single = ([row for row in rows if row["store"] == store] for store in ("flooded", "each fact once"))
    of: BarOf = "variant" if stand_in else "default"
    for name, limit, worst in (
        ("findings for one fact", 1, max(row["most findings for a fact"] for row in flooded)),
        ("entries joined with another fact", 0, max(row["joined with another fact"] for row in flooded)),
        ("findings where each fact is said once", 0, max(row["findings"] for row in single)),
    ):
        result.add_bar(name, worst, "", f"<= {limit}", met=worst <= limit, of=of)


if __name__ == "__main__":
    run(main)
