"""What people write for MemAudit: whatever is wrong with it is refused before anything starts, in one line, exit 2."""

from __future__ import annotations

import json

import pytest

from memory_audit.config import AuditConfig, load_config
from memory_audit.errors import UsageError
from tests.unit.jobs.test_cli import CONFIG, event, memories, never, one_line, write_lines

EDGE = {"tenant": "acme", "child": "m1", "parent": "m0", "weight": 0.5}
POLICY = "format: memaudit gate policy v1\ntools: {pay: {parameters: {to: {kind: text}}}}\n"
TAXONOMY = "{name: a, version: 1, labels: [{name: b, definition: c, positive: d, negative: e}]}"
CALL = {"tool": "pay", "arguments": {"to": "Ann"}}

AUDIT = ("audit", "store", "--events", "events.jsonl", "--out", "run", "--local", "--quiet")
COMMANDS = {
    "memaudit.yaml": AUDIT,
    "events.jsonl": AUDIT,
    "edges.jsonl": (*AUDIT, "--edges", "edges.jsonl"),
    "taxonomy.yaml": ("forget", "store", "m0", "--tenant", "acme", "--reason", "r", "--taxonomy", "taxonomy.yaml"),
    "memories.jsonl": ("import", "jsonl:memories.jsonl", "other"),
    "writes.jsonl": ("guard", "check", "writes.jsonl", "store"),
    "gate.yaml": ("gate", "explain", "store", "--tenant", "acme", "--entry", "m0", "--policy", "gate.yaml"),
    "call.json": ("gate", "explain", "store", "--tenant", "acme", "--call", "call.json", "--policy", "gate.yaml"),
}
"""File to the command that reads it."""


@pytest.fixture
def desk(folder, monkeypatch, set_up):
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "gate.yaml").write_text(POLICY, encoding="utf-8")
    write_lines(folder / "memories.jsonl", memories())
    write_lines(folder / "events.jsonl", [event()])
    set_up(("keys", "new"), ("import", "jsonl:memories.jsonl", "store"))
    monkeypatch.setattr("memory_audit.jobs.cli.forget._block_records", never)
    return folder


def line(record, **changes):  # noqa: ANN003
    return json.dumps(record | changes)


def twice(record, name):
    """Write a record in which one member is there twice, with the first value as it should be."""
    return f"{json.dumps(record)[:-1]}, {json.dumps(name)}: {json.dumps(record[name])}}}"


def few_shot(text):
    return f"{CONFIG}agent: {{kind: few-shot, system: s, {text}}}"


def harm(text):
    return CONFIG.replace("harm: {kind: regex, pattern: HARM}", f"harm: {{{text}}}")


MEMORY, EVENT = memories()[0], event()

