"""Targets of what comes from outside without a signature: files that people write, and requests.

What was read is also put to use as the program does next (a configuration's digest, a gate's decision, a record of the
decision log), since a value that cannot be used is as good as a crash.
"""

from __future__ import annotations

import json

from benchmarks.systems.fuzz.signed import NOW_MS
from benchmarks.systems.fuzz.target import Target, same
from memory_audit.attribution.replays.agents import load_agent
from memory_audit.attribution.replays.harm import load_harm
from memory_audit.config import load_config, parse_options
from memory_audit.errors import EntryError, EventError, UsageError
from memory_audit.events import parse_events
from memory_audit.formats.import_jsonl import parse_entries
from memory_audit.gate.call import parse_question
from memory_audit.gate.gate import Gate
from memory_audit.gate.gate_policy import parse_gate_policy
from memory_audit.guard.blocks.hazard import parse_taxonomy
from memory_audit.guard.decide.guard_decision import GuardDecision
from memory_audit.guard.decision_log import as_record
from memory_audit.jobs.guard.bodies import parse_writes
from memory_audit.lineage.dag import Lineage
from memory_audit.lineage.edges_file import parse_edges
from memory_audit.lineage.trust import TrustRules

__all__ = ["input_targets"]

DEFAULTS = {"tenant": "acme", "principal": "unknown", "source": "agent", "created_at_ms": 5}


def input_targets() -> list[Target]:
    """Return the targets."""
    return [*_settings(), *_lines(), *_gate()]


def _json(*values: object) -> bytes:
    return b"\n".join(json.dumps(value).encode() for value in values)


def _settings() -> list[Target]:
    agents = (
        {"kind": "few-shot", "system": "Help.", "max_tokens": 160, "stop": ["a"], "temperature": 0.5},
        {"kind": "template", "template": "You {memories}", "item": "{request} {response}"},
    )
    harms = (
        {"kind": "answer-label", "labels": ["B"], "victim": "a+"},
        {"kind": "regex", "pattern": "(send|pay)"},
        {"kind": "judge", "question": "Is it?", "max_characters": 80},
    )
    options = (
        b"k: 3\nalpha: 0.5\nbudget: null\nretrieval: dense\nprobe-pattern: '([A-Z])'\n"
        b"agent: {kind: few-shot, system: s}\n"
    )
    taxonomy = (
        b"name: acts\nversion: 1\nlabels:\n  - name: skip\n    definition: leaves out a check\n"
        b'    positive: "Go on."\n    negative: Check.\n    threshold_nats: 1.5\n'
    )

    def read_config(data: bytes) -> None:
        load_config(None, parse_options(data, "f")).digest()

    def read_agent(data: bytes) -> None:
        settings = _built_in(data)
        steps = load_agent(settings).episode("q", [], 0)
        next(steps).digest()

    def read_harm(data: bytes) -> None:
        for request in load_harm(_built_in(data)).score("q", "send"):
            request.digest()
            break

    return [
        Target(name="configuration", decode=read_config, seeds=(options,), raises=UsageError, shape="yaml"),
        Target(
            name="agent settings", decode=read_agent, seeds=tuple(map(_json, agents)), raises=UsageError, shape="json"
        ),
        Target(
            name="harm settings", decode=read_harm, seeds=tuple(map(_json, harms)), raises=UsageError, shape="json"
        ),
        Target(
            name="taxonomy", decode=lambda data: parse_taxonomy(data, "f").digest, seeds=(taxonomy,), raises=UsageError,
            shape="yaml",
        ),
    ]  # fmt: skip


def _built_in(data: bytes) -> dict[str, object]:
    """Read settings as a run's workers do; those that name code to import are another matter than decoding."""
    try:
        settings = json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError("not JSON") from None
    if not isinstance(settings, dict):
        raise UsageError("not settings")
    if ":" in str(settings.get("kind")):
        raise UsageError("not imported here")
    return settings


