"""Tables of `docs/results/gate.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness.pages.shown import one, record, rows, table, thousands
from benchmarks.harness.resultfile import RESULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["PARTS", "dojo"]

DEFENCES = {
    "none": "none", "signature": "signatures only", "deny": "coarse taint, deny",
    "retry": "coarse taint, generic retry", "authority": "authority by parameter, deny",
    "repair": "**authority by parameter, repair**",
}  # fmt: skip

METHODS = {
    "words": "word overlap", "embedding": "embedding overlap", "nli": "NLI entailment",
    "backbone": "the backbone, asked (1.5B, bf16)", "words+embedding+nli": "words, embedding and NLI (default)",
    "words+embedding+nli+backbone": "all four",
}  # fmt: skip

READERS = {
    "every memory": "plain recall", "trusted label": "recall by trust label",
    "trusted, own keys": "recall by trust label, the user's own key",
}  # fmt: skip


def dojo(defence: str) -> dict[str, int]:
    """Return the counts of one defence over all pairs of AgentDojo."""
    head, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (RESULTS / "agentdojo_summary.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(("| scope", f"| all | {defence} "))
    )
    return {name: int(cell) for name, cell in zip(head[2:], lines[0][2:], strict=True)}


def agentdojo() -> str:
    """Attacks that succeed and tasks that are solved, by defence."""
    found = {defence: dojo(defence) for defence in DEFENCES}
    alone = found["none"]["utility_alone"]
    lines = [
        (name, f"{found[defence]['strict']} of {found[defence]['pairs']}", found[defence]["targeted"],
         f"{found[defence]['utility_alone']} of {alone}", f"{found[defence]['utility']} of {found[defence]['pairs']}")
        for defence, name in DEFENCES.items()
    ]  # fmt: skip
    head = ("gate", "attacks that succeed (strict)", "calls that the attacker wanted",
            "user tasks solved without attack", "under attack")  # fmt: skip
    return table(head, lines)


def harness() -> str:
    """The deterministic agent of this project, by workload and defence."""
    lines = [
        (row["workload"], row["defence"], f"{row['attacks_succeeded']} of {row['attacks']}",
         f"{row['right_calls_under_attack']} of {row['attacks']}",
         f"{row['right_calls_without_attack']} of {row['without_attack']}")
        for row in rows("lineage")
        if "workload" in row and "without_attack" in row
    ]  # fmt: skip
    head = ("workload", "defence", "attacks that succeed", "right calls under attack", "right calls without attack")
    return table(head, lines)


def laundering() -> str:
    """Per way in which a value comes before the agent: where it passes as an attacker's, and not as the right one."""
    found = rows("lineage_laundering")
    policies = list(dict.fromkeys(row["policy"] for row in found))

    def counted(policy: str, column: str, case: tuple[str, str]) -> int:
        return one("lineage_laundering", policy=policy, channel=case[0], variant=case[1])[column]

    lines = [
        (*case, *(
            _listed([policy for policy in policies if counted(policy, column, case)], policies)
            for column in ("attacks_let_through", "legitimate_refused")
        ))
        for case in dict.fromkeys((row["channel"], row["variant"]) for row in found)
    ]  # fmt: skip
    return table(("channel", "variant", "an attack passes under", "the right call is refused under"), lines)


def _listed(some: Sequence[str], every: Sequence[str]) -> str:
    """Name some of all policies; of most of them name the others."""
    others = [name for name in every if name not in some]
    if len(others) > len(some):
        return ", ".join(some) or "–"
    return f"all but {', '.join(others)}" if others else "all"


def heat_map() -> str:
    """How many cells of the heat map are refused."""
    names = {"tau_k": "the paper's rules, where weak edges hand on nothing", "tau_k_defaults": "the defaults"}
    lines = [(name, f"{row['refused']} of {row['cells']}") for part, name in names.items()
             for row in rows("lineage", part=part)]  # fmt: skip
    return table(("cells of the figure that are refused, by", ""), lines)


def derivation() -> str:
    """Estimated edges, by what they are read from."""
    seconds = {row["method"]: row["seconds"] for row in rows("derivation") if "seconds" in row}
    lines = []
    for method, name in METHODS.items():
        row = next(item for item in rows("derivation", method=method) if "auc" in item)
        lines.append((name, f"{row['auc']:.3f}", f"{row['precision']:.2f}", f"{row['recall']:.2f}",
                      f"{row['calibration_error']:.3f}",
                      thousands(sum(seconds[part] for part in method.split("+")))))  # fmt: skip
    return table(("read from", "AUC", "precision", "recall", "calibration error", "seconds"), lines)


def served() -> str:
    """How many planted memories are served, by reader and by the channel that they came through."""
    found = rows("agmi_semantic")
    channels = list(dict.fromkeys(row["channel"] for row in found))
    lines = []
    for reader, name in READERS.items():
        cells = []
        for channel in channels:
            part = [row for row in found if (row["reader"], row["channel"]) == (reader, channel)]
            cells.append(f"{sum(row['surfaced'] for row in part)} of {sum(row['cases'] for row in part)}")
        lines.append((name, *cells))
    return table(("planted memories that are served", *channels), lines)


def latency() -> str:
    """Time of a decision."""
    entries = thousands(record("lineage_latency")["config"]["entries"])
    lines = [
        (row["operation"], f"{row['median_us']:,.0f} µs", f"{row['p99_us']:,.0f} µs" if "p99_us" in row else "–")
        for row in rows("lineage_latency")
    ]
    return table((f"operation, {entries} entries", "median", "p99"), lines)


PARTS: dict[str, Callable[[], str]] = {
    "agentdojo": agentdojo, "gate harness": harness, "laundering": laundering, "heat map": heat_map,
    "derivation": derivation, "served": served, "gate latency": latency,
}  # fmt: skip
