"""Traces into events: seconds and peak memory of `memaudit events import`, beside `json.load` of the whole file.

    python -m benchmarks.connect.trace_import [--spans 20000] [--more 60000]

The same synthetic traces as one OTLP/JSON object, as lines (a collector's file exporter) and as a JSON array of
Langfuse observations: five spans a trace, one of them a retrieval of ten memories, one trace in twenty with a score of
harm. Each measurement is a process of its own. What the imports of Python modules take is told apart, as *start*.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.command import run
from benchmarks.harness.resultfile import ResultFile

if TYPE_CHECKING:
    from collections.abc import Iterator

SPANS_OF_A_TRACE, RETRIEVED, MEMORIES, HARMFUL_EVERY = 5, 10, 2_000, 20
MAX_PEAK_MB = 300
"""Of an import of any size: the bar of all connectors."""

MAX_GROWTH = 1.1
"""Of the peak, for three times the spans."""

PROGRAM = """
import json, resource, sys, time
began = time.perf_counter()
{body}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({{"seconds": round(time.perf_counter() - began, 2), "peak_mb": round(peak)}}))
"""
LOAD = "json.load(open(sys.argv[1], encoding='utf-8'))"
LOAD_LINES = "held = [json.loads(line) for line in open(sys.argv[1], encoding='utf-8')]"
START = "import memory_audit.jobs.cli.main"
IMPORT = """
from memory_audit.jobs.cli.main import main
words = ["events", "import", "store", sys.argv[1], "--out", "events.jsonl", "--tenant", "acme", "--harm", "harm>=0.5",
         "--quiet", "--pin", "pin"]
sys.argv = ["memaudit", *words]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""


def memory(number: int) -> str:
    """Return the text of a memory: some 500 characters, another one for each number."""
    draw = random.Random(number)
    return f"Case {number}: " + " ".join(f"{draw.randrange(10**8):08}" for _ in range(54))


