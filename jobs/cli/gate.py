"""`memaudit gate`: why a memory has its label, and what the gate says of a call. Changes nothing.

Exit codes as everywhere (`memory_audit.jobs.cli.main`); 1 only with `--fail-on refused`, when the call is denied or
repaired, or the entry is not trusted.
"""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console

from memory_audit.counted import counted
from memory_audit.entry import PARTS_PER_MILLION
from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_at_most
from memory_audit.gate.call import MAX_CALL_BYTES, parse_question
from memory_audit.gate.gate import Gate
from memory_audit.gate.gate_policy import GatePolicy, load_gate_policy
from memory_audit.jobs.cli.store import (
    DEFAULT_KEYS,
    FINDINGS,
    Json,
    Keys,
    PinFile,
    Store,
    Trust,
    as_signed,
    installed_policy,
    known_pin,
    print_json,
    remember,
)
from memory_audit.jobs.clock import now_ms
from memory_audit.lineage.verified import VerifiedLineage
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_audit.gate.call import Context
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
def explain(
    store: Store,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose memories.")],
    policy: Annotated[Path | None, typer.Option("--policy", help="Gate policy file (YAML).")] = None,
    entry: Annotated[str | None, typer.Option("--entry", help="Explain the label of this memory.")] = None,
    call: Annotated[Path | None, typer.Option("--call", help="Judge the tool call in this JSON file.")] = None,
    keys: Keys = DEFAULT_KEYS,
    trust: Trust = None,
    pin: PinFile = None,
    fail_on: Annotated[str | None, typer.Option(help="Exit 1 on: refused.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Show the decision on a call, or the label of a memory, and why."""
    if (entry is None) == (call is None):
        raise UsageError("give one of --entry and --call")
    if call is not None and policy is None:
        raise UsageError("--call needs --policy: without one no tool is sensitive")
    if fail_on not in {None, "refused"}:
        raise UsageError(f"--fail-on is {fail_on!r:.40}, expected refused")
    tenant = as_signed(tenant, "--tenant")
    rules = load_gate_policy(policy) if policy is not None else GatePolicy(tools={})
    now, accepted = now_ms(), installed_policy(keys, trust)
    snapshot = open_snapshot(store, accepted, now_ms=now, pin=known_pin(store, pin, accepted, now))
    lineage = VerifiedLineage(snapshot, tenant, rules.trust, rules.tau_ppm)
    remember(snapshot, pin)
    if call is not None:
        answer = _about_call(call, Gate(rules, lineage), lineage, now)
    else:
        answer = _about_entry(as_signed(str(entry), "--entry"), lineage)
    if as_json:
        print_json(answer.record)
    else:
        console = Console(soft_wrap=True)
        for line in answer.lines:
            console.print(line, markup=False, highlight=False)
    if answer.refused and fail_on is not None:
        raise typer.Exit(FINDINGS)


class _Answer(NamedTuple):
    record: dict[str, Any]
    """For scripts."""

    lines: Iterator[str]
    """For people; the untrusted text in them is shown as `as_line` does."""

    refused: bool
    """The call is not made as proposed, or the label is not `trusted`."""


def _about_call(file: Path, gate: Gate, lineage: VerifiedLineage, now: int) -> _Answer:
    proposed, context = parse_question(read_at_most(file, MAX_CALL_BYTES), file.name)
    decision = gate.decide(proposed, context, now_ms=now)
    record = {
        "tool": proposed.tool,
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
        "version": lineage.standing.version,
    }  # fmt: skip
    return _Answer(record, _call_lines(decision, context, lineage), decision.verdict != "allow")


def _call_lines(decision: GateDecision, context: Context, lineage: VerifiedLineage) -> Iterator[str]:
    yield f"{decision.verdict}: {as_line(decision.detail, 400)} ({decision.reason})"
    for finding in decision.findings:
        came = as_line(finding.where) if finding.where else "in no text that may authorise it"
        value = as_line(json.dumps(finding.value, ensure_ascii=False), TEXT_CHARS)
        mark = "authorised" if finding.authorised else "refused"
        yield f"  {as_line(finding.parameter)} = {value}: {mark}, {finding.origin} ({came})"
    for item in decision.evidence:
        yield f"  untrusted: {as_line(item.where)}"
        yield from _path_lines(item.path, lineage)
    for memory in context.memories:
        if memory in lineage.dag:
            yield f"  memory {as_line(memory)}: {lineage.dag.label(memory)}"
    if decision.verdict == "repair" and decision.call is not None:
        arguments = json.dumps(dict(decision.call.arguments), ensure_ascii=False)
        yield f"  make this call instead: {as_line(decision.call.tool)} {as_line(arguments, 1_000)}"


def _about_entry(entry_id: str, lineage: VerifiedLineage) -> _Answer:
    dag = lineage.dag
    label, path = dag.label(entry_id), dag.path(entry_id)
    drawn, unrecorded = dag.shares(entry_id)
    below = [item.entry_id for item in dag.descendants([entry_id]) if item.strong]
    record = {
        "entry_id": entry_id, "label": label, "removed": dag.is_removed(entry_id),
        "because": _root_cause(path[0], lineage) if path else "", "path": _path_record(path),
        "strong_descendants": below, "untrusted_ppm": drawn, "unrecorded_ppm": unrecorded, "tau_ppm": dag.tau_ppm,
    }  # fmt: skip

    def lines() -> Iterator[str]:
        yield f"{as_line(entry_id)}: {label}"
        yield from _path_lines(path, lineage)
        enough = _weight(dag.tau_ppm)
        if label != "external" and drawn and dag.rules.propagation == "shares":
            rest = f", and {_weight(unrecorded)} of it is recorded nowhere" if unrecorded else ""
            yield f"  draws {_weight(drawn)} on untrusted memories{rest}; from {enough} together it is untrusted"
        if below:
            yield f"  descending from it: {counted(len(below), 'memory')} that draw {enough} or more on it"

    return _Answer(record, lines(), label != "trusted")


def _path_lines(path: Sequence[PathStep], lineage: VerifiedLineage) -> Iterator[str]:
    half, left_out = PATH_SHOWN // 2, len(path) - PATH_SHOWN
    shown = path if left_out <= 0 else (*path[:half], *path[-half:])
    for number, step in enumerate(shown):
        if left_out > 0 and number == half:
            yield f"    … {left_out} more steps"
        if step.left_out:
            yield f"    … {step.left_out} more steps"
        entry = lineage.entry(step.entry_id)
        text = "" if entry is None else f": {as_line(entry.text, TEXT_CHARS)}"
        drawn = step.weight_ppm
        how = _root_cause(step, lineage) if drawn is None else f"draws on it with weight {_weight(drawn)}"
        yield f"    {as_line(step.entry_id)} [{step.label}; {how}]{text}"


def _weight(ppm: int) -> str:
    """Write a weight as `parents` has it."""
    return f"{ppm / PARTS_PER_MILLION:g}"


def _root_cause(step: PathStep, lineage: VerifiedLineage) -> str:
    entry = lineage.entry(step.entry_id)
    if entry is None:
        return "it was removed"
    return lineage.dag.rules.distrust(entry, lineage.dag.tau_ppm) or "it is external"


def _path_record(path: Sequence[PathStep]) -> list[dict[str, Any]]:
    return [
        {"entry_id": step.entry_id, "label": step.label, "removed": step.removed, "weight_ppm": step.weight_ppm,
         **({"left_out": step.left_out} if step.left_out else {})}
        for step in path
    ]  # fmt: skip