MALFORMED = [
    # a member that is there twice
    ("memaudit.yaml", f"{CONFIG}k: 5\nk: 5", "a member is there twice near line 6: 'k'"),
    ("memaudit.yaml", few_shot("system: s"), "a member is there twice near line 5: 'system'"),
    ("gate.yaml", f"{POLICY}tools: {{}}", "a member is there twice near line 3: 'tools'"),
    ("taxonomy.yaml", TAXONOMY.replace("version: 1", "version: 1, version: 1"), "a member is there twice"),
    ("events.jsonl", twice(EVENT, "query"), "events.jsonl, line 1: a member is there twice: 'query'"),
    ("events.jsonl", twice(EVENT, "harm"), "events.jsonl, line 1: a member is there twice: 'harm'"),
    (
        "events.jsonl", line(EVENT).replace('{"label"', '{"label": "benign", "label"'),
        "line 1: a member is there twice: 'label'",
    ),
    ("edges.jsonl", f"{line(EDGE)}\n{twice(EDGE, 'weight')}", "edges.jsonl, line 2: a member is there twice: 'weight'"),
    ("memories.jsonl", twice(MEMORY, "response"), "memories.jsonl, line 1: a member is there twice: 'response'"),
    ("writes.jsonl", twice(MEMORY, "response"), "writes.jsonl, line 1: a member is there twice: 'response'"),
    ("call.json", twice(CALL, "arguments"), "call.json: a member is there twice: 'arguments'"),
    # a name that says nothing
    ("memaudit.yaml", f"{CONFIG}trust: {{sorces: [user]}}", "memaudit.yaml: trust: unknown field 'sorces'"),
    ("memaudit.yaml", few_shot("max_token: 5"), "memaudit.yaml: agent 'few-shot': 'max_token' is no field of it"),
    ("memaudit.yaml", harm("kind: regex, patern: x"), "memaudit.yaml: harm scorer 'regex': 'pattern' is missing, 'pat"),
    ("memaudit.yaml", harm("pattern: x"), "memaudit.yaml: no harm scorer"),
    ("memaudit.yaml", f"{CONFIG}kk: 5", "memaudit.yaml: unknown option 'kk'"),
    ("gate.yaml", f"{POLICY}trusted_output: [a]", "gate.yaml: unknown field 'trusted_output'"),
    ("gate.yaml", f"{POLICY}trust: {{principal: [a]}}", "gate.yaml: trust: unknown field 'principal'"),
    ("taxonomy.yaml", TAXONOMY.replace("negative: e", "negative: e, threshold: 1"), "unknown field 'threshold'"),
    ("events.jsonl", line(EVENT, harm={"label": "harmful", "sorce": "x"}), "unknown field 'sorce' of harm; known are"),
    ("edges.jsonl", line(EDGE, wieght=1), "edges.jsonl, line 1: unknown field 'wieght'"),
    ("memories.jsonl", line(MEMORY, parent=[]), "memories.jsonl, line 1: unknown field 'parent'"),
    ("writes.jsonl", line(MEMORY, label="ok"), "writes.jsonl, line 1: unknown field 'label'"),
    ("call.json", line(CALL, argument={}), "call.json: unknown field 'argument'"),
    # numbers out of range
    ("memaudit.yaml", few_shot("max_tokens: 0"), "memaudit.yaml: agent 'few-shot': max_tokens is 0, expected 1 to"),
    ("memaudit.yaml", few_shot("max_tokens: -1"), "max_tokens is -1, expected 1 to 1048576"),
    ("memaudit.yaml", few_shot(f"max_tokens: {1 << 40}"), "max_tokens is 1099511627776, expected 1 to"),
    ("memaudit.yaml", few_shot("max_tokens: true"), "max_tokens is True, expected a whole number"),
    ("memaudit.yaml", few_shot("max_tokens: 8.0"), "max_tokens is 8.0, expected a whole number"),
    ("memaudit.yaml", few_shot("temperature: -0.1"), "temperature is -0.1, expected 0 to 2"),
    ("memaudit.yaml", few_shot("temperature: 1.0e+300"), "not finite or beyond 64 bits"),
    ("memaudit.yaml", few_shot("temperature: .nan"), "not finite or beyond 64 bits"),
    ("memaudit.yaml", few_shot("temperature: 100"), "temperature is 100, expected 0 to 2"),
    ("memaudit.yaml", few_shot('stop: [""]'), "stop holds an empty text"),
    (
        "memaudit.yaml", f'{CONFIG}agent: {{kind: template, template: "{{memories}}", max_tokens: 0}}',
        "memaudit.yaml: agent 'template': max_tokens is 0",
    ),
    ("memaudit.yaml", harm("kind: judge, question: q, max_characters: 0"), "max_characters is 0, expected 1 to"),
    ("memaudit.yaml", harm('kind: judge, question: " "'), "the judge's question is empty"),
    ("memaudit.yaml", harm('kind: regex, pattern: ""'), "the harm pattern is empty"),
    ("memaudit.yaml", harm("kind: answer-label, labels: []"), "harm labels are none"),
    ("memaudit.yaml", harm('kind: answer-label, labels: [A], victim: ""'), "the victim pattern is empty"),
    ("memaudit.yaml", f'{CONFIG}probe_pattern: ""', "memaudit.yaml: probe_pattern is ''"),
    ("memaudit.yaml", f"{CONFIG}k: 0", "memaudit.yaml: k is 0, expected a whole number from 1 to"),
    ("memaudit.yaml", f"{CONFIG}k: true", "memaudit.yaml: k is True, expected a whole number"),
    ("memaudit.yaml", f"{CONFIG}k: {1 << 60}", "memaudit.yaml: k is 1152921504606846976, expected a whole number"),
    ("memaudit.yaml", f"{CONFIG}seed: {1 << 31}", "memaudit.yaml: seed is 2147483648, expected a whole number"),
    ("memaudit.yaml", f"{CONFIG}budget: -1", "memaudit.yaml: budget is -1, expected a whole number from 0"),
    ("memaudit.yaml", f"{CONFIG}alpha: 1.5", "memaudit.yaml: alpha is 1.5, expected a number from 0 to 1"),
    ("memaudit.yaml", f"{CONFIG}attribution_nats: .inf", "not finite or beyond 64 bits"),
    ("memaudit.yaml", f"{CONFIG}tau: -1", "memaudit.yaml: tau is -1, expected a number from 0 to 1"),
    ("edges.jsonl", line(EDGE, weight=True), "edges.jsonl, line 1: weight is True"),
    ("edges.jsonl", line(EDGE).replace("0.5", "NaN"), "edges.jsonl, line 1: NaN is not a JSON number"),
    ("edges.jsonl", line(EDGE, evidence={"nli": 1}).replace("1}", "1e999}"), "1e999 is no number that a float holds"),
    ("events.jsonl", line(EVENT, cost=1).replace('"cost": 1', '"cost": -Infinity'), "-Infinity is not a JSON number"),
    ("events.jsonl", line(EVENT, ts_ms=True), "ts_ms is True, expected a whole number"),
    ("memories.jsonl", line(MEMORY, created_at_ms=-1), "created_at_ms is -1, expected a whole number"),
    ("memories.jsonl", line(MEMORY, parents=[["m0", True]]), "parents[0][1] is True, expected a number from 0 to 1"),
    ("gate.yaml", f"{POLICY}tau_ppm: 1000001", "gate.yaml: tau_ppm is 1000001, expected a whole number from 0"),
    ("gate.yaml", f"{POLICY}max_age_s: true", "gate.yaml: max_age_s is True, expected a whole number"),
    ("taxonomy.yaml", TAXONOMY.replace("version: 1", "version: 0"), "version is 0, expected a whole number from 1"),
    # other types
    ("memaudit.yaml", f"{CONFIG}trust: [user]", "memaudit.yaml: trust is ['user'], expected a mapping"),
    ("memaudit.yaml", f"{CONFIG}agent: few-shot", "memaudit.yaml: agent is 'few-shot', expected"),
    ("memaudit.yaml", f"{CONFIG}agent: {{kind: [few-shot]}}", "is neither a built-in name nor an import path"),
    ("events.jsonl", line(EVENT, harm={"label": "harmful", "source": ["x"]}), "harm.source is ['x'], expected text"),
    ("events.jsonl", line(EVENT, harm="harmful"), "harm is 'harmful', expected an object with label, source"),
    ("events.jsonl", line(EVENT, retrieved="m0"), "retrieved is 'm0', expected a list of texts"),
    ("events.jsonl", "[]", "events.jsonl, line 1: expected an object with event_id"),
    ("edges.jsonl", "5", "edges.jsonl, line 1: expected an object with"),
    ("edges.jsonl", line(EDGE, evidence=[]), "edges.jsonl, line 1: evidence is [], expected a mapping"),
    ("gate.yaml", POLICY.replace("kind: text", 'kind: pattern, pattern: ""'), "to: pattern is empty"),
    # half a text
    ("events.jsonl", line(EVENT, note="\ud800"), "events.jsonl, line 1: not valid Unicode"),
    ("edges.jsonl", '{"tenant": "acme"', "edges.jsonl, line 1: not JSON"),
    ("call.json", "[" * 5_000, "call.json: not JSON"),
    ("events.jsonl", line(EVENT, deep=0).replace("0}", "[" * 200 + "]" * 200 + "}"), "more than 100 levels of JSON"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "message"), MALFORMED, ids=[f"{name}: {message}" for name, _, message in MALFORMED]
)
def test_a_malformed_input_is_refused_before_anything_starts(desk, run, name, text, message):
    before = {path for path in desk.rglob("*") if "state" not in path.parts}
    (desk / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    code, out, err = run(*COMMANDS[name], start=never)
    assert (code, out) == (2, "")
    assert message in one_line(err)
    assert name in err
    assert {path for path in desk.rglob("*") if "state" not in path.parts} <= before | {desk / name}


def test_a_flag_is_named_as_such_beside_a_file(tmp_path):
    path = tmp_path / "memaudit.yaml"
    path.write_text("k: 3\ntau: 0.5\n", encoding="utf-8")
    for flags, message in (
        ({"k": 0}, "command line: k is 0, expected a whole number from 1 to 10,000,000"),
        ({"alpha": "x"}, "command line: alpha is 'x', expected a number from 0 to 1"),
        ({"alpha": float("nan")}, "command line: alpha is nan, expected a number from 0 to 1"),
    ):
        with pytest.raises(UsageError) as refused:
            load_config(path, flags)
        assert str(refused.value) == message
    path.write_text("k: 0\n", encoding="utf-8")
    assert load_config(path, {"k": 4}) == AuditConfig(k=4)
