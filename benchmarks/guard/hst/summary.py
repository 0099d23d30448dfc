"""The result as tables on the terminal, and the bars of the study."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.guard.hst.adversary import NAMES
from benchmarks.guard.hst.extraction import EXTRACTIONS
from benchmarks.guard.hst.guarding import AS_IT_COMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness.resultfile import BarOf, ResultFile

__all__ = ["print_rows", "state_bars"]

Row = dict[str, Any]


def print_rows(rows: Sequence[Row]) -> None:
    """Print one table for each part that has rows."""
    console = Console(width=150)
    columns = {
        "blocking": ("extraction", "mode", "set", "blocked", "n", "rate", "low", "high", "length_only",
                     "length_only_matched", "asked", "failed"),
        "condition": ("embedder", "set", "condition", "prp_at_3", "benign_recall_at_3", "results_per_query",
                      "write_block_rate", "benign_false_block", "skipped"),
        "peers": ("peer", "mode", "set", "blocked", "n", "rate", "low", "high", "length_only", "us_per_write",
                  "skipped"),
        "keys": ("embedder", "set", "n", "p10", "median", "p90", "above_look", "above_alone", "auc_over_benign",
                 "auc_over_twins", "skipped"),
        "retrieval": ("mode", "set", "embedder", "prp_at_3_without", "prp_at_3_with_guard"),
        "one after the other": ("names", "set", "distrust_after", "alarm_after", "blocked", "n", "rate",
                                 "prp_at_3_without", "prp_at_3_with_guard"),
        "adversary": ("names", "set", "distrust_after", "alarm_after", "blocked", "n", "rate", "shuffled_orders",
                      "shuffled_all_refused", "shuffled_most_let_in"),
        "adversary, retrieval": ("embedder", "names", "set", "prp_at_3", "benign_recall_at_3", "shuffled_prp_at_3_mean",
                                 "shuffled_prp_at_3_most"),
        "mixed": ("names", "set", "distrust_after", "alarm_after", "orders", "blocked", "n", "rate", "low", "high"),
        "latency": ("extraction", "mode", "path", "n", "p50_ms", "p95_ms", "mean_ms"),
    }  # fmt: skip
    for part, names in columns.items():
        chosen = [row for row in rows if row["part"] == part]
        if not chosen:
            continue
        used = [name for name in names if any(row.get(name) is not None for row in chosen)]
        table = Table(*used, title=part)
        for row in chosen:
            table.add_row(*("" if row.get(name) is None else str(row[name]) for name in used))
        console.print(table)


def state_bars(results: ResultFile, extraction: str, mode: str) -> None:
    """State the bars of the default way; a bar whose rows are missing is not measured."""
    rows = results.rows
    blocking = {
        row["set"]: row
        for row in rows
        if row["part"] == "blocking" and row["extraction"] == extraction and row["mode"] == mode
    }
    for name, limit in (("verbatim", 1.0), ("paraphrases, written", 0.98), ("paraphrases, backbone", 0.98),
                        ("adaptive", 0.90)):  # fmt: skip
        row = blocking.get(name)
        _bar(
            results, f"WriteBlockRate, {name}", row, "rate", f">= {limit:g}", lambda value, limit=limit: value >= limit
        )
    for name in ("benign", "benign, length-matched"):
        _bar(results, f"BenignFalseBlock, {name}", blocking.get(name), "rate", "<= 0.01", lambda value: value <= 0.01)
    row = blocking.get("safe twins")
    _bar(results, f"safe twins blocked, of {row['n'] if row else 50}", row, "blocked", "<= 0", lambda value: value <= 0)
    conditions = [row for row in rows if row["part"] == "condition" and "condition" in row]
    commit = [row for row in conditions if row["condition"] == "commit-time"]
    worst = {
        "prp": max((row["prp_at_3"] for row in commit), default=None),
        "recall": min((row["benign_recall_at_3"] for row in commit), default=None),
    }
    _bar(results, "commit-time PRP@3, worst embedder and set", worst, "prp", "<= 0", lambda value: value <= 0)
    _bar(results, "commit-time Benign Recall@3, worst embedder and set", worst, "recall", ">= 1",
         lambda value: value >= 1)  # fmt: skip
    _state_adversary(results)
    before = {(row["embedder"], row["set"]): row["prp_at_3"] for row in conditions if row["condition"] == "no-forget"}
    after = {(row["embedder"], row["set"]): row["prp_at_3"] for row in conditions if row["condition"] == "id-delete"}
    gap = {"gap": min((round(after[key] - before[key], 4) for key in before), default=None)}
    _bar(results, "ID-Delete worse than No-Forget: PRP@3 gained, worst embedder and set", gap, "gap", "> 0",
         lambda value: value > 0, baseline=True)  # fmt: skip


def _state_adversary(results: ResultFile) -> None:
    """State the bars again for the paper's adversary, in the order given, and for honest writes among that."""
    chosen = partial(_chosen, results.rows)
    usual = asdict(AS_IT_COMES)
    for names in NAMES:
        sent = f"sent under {'one name' if names == 'one' else 'ever new names'}"
        for row in chosen("adversary", names=names):
            _bar(results, f"WriteBlockRate, {row['set']}, {sent}", row, "rate", ">= 0.98",
                 lambda value: value >= 0.98)  # fmt: skip
        worst = {"prp": max((row["prp_at_3"] for row in chosen("adversary, retrieval", names=names)), default=None)}
        _bar(results, f"commit-time PRP@3, {sent}, worst embedder and set", worst, "prp", "<= 0",
             lambda value: value <= 0)  # fmt: skip
        for group, column, limit in (("benign", "rate", 0.01), ("safe twins", "blocked", 0)):
            for row in chosen("mixed", names=names, set=group, **usual):
                _bar(results, f"{group} refused among those {sent}, of {row['n']}", row, column, f"<= {limit:g}",
                     lambda value, limit=limit: value <= limit)  # fmt: skip


def _chosen(rows: Sequence[Row], part: str, **columns: object) -> list[Row]:
    return [
        row for row in rows if row["part"] == part and all(row[name] == value for name, value in columns.items())
    ]  # fmt: skip


def _bar(  # noqa: PLR0917
    results: ResultFile,
    name: str,
    row: Row | None,
    column: str,
    limit: str,
    holds: Any,
    *,
    baseline: bool = False,
) -> None:
    value = None if row is None else row[column]
    of: BarOf = "default" if results.config["extractions"][0] == EXTRACTIONS[0] and not baseline else "variant"
    results.add_bar(name, value, "", limit, None if value is None else bool(holds(value)), of)
