"""The six headline results: the table of the README and of `docs/results/index.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.attribution.minja.methods import PLAIN, SET
from benchmarks.harness.pages.gate import dojo
from benchmarks.harness.pages.guard import DEFAULT_RUN, mixed
from benchmarks.harness.pages.headline import STUDIES
from benchmarks.harness.pages.shown import bar, one, table, thousands
from benchmarks.harness.tables import Group, pool, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PARTS"]

COPIES = "copies"
"""In the name of a study where each poison is stored ten times."""

SMALL = "0.5b"
"""In the name of a study with the smaller model."""


def six_results() -> str:
    """Return the table, each figure from its result.

    Raises:
        ValueError: a result no longer says what the row's words say.
    """
    ours, plain = _pooled(SET, COPIES), _pooled(PLAIN, COPIES)
    every, benign = _pooled(SET), _pooled(SET, without=SMALL)
    clean, dojos = bar("clean_store", "clean stores from which"), {name: dojo(name) for name in ("none", "repair")}
    written, drawn = (
        one(DEFAULT_RUN, part="adversary", names="one", set=f"paraphrases, {source}")
        for source in ("written", "backbone")
    )
    harmless = [mixed("benign", names) for names in ("one", "ever new")]
    exact = one(DEFAULT_RUN, part="blocking", mode="exact", set="paraphrases, written")
    told = {
        "no harm is left": every["hijacked_after"] == ours["hijacked_after"] == 0,
        "plain leaves every victim": plain["hijacked_after"] == plain["hijacked_before"],
        "no benign memory is lost": benign["benign_removed"] == 0,
        "all paraphrases are refused": written["blocked"] + drawn["blocked"] == written["n"] + drawn["n"],
        "no attack succeeds": dojos["repair"]["strict"] == 0,
    }
    for words, holds in told.items():
        if not holds:
            raise ValueError(f"the results no longer say that {words}")
    lost = plain["benign_removed"]
    lines = [
        (f"Is the harm gone? (MINJA QA and RAP, {thousands(every['hijacked_before'])} victims)",
         "no victim is answered harmfully after a purge",
         "the published method leaves every victim where poison is stored ten times"),
        ("Is benign memory lost? (same stores, default model)",
         f"none of {thousands(benign['store'] - benign['poison'])}",
         f"the published method loses {lost} where poison is stored ten times"),
        ("Is an innocent memory blamed for an agent's own mistake?",
         f"nothing removed in {clean['value']} {clean['unit']} clean stores", "–"),
        (f"Do paraphrases come back? ({written['n']} written, {drawn['n']} by a model, one sender)", "all refused",
         f"an exact match of labels refuses {exact['blocked']} of {exact['n']}"),
        ("Are harmless writes refused among them?",
         f"{sum(row['blocked'] for row in harmless)} of {sum(row['n'] for row in harmless)}", "–"),
        (f"Do injected tool calls succeed? (AgentDojo, {dojos['none']['pairs']} pairs)",
         f"none; {dojos['repair']['utility_alone']} of {dojos['none']['utility_alone']} tasks still solved",
         f"{dojos['none']['strict']} succeed without a gate"),
    ]  # fmt: skip
    return table(("question", "result", "what you would use instead"), lines)


def _pooled(method: str, part: str = "", *, without: str = " ") -> Group:
    """Add up the rows of the headline table: of stores that were hijacked, at the shares of poison that it shows."""
    shown = {(study, rho) for study, (_, ratios) in STUDIES.items() for rho in ratios}
    return pool([
        row for row in read_rows()
        if (row["result"], row["rho"]) in shown and row["method"] == method and row["hijacked_before"]
        and part in row["result"] and without not in row["result"]
    ])  # fmt: skip


PARTS: dict[str, Callable[[], str]] = {"six results": six_results}
