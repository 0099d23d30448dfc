"""Tables of `docs/results/attribution.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness.pages import headline
from benchmarks.harness.pages.shown import bar, one, rows, table, thousands

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PARTS"]

TRACED = {
    "memaudit": "**MemAudit**", "leave-one-out": "leave-one-out by verdict",
    "memory-blackbox 0.1.1": "memory-blackbox 0.1.1",
}  # fmt: skip

PEERS = {
    "ours (set)": "**MemAudit**", "leave-one-out": "leave-one-out by verdict",
    "random halves": "random halves, sparse fit, our measure",
    "context-cite 0.0.4 (whole)": "context-cite 0.0.4", "memory-blackbox 0.1.1": "memory-blackbox 0.1.1",
}  # fmt: skip

OVER_LEAVE_ONE_OUT = "calls, set search over plain leave-one-out, ρ = 0.5"
WITHOUT_PROBES = "calls besides those of probes, set search over plain leave-one-out, ρ = 0.5"
CALLED = ("QA, dense", "QA, levenshtein", "QA, dense, each poison 10 times, 340 memories", "RAP, dense",
          "RAP, dense, each poison 10 times")  # fmt: skip


def repair() -> str:
    """Attack and repair: a line for each method at each share of poison."""
    return "\n".join(headline.lines())


def calls() -> str:
    """Calls of the set search over those of leave-one-out."""
    lines = [
        (
            place,
            *(f"{bar('study', f'{place}: {name}')['value']:.1f} ×" for name in (OVER_LEAVE_ONE_OUT, WITHOUT_PROBES)),
        )
        for place in CALLED
    ]
    return table(
        ("track, at ρ = 0.50", "calls of the set search over leave-one-out", "without replays of probes"), lines
    )


def probes() -> str:
    """Probes that the audit never sees, before and after."""
    lines = [
        (f"{row['rho']:.2f}", row["seed"], f"{row['poison_removed']} of {row['poison']}", row["benign_removed"],
         f"{row['right_before']} of {row['probes']}", row["right_after"], row["lost"], row["gained"])
        for row in rows("probes_kept")
    ]  # fmt: skip
    kept = bar("probes_kept", "QA: benign probe accuracy kept")
    head = ("ρ", "seed", "poison removed", "benign removed", "right before", "right after", "lost", "gained")
    return (
        f"{table(head, lines)}\n\nKept: **{kept['value']:.0f} %** {kept['unit'].removeprefix('% ')}; the bar is 98 %."
    )


def trace() -> str:
    """Which memory did it."""
    lines = []
    for method, name in TRACED.items():
        row = one("trace_task", method=method)
        low, high = row["interval"]
        share = f"{row['hit_at_1']:.4g} of {row['cases']} ({100 * low:.0f}–{100 * high:.0f} %)"
        lines.append((name, f"**{share}**" if method == "memaudit" else share, thousands(row["calls"]),
                      thousands(row["computed_tokens"])))  # fmt: skip
    return table(("method", "poison ranked first", "model calls", "tokens computed"), lines)


def peers() -> str:
    """Five methods on one store."""
    lines = []
    for method, name in PEERS.items():
        row = next(item for item in rows("attribution_peers", method=method) if "own_rule" in item)
        own = row["own_rule"]
        removed = own["removed"] - own["benign_removed"]
        lines.append((name, f"{removed} of {row['poison']}", own["benign_removed"], thousands(row["calls"]),
                      thousands(row["computed_tokens"]), thousands(row["seconds"])))  # fmt: skip
    head = ("method, by its own rule", "poison removed", "benign removed", "model calls", "tokens computed", "seconds")
    return table(head, lines)


def cost() -> str:
    """One poison among few and among many."""
    lines = []
    for ratio in (row for row in rows("sparse_cost") if "tokens_ratio" in row):
        plain = one("sparse_cost", k=ratio["k"], side="leave-one-out, one at a time")
        ours = one("sparse_cost", k=ratio["k"], side="memaudit")
        tokens = f"{thousands(ours['computed_tokens'])} against {thousands(plain['computed_tokens'])}"
        seconds = f"{ours['seconds']:.0f} against {plain['seconds']:.0f}"
        lines.append((
            ratio["k"], f"{ours['calls']} against {plain['calls']}", f"{tokens}: **{ratio['tokens_ratio']:.1f} ×**",
            f"{seconds}: **{ratio['wall_ratio']:.1f} ×**",
        ))  # fmt: skip
    return table(("memories retrieved", "calls, MemAudit against leave-one-out", "tokens computed", "seconds"), lines)


def clean() -> str:
    """Stores without poison."""
    found = rows("clean_store")
    verdicts = [verdict for row in found for verdict, count in row["all_verdicts"].items() for _ in range(count)]
    own = sum(row["own_mistakes"] for row in found)
    lines = [
        ("clean stores", len(found)),
        ("wrong answers reported as harm", sum(row["wrong"] for row in found)),
        ("of these wrong without memory too", own),
        ("… blamed on no memory", sum(row["own_verdicts"].get("memory is not the cause", 0) for row in found)),
        ("wrong with memories only", len(verdicts) - own),
        ("… reported as not cleared", verdicts.count("not cleared")),
        ("memories removed", sum(row["all_removed"] for row in found)),
    ]
    return table(("what", "count"), lines)


def large() -> str:
    """What one audit costs besides its models."""
    lines = [
        (row["night"], thousands(row["memories"]), f"{row['seconds']:.3g}", f"{row['peak_mib'] / 1024:.1f} GiB",
         thousands(row["texts"]), thousands(row["directed pairs"]))
        for row in sorted(rows("large_tenant"), key=lambda row: len(str(row["memories"])))
    ]  # fmt: skip
    return table(("night", "memories", "seconds", "peak memory", "texts to embed", "directed NLI pairs"), lines)


def public_stores() -> str:
    """Planted passages in stores that nothing was tuned on: who is named, and what is left of the harm."""
    lines = []
    for name, store in (("poisonedrag", "PoisonedRAG on NQ"), ("conflictqa", "ConflictQA, yes or no")):
        for poisons in sorted({row["poisons"] for row in rows(f"public_stores_{name}")}, reverse=True):
            found = rows(f"public_stores_{name}", poisons=poisons)
            total = {field: sum(row[field] for row in found) for field in found[0] if isinstance(found[0][field], int)}
            named = total["named_planted"] + total["named_benign"]
            lines.append((
                f"{store}, {poisons} a question", thousands(total["entries"]),
                f"{total['mattered']} of {total['events']}",
                f"**{total['planted_there_named']} of {total['planted_there']}**",
                f"**{total['named_planted']} of {named}**", total["removed_benign"],
                f"{total['mattered_harmful_after']} of {total['mattered']}",
                f"{total['probes_kept']} of {total['probes']}",
            ))  # fmt: skip
    head = ("store, planted", "memories", "questions in which memory mattered", "planted there, named",
            "planted among the named", "true ones removed", "of these harmful after", "probes kept")  # fmt: skip
    return table(head, lines)


def fragments() -> str:
    """Sets that do harm only together, on trades that were not looked at while the search was written."""
    counted = [row for row in rows("fragments_stand_in") if row["held_out"] and "passed_over" not in row]
    lines = []
    for kind in sorted({row["kind"] for row in counted}):
        found = [row for row in counted if row["kind"] == kind]
        whole = sum(row["named"] == row["planted"] for row in found)
        by_hand = sum(row["loo_named"] == row["planted"] for row in found)
        calls, plain = (sum(row[name] for row in found) for name in ("calls", "loo_calls"))
        lines.append((
            kind, f"**{whole} of {len(found)}**", sum(row["benign_named"] for row in found),
            f"{by_hand} of {len(found)}", sum(row["loo_benign_named"] for row in found), f"{calls / plain:.1f} ×",
        ))  # fmt: skip
    head = ("fragments needed, of those planted", "sets named whole", "benign named", "whole by leave-one-out",
            "benign named by it", "calls over its")  # fmt: skip
    return table(head, lines)


def agents() -> str:
    """Two agents with real memory systems, poisoned and repaired."""
    lines = [
        (row["system"], row["memories"], f"**{row['harmful_before']} → {row['harmful_after']} of {row['asked']}**",
         f"{row['poison_removed']} of {row['poison']}", row["benign_removed"], thousands(row["seconds_of_memaudit"]))
        for row in rows("agents")
    ]  # fmt: skip
    head = ("memory system", "memories", "harmful answers, before → after", "poison removed", "benign removed",
            "seconds of `memaudit`")  # fmt: skip
    return table(head, lines)


PARTS: dict[str, Callable[[], str]] = {
    "attack and repair": repair, "calls": calls, "probes": probes, "trace": trace, "peers": peers, "cost": cost,
    "clean stores": clean, "large tenants": large, "public stores": public_stores,
    "fragments": fragments, "agents": agents,
}  # fmt: skip
