"""Run one peer over the benchmark's writes, in a process of its own: JSON on standard input, JSON on standard output.

    in   {"peer": …, "stored": [[id, text], …], "removed": [id, …], "attempts": [[id, text], …]}
    out  {"version": …, "mode": …, "blocked": [id, …], "seconds_per_write": …}

Imports nothing of this project, so that the peer's folder on PYTHONPATH is all it sees. The peer holds the stored
records, is told to forget the removed ones by its own means where it has some, and then gets the attempts. An attempt
is blocked when the peer refuses it, quarantines it, or reports it where reporting is all it does. The order is shuffled
and every attempt has a key of its own: several peers otherwise react to bursts or to one key rather than to the text.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
import time
from typing import Any

Pairs = list[tuple[str, str]]

SPACING_S = 3_600.0
"""Between two writes on the clock of peers that take one: memgovern's burst tripwire is not what is measured."""


def agent_memory_guard(stored: Pairs, removed: list[str], attempts: Pairs, mode: str) -> list[str]:
    """`MemoryGuard` with its strict policy, or `scan`, its universal text scan."""
    from agent_memory_guard import MemoryGuard, Policy  # type: ignore[import-not-found]  # noqa: PLC0415
    from agent_memory_guard.exceptions import MemoryGuardError  # type: ignore[import-not-found]  # noqa: PLC0415

    if mode == "scan":
        from agent_memory_guard.scan import scan  # type: ignore[import-not-found]  # noqa: PLC0415

        return [name for name, text in attempts if not scan(text).safe]
    guard = MemoryGuard(policy=Policy.strict())
    for name, text in stored:
        guard.write(f"memory.{name}", text)
    for name in removed:
        guard.delete(f"memory.{name}")
    blocked = []
    for name, text in attempts:
        try:
            action = guard.write(f"memory.{name}", text)
        except MemoryGuardError:
            blocked.append(name)
            continue
        if action.value == "quarantine":
            blocked.append(name)
    return blocked


def memgovern(stored: Pairs, removed: list[str], attempts: Pairs, mode: str) -> list[str]:
    """`MemoryStore` after `delete`, which tombstones; `same-key` writes an attempt under the removed key again."""
    from memgovern import MemoryStore  # type: ignore[import-not-found]  # noqa: PLC0415

    now = [1_760_000_000.0]

    def clock() -> float:
        now[0] += SPACING_S
        return now[0]

    store = MemoryStore(":memory:", clock=clock)
    for name, text in stored:
        store.write(name, text)
    for name in removed:
        store.delete(name, reason="harmful")
    texts = {text: name for name, text in stored if name in removed}
    blocked = []
    for name, text in attempts:
        key = texts.get(text, name) if mode == "same-key" else name
        if store.write(key, text).status != "alive":
            blocked.append(name)
    store.close()
    return blocked


def bastionmemory(stored: Pairs, removed: list[str], attempts: Pairs, mode: str) -> list[str]:
    """`scan_report` against a baseline of what was kept; blocked by its verdict `block`, or `review` as well."""
    from bastionmemory.models import MemoryEntry  # type: ignore[import-not-found]  # noqa: PLC0415
    from bastionmemory.scanner import scan_report  # type: ignore[import-not-found]  # noqa: PLC0415

    def entry(text: str) -> MemoryEntry:
        return MemoryEntry(file="memory.md", line=1, text=" ".join(text.split()))

    baseline = {entry(text).id for name, text in stored if name not in removed}
    verdicts = {"block": {"block"}, "review": {"block", "review"}}[mode]
    return [
        name
        for name, text in attempts
        if scan_report("memory", [entry(text)], baseline, since_baseline=True).verdict in verdicts
    ]


PEERS: dict[str, Any] = {
    "agent-memory-guard": agent_memory_guard,
    "memgovern": memgovern,
    "bastionmemory": bastionmemory,
}


def main() -> None:
    """Answer one question."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    question = json.load(sys.stdin)
    run = PEERS[question["peer"]]
    run(question["stored"][:2], [], question["attempts"][:1], question["mode"])  # imports and first use are not timed
    began = time.perf_counter()
    blocked = run(question["stored"], question["removed"], question["attempts"], question["mode"])
    seconds = time.perf_counter() - began
    answer = {
        "version": importlib.metadata.version(question["peer"]),
        "blocked": blocked,
        "seconds_per_write": seconds / (len(question["stored"]) + len(question["attempts"])),
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
