"""`memaudit gate`: why a memory has its label, and what the gate says of a call. Changes nothing.

Exit codes as everywhere (`memory_audit.jobs.cli.main`); 1 only with `--fail-on refused`, when the call is denied or
repaired, or the entry is not trusted.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory_audit.counted import counted
from memory_audit.entry import PARTS_PER_MILLION
from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_at_most
from memory_audit.gate.call import MAX_CALL_BYTES, parse_question
from memory_audit.gate.gate import Gate
from memory_audit.gate.gate_policy import GatePolicy, load_gate_policy
from memory_audit.jobs.cli.shared import (
    FINDINGS,
    Json,
    Reading,
    Store,
    as_signed,
    check_choice,
    print_json,
    print_lines,
)
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.spread_options import spread_options
from memory_audit.lineage.verified import VerifiedLineage
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.gate.gate import GateDecision
    from memory_audit.lineage.dag import PathStep

__all__ = ["gate_app"]

TEXT_CHARS = 160
PATH_SHOWN = 20
"""Steps of a path printed; of a longer one the first and the last ones."""

gate_app = typer.Typer(help="The sensitive-action gate: labels, paths, decisions.", no_args_is_help=True)


@gate_app.callback()
def _gate() -> None:
    """Keep `explain` a command of its own: typer would fold a single one into its group."""


@gate_app.command()
@spread_options
def explain(
    *,
    store: Store,
    tenant: Annotated[str, typer.Option(help="Whose memories.")],
    policy: Annotated[Path | None, typer.Option(help="Gate policy file (YAML).")] = None,
    entry: Annotated[str | None, typer.Option(help="Explain the label of this memory.")] = None,
    call: Annotated[Path | None, typer.Option(help="Judge the tool call in this JSON file.")] = None,
    reading: Reading,
    fail_on: Annotated[str | None, typer.Option(help="Exit 1 on: refused.")] = None,
    as_json: Json = False,
) -> None:
    """Show the decision on a call, or the label of a memory, and why."""
    if (entry is None) == (call is None):
        raise UsageError("give one of --entry and --call")
    if call is not None and policy is None:
        raise UsageError("--call needs --policy: without one no tool is sensitive")
    check_choice("--fail-on", fail_on, "refused")
    tenant = as_signed(tenant, "--tenant")
    rules = load_gate_policy(policy) if policy is not None else GatePolicy(tools={})
    now = now_ms()
    session = reading.open(store, now)
    lineage = VerifiedLineage(session.snapshot, tenant, rules.trust, rules.tau_ppm)
    session.remember()
    if call is not None:
        refused = _explain_call(call, Gate(rules, lineage), lineage, now, as_json=as_json)
    else:
        refused = _explain_entry(as_signed(str(entry), "--entry"), lineage, as_json=as_json)
    if refused and fail_on is not None:
        raise typer.Exit(FINDINGS)


def _explain_call(file: Path, gate: Gate, lineage: VerifiedLineage, now: int, *, as_json: bool) -> bool:
    """Print a decision, and tell whether the call is not made as proposed."""
    proposed, context = parse_question(read_at_most(file, MAX_CALL_BYTES), file.name)
    decision = gate.decide(proposed, context, now_ms=now)
    if as_json:
        print_json({"tool": proposed.tool, **_decision_record(decision, lineage)})
        return decision.verdict != "allow"
    print_lines(f"{decision.verdict}: {as_line(decision.detail, 400)} ({decision.reason})")
    for finding in decision.findings:
        came = as_line(finding.where) if finding.where else "in no text that may authorise it"
        value = as_line(json.dumps(finding.value, ensure_ascii=False), TEXT_CHARS)
        mark = "authorised" if finding.authorised else "refused"
        print_lines(f"  {as_line(finding.parameter)} = {value}: {mark}, {finding.origin} ({came})")
    for item in decision.evidence:
        print_lines(f"  untrusted: {as_line(item.where)}")
        _print_path(item.path, lineage)
    for memory in context.memories:
        if memory in lineage.dag:
            print_lines(f"  memory {as_line(memory)}: {lineage.dag.label(memory)}")
    for assumed in decision.assumptions:
        print_lines(f"  assumed: {as_line(assumed, TEXT_CHARS)}")
    if decision.verdict == "repair" and decision.call is not None:
        arguments = json.dumps(dict(decision.call.arguments), ensure_ascii=False)
        print_lines(f"  make this call instead: {as_line(decision.call.tool)} {as_line(arguments, 1_000)}")
    return decision.verdict != "allow"


def _explain_entry(entry_id: str, lineage: VerifiedLineage, *, as_json: bool) -> bool:
    """Print a label, and tell whether it is not `trusted`."""
    label = lineage.dag.label(entry_id)
    path = lineage.dag.path(entry_id)
    why = _root_cause(path[0], lineage) if path else ""
    drawn, unrecorded = lineage.dag.shares(entry_id)
    below = [item for item in lineage.dag.descendants([entry_id]) if item.strong]
    if as_json:
        print_json({
            "entry_id": entry_id, "label": label, "removed": lineage.dag.is_removed(entry_id), "because": why,
            "path": _path_record(path), "strong_descendants": [item.entry_id for item in below],
            "untrusted_ppm": drawn, "unrecorded_ppm": unrecorded, "tau_ppm": lineage.dag.tau_ppm,
        })  # fmt: skip
        return label != "trusted"
    print_lines(f"{as_line(entry_id)}: {label}")
    _print_path(path, lineage)
    enough = _weight(lineage.dag.tau_ppm)
    if label != "external" and drawn and lineage.dag.rules.propagation == "shares":
        rest = f", and {_weight(unrecorded)} of it is recorded nowhere" if unrecorded else ""
        print_lines(f"  draws {_weight(drawn)} on untrusted memories{rest}; from {enough} together it is untrusted")
    if below:
        print_lines(f"  descending from it: {counted(len(below), 'memory')} that draw {enough} or more on it")
    return label != "trusted"


def _print_path(path: Sequence[PathStep], lineage: VerifiedLineage) -> None:
    shown = list(path)
    left_out = 0
    if len(shown) > PATH_SHOWN:
        left_out = len(shown) - PATH_SHOWN
        shown = shown[: PATH_SHOWN // 2] + shown[-PATH_SHOWN // 2 :]
    for number, step in enumerate(shown):
        if left_out and number == PATH_SHOWN // 2:
            print_lines(f"    … {left_out} more steps")
        if step.left_out:
            print_lines(f"    … {step.left_out} more steps")
        entry = lineage.entry(step.entry_id)
        text = "" if entry is None else f": {as_line(entry.text, TEXT_CHARS)}"
        drawn = step.weight_ppm
        how = _root_cause(step, lineage) if drawn is None else f"draws on it with weight {_weight(drawn)}"
        print_lines(f"    {as_line(step.entry_id)} [{step.label}; {how}]{text}")


def _weight(ppm: int) -> str:
    """Write a weight as `parents` has it."""
    return f"{ppm / PARTS_PER_MILLION:g}"


def _root_cause(step: PathStep, lineage: VerifiedLineage) -> str:
    entry = lineage.entry(step.entry_id)
    if entry is None:
        return "it was removed"
    return lineage.dag.rules.distrust(entry, lineage.dag.tau_ppm) or "it is external"


def _decision_record(decision: GateDecision, lineage: VerifiedLineage) -> dict[str, Any]:
    return {
        "verdict": decision.verdict,
        "reason": decision.reason,
        "detail": decision.detail,
        "arguments": None if decision.call is None else dict(decision.call.arguments),
        "findings": [
            {"parameter": item.parameter, "value": item.value, "origin": item.origin, "where": item.where,
             "memory": item.memory, "authorised": item.authorised}
            for item in decision.findings
        ],
        "evidence": [{"where": item.where, "path": _path_record(item.path)} for item in decision.evidence],
        "assumptions": list(decision.assumptions),
        "version": lineage.standing.version,
    }  # fmt: skip


def _path_record(path: Sequence[PathStep]) -> list[dict[str, Any]]:
    steps = map(asdict, path)
    return [{name: value for name, value in step.items() if name != "left_out" or value} for step in steps]
