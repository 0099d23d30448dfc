"""Tables of `docs/results/systems.md`: formats, throughput and the third parties that agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness.pages.shown import bar, record, rows, table, thousands

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PARTS"]

WORDS = {True: "met", False: "**not met**", None: "none stated"}

MEASURED = (
    ("merkle", "root of 1000000 leaves", "Merkle root of a million leaves, over a plain hashlib loop"),
    ("verify_1e6", "verify 1000000 entries, against bare Ed25519 (wall", "verify a million entries, over bare Ed25519"),
    ("verify", "verify 100000 entries, against bare Ed25519 (wall", "verify 100,000 entries, likewise"),
    ("verify", "verify 8192 entries", "verify 8,192 entries in one process, processor time"),
    ("verify", "append to 100000 entries, batches of 10000, per entry (wall", "append to 100,000, batches of 10,000"),
    ("verify", "append to 100000 entries, batches of 1000, per entry (wall", "append to 100,000, batches of 1,000"),
    ("append", "append to 1000000 entries", "append to a million, batches of 1,000"),
    ("append", "the same, against", "the same, over a store of 100,000"),
    ("lineage_latency", "append (sign, log, edges)", "append to log and lineage alone, median"),
    ("lineage_latency", "gate at 100000 entries", "gate at 100,000 entries, median of the slowest mode"),
    ("guard_latency", "guard without a model call, p50", "guard without a model, 10,000 tombstones, median"),
    ("guard_latency", "guard without a model call, p99", "guard without a model, 10,000 tombstones, p99"),
    ("guard_latency", "cached decisions", "decisions on known writes"),
    ("guard_connections", "writes not answered", "served guard beside 2,000 idle connections: writes not answered"),
    ("guard_connections", "p99", "served guard beside 2,000 idle connections: p99 over that without them"),
    ("guard_connections", "standard error and log", "served guard beside 2,000 idle connections: what it writes"),
    ("crash", "acknowledged entries lost", "publisher killed at every file operation: entries lost"),
    ("fuzz", "exceptions that are not ours", "fuzzed decoders: foreign exceptions"),
    ("fuzz", "inputs per decoder", "fuzzed decoders: inputs each"),
    (
        "nli_throughput",
        "pairs/s, short",
        "NLI, pairs of 30 tokens a side, over `CrossEncoder.predict`",
    ),
    ("nli_throughput", "pairs/s, passages", "NLI, pairs of passages of 150 tokens a side, likewise"),
    ("nli_throughput", "largest change", "NLI, largest change of a probability asked alone"),
    ("replay_throughput", "replays/s", "replays per second, over one at a time without prefix cache"),
)
"""Result, beginning of the bar's name, and what it is called."""

THIRD_PARTIES = (
    ("transparency-dev Merkle vectors", "196 of 196"),
    ("Tessera checkpoints", "16 of 16"),
    ("Wycheproof Ed25519", "151 of 151"),
    ("Go's `sumdb/note` and `tlog`, on random trees of ours", "1,000 of 1,000"),
    ("`agmi-check` (PyPI `agent-memory-integrity`), edits refused on read", "9 of 9"),
)
"""Held by tests in `tests/conformance`."""


def measured() -> str:
    """Every bar of formats and throughput."""
    lines = []
    for result, start, name in MEASURED:
        found = bar(result, start)
        value = thousands(found["value"]) if found["value"] >= 1_000 else f"{found['value']:g}"
        lines.append((name, f"{value} {found['unit']}".strip(), found["limit"], WORDS[found["met"]],
                      f"`{record(result)['command']}`"))  # fmt: skip
    return table(("what", "value", "bar", "", "command"), lines)


def serving() -> str:
    """Settings of vLLM on two cores."""
    lines = [
        (row["setting"], f"{row['load_s']:.0f}", f"{row['cold_s']:.1f}", f"{row['warm_s']:.1f}")
        for row in rows("serving_settings")
    ]
    return table(("setting of vLLM", "seconds to start", "twelve replays, cold", "warm"), lines)


def third_parties() -> str:
    """Other parties' vectors and programs."""
    return table(("other party", "agrees"), THIRD_PARTIES)


PARTS: dict[str, Callable[[], str]] = {"systems": measured, "serving": serving, "third parties": third_parties}