def traces(count: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the spans of each trace as plain records: names, times, texts, documents."""
    draw = random.Random(7)
    for number in range(count):
        shown = [draw.randrange(MEMORIES) for _ in range(RETRIEVED)]
        at = 1_700_000_000_000 + number * 1_000
        spans: list[dict[str, Any]] = [
            {"name": "ask", "input": f"How is case {shown[0]} handled?", "output": memory(shown[0]), "at": at},
            {"name": "search", "documents": [{"id": f"m-{item}", "content": memory(item)} for item in shown],
             "at": at + 1},
            *({"name": f"chat {turn}", "input": memory(turn), "output": memory(turn + 1), "at": at + 2 + turn}
              for turn in range(SPANS_OF_A_TRACE - 2)),
        ]  # fmt: skip
        for place, span in enumerate(spans):
            span |= {"trace": f"{number:032x}", "span": f"{number * SPANS_OF_A_TRACE + place + 1:016x}"}
            span["parent"] = spans[0].get("span", "") if place else ""
        if number % HARMFUL_EVERY == 0:
            spans[0]["harm"] = 0.9
        yield spans


def as_otlp(span: dict[str, Any]) -> dict[str, Any]:
    """Return a span as OTLP/JSON has it."""
    values = {"openinference.span.kind": "RETRIEVER" if "documents" in span else "CHAIN"}
    values |= {f"{key}.value": span[key] for key in ("input", "output") if key in span}
    for place, document in enumerate(span.get("documents", ())):
        for key, value in document.items():
            values[f"retrieval.documents.{place}.document.{key}"] = value
    made: dict[str, Any] = {
        "traceId": span["trace"], "spanId": span["span"], "parentSpanId": span["parent"], "name": span["name"],
        "startTimeUnixNano": str(span["at"] * 10**6),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in values.items()],
    }  # fmt: skip
    if "harm" in span:
        stated = [
            {"key": "gen_ai.evaluation.name", "value": {"stringValue": "harm"}},
            {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": span["harm"]}},
        ]
        made["events"] = [{"name": "gen_ai.evaluation.result", "attributes": stated}]
    return made


def as_langfuse(span: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a span as Langfuse exports it, and its score."""
    yield {
        "id": span["span"], "trace_id": span["trace"], "parent_observation_id": span["parent"] or None,
        "type": "RETRIEVER" if "documents" in span else "SPAN", "name": span["name"], "start_time": str(span["at"]),
        "input": span.get("input"), "output": json.dumps(span["documents"]) if "documents" in span else span["output"],
    }  # fmt: skip
    if "harm" in span:
        yield {"id": f"s-{span['span']}", "trace_id": span["trace"], "name": "harm", "value": span["harm"]}


def write(folder: Path, spans: int) -> dict[str, Path]:
    """Write the same traces in three forms."""
    files = {"object": folder / "otlp.json", "lines": folder / "otlp.jsonl", "array": folder / "langfuse.json"}
    with files["object"].open("w") as whole, files["lines"].open("w") as lines, files["array"].open("w") as array:
        resource_of = '{"resource": {"attributes": []}, "scopeSpans": [{"spans": ['
        whole.write('{"resourceSpans": [' + resource_of)
        array.write("[")
        for number, trace in enumerate(traces(spans // SPANS_OF_A_TRACE)):
            made = [json.dumps(as_otlp(span)) for span in trace]
            whole.write(("," if number else "") + ",".join(made))
            lines.write('{"resourceSpans": [' + resource_of + ",".join(made) + "]}]}]}\n")
            exported = [json.dumps(item) for span in trace for item in as_langfuse(span)]
            array.write((",\n" if number else "") + ",\n".join(exported))
        whole.write("]}]}]}")
        array.write("]")
    return files


def measured(folder: Path, body: str, *words: str) -> dict[str, Any]:
    """Run a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def make_store(folder: Path) -> None:
    """Sign the memories that the traces show."""
    lines = (
        json.dumps({"tenant": "acme", "entry_id": f"m-{n}", "request": f"case {n}", "response": memory(n)})
        for n in range(MEMORIES)
    )
    (folder / "memories.jsonl").write_text("\n".join(lines))
    for words in (["keys", "new"], ["import", "jsonl:memories.jsonl", "store", "--pin", "pin"]):
        subprocess.run(
            [sys.executable, "-m", "memory_audit.jobs.cli.main", *words], cwd=folder, check=True, capture_output=True
        )


def main() -> None:
    """Measure and write the result file."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--spans", type=int, default=20_000)
    options.add_argument("--more", type=int, default=60_000, help="spans of a second, larger import")
    given = options.parse_args()
    command = f"python -m benchmarks.connect.trace_import --spans {given.spans} --more {given.more}"
    result = ResultFile("trace_import", command, vars(given), fresh=True)
    peaks: dict[tuple[str, int], int] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_store(folder)
        start = measured(folder, START)
        result.add_row({"what": "start", **start})
        for spans in (given.spans, given.more):
            for form, file in write(folder, spans).items():
                size = round(file.stat().st_size / 1e6)
                load = measured(folder, LOAD_LINES if form == "lines" else LOAD, file.name)
                made = measured(folder, IMPORT, file.name)
                events = len((folder / "events.jsonl").read_text().splitlines())
                expected = -(-spans // SPANS_OF_A_TRACE // HARMFUL_EVERY)
                if events != expected:
                    raise AssertionError(f"{events} events of {form}, expected {expected}")
                peaks[form, spans] = made["peak_mb"]
                row = {
                    "what": form, "spans": spans, "file_mb": size, "events": events,
                    "import_s": made["seconds"], "import_peak_mb": made["peak_mb"],
                    "spans_per_s": round(spans / (made["seconds"] - start["seconds"])),
                    "json_load_s": load["seconds"], "json_load_peak_mb": load["peak_mb"],
                }  # fmt: skip
                result.add_row(row)
                print(row)
    peak = max(peaks.values())
    result.add_bar("peak memory of an import", peak, "MB", f"≤ {MAX_PEAK_MB}", peak <= MAX_PEAK_MB)
    growth = max(peaks[form, given.more] / peaks[form, given.spans] for form, _ in peaks)
    result.add_bar(
        "peak memory of three times the spans, beside once",
        round(growth, 2),
        "×",
        f"≤ {MAX_GROWTH}",
        growth <= MAX_GROWTH,
    )


if __name__ == "__main__":
    run(main)
