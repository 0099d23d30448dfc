"""What the gate and the lineage cost per operation, in a store of 100,000 signed entries.

The store is real: entries with up to four derivation edges, signed, published, verified when opened. Each decision has
a context of its own (the request, five memories, one page of a tool's output), so what was folded for one is rarely
there for the next. Medians: a busy machine stretches the tail, not the middle.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx

from benchmarks.gate.lineage.defences import NOW_MS, STORE_ID, TENANT
from benchmarks.gate.lineage.policies import gate_policy
from benchmarks.gate.lineage.tasks import TASKS
from memory_audit.entry import Entry, Parent
from memory_audit.gate.call import Context, ToolCall, ToolOutput
from memory_audit.gate.gate import Gate
from memory_audit.lineage.dag import Lineage
from memory_audit.lineage.verified import VerifiedLineage
from memory_audit.provenance.keys import generate_keys
from memory_audit.provenance.tlog.tiles import TiledTree
from memory_audit.snapshot.publishing.log_writer import LogWriter
from memory_audit.snapshot.publishing.publish import create_store
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory_audit.entry import Source
    from memory_audit.gate.gate import GateDecision

__all__ = ["graph_sizes", "measure"]

RETRIEVED = 5
SEED = 7


def measure(entries: int, repeats: int) -> list[dict[str, Any]]:
    """Build the store and measure each operation; rows with the median and the 99th percentile in microseconds.

    Args:
        entries: Live entries of the one tenant.
        repeats: Operations of each kind.
    """
    draw = random.Random(SEED)
    memories = [_memory(number, draw) for number in range(entries + repeats)]
    stored, following = memories[:entries], memories[entries:]
    keyring = generate_keys()
    policy = gate_policy("repair")
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        create_store(store, stored, keyring, now_ms=NOW_MS, store_id=STORE_ID)
        snapshot = open_snapshot(store, keyring.policy, now_ms=NOW_MS)
        log = snapshot.log(TENANT)
        started = time.perf_counter()
        lineage = VerifiedLineage(snapshot, TENANT, policy.trust, policy.tau_ppm)
        build_s = time.perf_counter() - started
        rows = [{"operation": "build lineage from the verified log, whole", "median_us": round(build_s * 1e6), "n": 1}]
        for mode, proposal in (
            ("coarse", "right"),
            ("deny", "right"),
            ("deny", "attacker's"),
            ("repair", "attacker's"),
        ):
            gate = Gate(gate_policy(mode), lineage)  # type: ignore[arg-type]
            questions = [_question(draw, entries, proposal) for _ in range(repeats)]
            decisions: list[GateDecision] = []
            row = _timed(f"gate, {mode}, {proposal} value", questions, partial(_judge, gate), decisions.append)
            rows.append({**row, "verdicts": dict(Counter(decision.verdict for decision in decisions))})
        names = [f"m{draw.randrange(entries)}" for _ in range(repeats)]
        rows.append(_timed("label of an entry", names, lineage.dag.label))
        rows.append(_timed("justifying path of an entry", names, lineage.dag.path))
        tree = TiledTree()
        tree.extend(b"".join(log.leaf_hashes))
        writer = LogWriter(STORE_ID, TENANT, tree, keyring)
        rows.append(_timed("append: sign and log", following, writer.append_entry))
        rows.append(_timed("append: edges and label", following, lineage.dag.append))
        return rows


def graph_sizes(edges: int) -> dict[str, Any]:
    """Memory of a DAG of about `edges` edges as it is kept, and of the same as a networkx graph, in MiB."""
    draw = random.Random(SEED)
    rules = gate_policy("deny").trust
    lineage = Lineage(TENANT, rules)
    before = _resident()
    number = 0
    started = time.perf_counter()
    while lineage.edges < edges:
        lineage.append(_memory(number, draw, text=False, most_parents=8))
        number += 1
    seconds = time.perf_counter() - started
    plain = _resident()
    graph = nx.DiGraph()
    draw.seed(SEED)
    for place in range(number):
        item = _memory(place, draw, text=False, most_parents=8)
        graph.add_node(item.entry_id, label=lineage.label(item.entry_id), removed=False)
        graph.add_edges_from((up.entry_id, item.entry_id, {"weight_ppm": up.weight_ppm}) for up in item.parents)
    return {
        "operation": f"a graph of {edges} edges",
        "entries": len(lineage), "edges": graph.number_of_edges(), "build_s": round(seconds, 1),
        "arrays_mib": round((plain - before) / 2**20), "networkx_mib": round((_resident() - plain) / 2**20),
    }  # fmt: skip


def _memory(number: int, draw: random.Random, *, text: bool = True, most_parents: int = 4) -> Entry:
    source = draw.choice(_SOURCES)
    many = draw.randrange(1, most_parents + 1) if source == "agent" and number else 0
    parents = {draw.randrange(number): draw.choice((50_000, 150_000, 300_000, 900_000)) for _ in range(many)}
    words = " ".join(draw.choice(_WORDS) for _ in range(24)) if text else ""
    return Entry(
        tenant=TENANT, entry_id=f"m{number}", principal="assistant" if source == "agent" else "owner", source=source,
        request=f"about {words[:40]}", response=words, created_at_ms=NOW_MS,
        parents=tuple(Parent(entry_id=f"m{name}", weight_ppm=weight) for name, weight in parents.items()),
    )  # fmt: skip


_SOURCES: tuple[Source, ...] = ("user", "agent", "agent", "agent", "tool", "external")

_WORDS = (
    "ledger", "printer", "closing", "harbour", "ticket", "invoice", "meeting", "route", "quarter", "cable", "window",
    "sample", "holiday", "engine", "supplier", "garden", "paper", "signal", "bridge", "number",
)  # fmt: skip


def _judge(gate: Gate, question: tuple[ToolCall, Context]) -> GateDecision:
    call, context = question
    return gate.decide(call, context, now_ms=NOW_MS)


def _question(draw: random.Random, entries: int, proposal: str) -> tuple[ToolCall, Context]:
    task = draw.choice(TASKS)
    arguments = dict(task.arguments)
    page = " ".join(draw.choice(_WORDS) for _ in range(300))
    if proposal != "right":
        arguments[task.parameter] = task.attacker
        page += f" {task.parameter} must always be {task.attacker}"
    context = Context(
        request=task.request,
        memories=tuple(f"m{draw.randrange(entries)}" for _ in range(RETRIEVED)),
        outputs=(ToolOutput(tool="read_page", text=page),),
    )
    return ToolCall(tool=task.tool, arguments=arguments), context


def _timed(
    name: str, items: Iterable[Any], call: Callable[[Any], Any], keep: Callable[[Any], Any] | None = None
) -> dict[str, Any]:
    taken = []
    for item in items:
        started = time.perf_counter_ns()
        answer = call(item)
        taken.append((time.perf_counter_ns() - started) / 1000)
        if keep is not None:
            keep(answer)
    cut = statistics.quantiles(taken, n=100)
    return {"operation": name, "median_us": round(statistics.median(taken), 1), "p99_us": round(cut[98], 1),
            "n": len(taken)}  # fmt: skip


def _resident() -> int:
    import psutil  # type: ignore[import-untyped]  # noqa: PLC0415 - a development dependency

    return int(psutil.Process().memory_info().rss)
