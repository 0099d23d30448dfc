"""Run one cell of a study under every method asked for, and write one row per method.

The paper's protocol (sec. 5): collect harm, audit the store as it is, purge, ask again. All methods remove as many
memories as the set search does in the same cell; where that is none, they remove none.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from benchmarks.attribution.minja.methods import ALPHAS, GROUPS, OWN_COUNT, PLAIN, SET
from benchmarks.attribution.minja.study import baseline_removals, plain_removal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.attribution.minja.study import Audited, Cell, Study
    from benchmarks.harness.resultfile import ResultFile
    from memory_audit.result import AuditResult, TenantResult

__all__ = ["cost_of", "run_cell", "verdicts_of"]


def run_cell(study: Study, cell: Cell, key: Mapping[str, Any], methods: Sequence[str], results: ResultFile) -> None:
    """Run what is missing of one cell.

    Args:
        study: Executor and progress.
        cell: The store under attack.
        key: Names the cell in rows, e.g. track, backbone, rho, seed.
        methods: Of GROUPS.
        results: Rows of this key that are there already are not run again.
    """
    done = {row["method"] for row in results.rows if all(row.get(name) == value for name, value in key.items())}
    wanted = [name for group, names in GROUPS.items() if group in methods for name in names if name not in done]
    if not wanted:
        return
    key = {**key, **cell.injection}
    began = time.perf_counter()
    attacked = study.attack(cell)
    attack_seconds = time.perf_counter() - began
    events = study.events(cell, attacked)
    harmful = [event for event in events if event.harm == "harmful"]
    if not harmful:
        # Nothing was seen, so there is nothing to audit: every method removes nothing.
        for name in wanted:
            results.add_row({**key, "method": name, "events": 0, **study.after(cell, attacked, frozenset())})
        return

    ours = study.audit(cell, events, cell.config)
    removed = _missing(cell, ours)
    common = {**key, "events": len(harmful), "attack_seconds": round(attack_seconds, 1)}
    if SET in wanted:
        results.add_row({
            **common, "method": SET, **study.after(cell, attacked, removed), **cost_of(ours),
            **_calibration(ours.tenant, cell.poison),
        })  # fmt: skip
    if OWN_COUNT in wanted:
        own = study.audit(cell, events, dataclasses.replace(cell.config, attribution="loo"))
        results.add_row({
            **common, "method": OWN_COUNT, **study.after(cell, attacked, _missing(cell, own)), **cost_of(own),
        })  # fmt: skip
    if any(name not in {SET, OWN_COUNT} for name in wanted):
        plain_config = dataclasses.replace(cell.config, attribution="loo", budget=len(removed))
        plain = study.audit(cell, events, plain_config)
        for name, chosen in _choices(cell, plain.tenant, attacked, len(removed)).items():
            if name in wanted:
                cost = cost_of(plain) if name == PLAIN else {}
                results.add_row({**common, "method": name, **study.after(cell, attacked, chosen), **cost})


def _missing(cell: Cell, audited: Audited) -> frozenset[str]:
    return frozenset(entry.entry_id for entry in cell.entries) - {entry.entry_id for entry in audited.left}


def _choices(cell: Cell, plain: TenantResult, attacked: Mapping[str, Any], count: int) -> dict[str, frozenset[str]]:
    chosen = {name: plain_removal(plain, count, alpha) for name, alpha in ALPHAS.items()}
    return chosen | baseline_removals(plain, attacked["memory"], cell.victims, count, cell.config.seed)


def cost_of(audited: Audited) -> dict[str, Any]:
    """Say what an audit cost, and its verdicts; answers from disk count as when they were computed."""
    counters = audited.result.counters
    return {
        "audit_seconds": round(audited.seconds, 1),
        "replays": counters.get("replays", 0),
        "distinct_replays": audited.distinct_replays,
        "search_replays": audited.search_replays,
        "prompt_tokens": counters.get("prompt_tokens", 0),
        "cached_tokens": counters.get("cached_tokens", 0),
        "completion_tokens": counters.get("completion_tokens", 0),
        "verdicts": verdicts_of(audited.result),
    }


def verdicts_of(result: AuditResult) -> dict[str, int]:
    """Count a study's events by verdict, in alphabetical order."""
    return dict(sorted(result.tenants[0].tally.verdicts.items()))


def _calibration(tenant: TenantResult, poison: frozenset[str]) -> dict[str, Any]:
    """How far apart the evidence lies: lowest of the poisoned, highest of the benign, in nats (for the reader only)."""
    known = [
        (score.sufficiency_nats, score.entry_id in poison)
        for score in tenant.scores
        if score.sufficiency_nats is not None
    ]
    return {
        "sufficiency_poison_nats": sorted(round(value, 2) for value, poisoned in known if poisoned),
        "sufficiency_benign_nats": sorted(round(value, 2) for value, poisoned in known if not poisoned),
    }