def _lines() -> list[Target]:
    entries = _json(
        {"entry_id": "a", "request": "é", "response": "b", "source": "tool", "metadata": {"channel": "mail"}},
        {"tenant": "acme", "entry_id": "b", "principal": "p", "request": "", "response": "c", "parents": [["a", 0.5]]},
    )
    events = _json(
        {"event_id": "1", "tenant": "acme", "ts_ms": 5, "query": "q", "output": "o", "retrieved": ["a", "b"],
         "harm": {"label": "harmful", "source": "ticket"}, "more": {"x": [1.5, None]}},
        {"event_id": "2", "tenant": "acme", "query": "q", "output": "o", "harm": {"label": "benign"}},
    )  # fmt: skip
    edges = _json(
        {"tenant": "acme", "child": "b", "parent": "a", "weight": 0.83, "evidence": {"nli": 0.9, "words": 1}},
        {"tenant": "acme", "child": "c", "parent": "a", "weight": 1},
    )

    def read_events(data: bytes) -> None:
        found = list(parse_events(data.splitlines(keepends=True), "f"))
        again = "\n".join(event.to_json() for event in found).encode()
        same("\n".join(event.to_json() for event in parse_events(again.splitlines(), "f")).encode(), again)

    def read_edges(data: bytes) -> None:
        found = parse_edges(data.splitlines(), "f")
        again = [edge.to_json().encode() for edge in found]
        same(b"\n".join(edge.to_json().encode() for edge in parse_edges(again, "f")), b"\n".join(again))

    def grow(data: bytes) -> None:
        entries = list(parse_entries(data.split(b"\n"), "f", DEFAULTS))
        lineage = Lineage.of("acme", entries, TrustRules())
        for entry in entries:
            lineage.label(entry.entry_id)
            lineage.path(entry.entry_id)

    def judge_writes(content_type: str, data: bytes) -> None:
        found, _ = parse_writes(data, content_type, now_ms=NOW_MS)
        for entry in found:
            text = json.dumps(
                as_record(entry, GuardDecision(allowed=True, reason="no hazard"), NOW_MS), allow_nan=False
            )
            same(str(text.count("\n")), "0")

    ndjson, one = "application/x-ndjson", "application/json"
    single = _json({"tenant": "acme", "entry_id": "a", "request": "q", "response": "r", "metadata": {"k": "v"}})
    return [
        Target(
            name="import lines", decode=lambda data: list(parse_entries(data.split(b"\n"), "f", DEFAULTS)),
            seeds=(entries,), raises=EntryError, shape="json lines",
        ),
        Target(name="lineage", decode=grow, seeds=(entries,), raises=EntryError, shape="json lines"),
        Target(
            name="guard body", decode=lambda data: judge_writes(one, data), seeds=(single,), raises=UsageError,
            shape="json",
        ),
        Target(
            name="guard lines", decode=lambda data: judge_writes(ndjson, data),
            seeds=(single + b"\n" + single.replace(b'"a"', b'"b"'),),
            raises=UsageError, shape="json lines",
        ),
        Target(name="events", decode=read_events, seeds=(events,), raises=EventError, shape="json lines"),
        Target(name="edges", decode=read_edges, seeds=(edges,), raises=UsageError, shape="json lines"),
    ]  # fmt: skip


POLICIES = (
    (
        b"format: memaudit gate policy v1\ntools:\n  pay:\n    intent: [pay]\n    parameters:\n"
        b"      to: {kind: iban, authority: [user]}\n    free: [subject]\n"
    ),
    b"{format: memaudit gate policy v1, tau_ppm: 5, tools: {x: {parameters: {d: {kind: pattern, pattern: '[0-9]+'}}}}}",
    (
        b"format: memaudit gate policy v1\ntrust: {sources: [user], unattributed: external, propagation: strongest}\n"
        b"max_age_s: 5\ntrusted_outputs: [a]\nnames: '[a-z]+[.]txt'\ntools: {x: {mode: coarse}}\n"
    ),
)
WIDE_POLICY = b"""{"format": "memaudit gate policy v1", "tools": {"pay": {"refusal": "repair", "parameters": {
"to": {"kind": "iban", "authority": ["user", "named"]}, "amount": {"kind": "number", "unknown": "allow"},
"mail": {"kind": "email"}, "site": {"kind": "url"}, "on": {"kind": "date"}, "body": {"kind": "prose"},
"title": {"kind": "words"}, "said": {"kind": "quotes"}, "how": {"kind": "choice", "choices": ["now", "later"]},
"id": {"kind": "pattern", "pattern": "[a-z]-[0-9]+", "exclusive": true}}}}}"""


def _gate() -> list[Target]:
    question = {
        "tool": "pay",
        "request": "Pay bill.txt 98.70 to GB29NWBK60161331926819, mail a@b.org, www.b.org, 2026-01-02, now",
        "arguments": {"to": "GB29 NWBK 6016 1331 9268 19", "amount": 98.7, "mail": "a@b.org", "site": "www.b.org",
                      "on": "2026-01-02", "body": "See c@d.org and AB12345", "title": "the bill", "said": "a b c d",
                      "how": "now", "id": "a-1", "other": ["x", {"y": 5}]},
        "outputs": [{"tool": "read", "text": "pay c@d.org 5, a b c d, a-1", "names": ["bill.txt"]}],
        "executed": [{"tool": "pay", "arguments": {"amount": 5}}],
    }  # fmt: skip
    gate = Gate(parse_gate_policy(WIDE_POLICY, "policy"))

    def decide(data: bytes) -> None:
        call, context = parse_question(data, "f")
        decision = gate.decide(call, context, now_ms=NOW_MS)
        json.dumps([finding.value for finding in decision.findings], ensure_ascii=False).encode()

    return [
        Target(
            name="gate policy", decode=lambda data: parse_gate_policy(data, "f"), seeds=POLICIES, raises=UsageError,
            shape="yaml",
        ),
        Target(name="gate question", decode=decide, seeds=(_json(question),), raises=UsageError, shape="json"),
    ]  # fmt: skip
