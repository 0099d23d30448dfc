"""The gate policy file: what it says is what is enforced, and nothing unread gets by."""

import pytest

from memory_audit.errors import UsageError
from memory_audit.gate.gate_policy import TrustedOutput, load_gate_policy, parse_gate_policy
from memory_audit.lineage.dag import DEFAULT_TAU_PPM
from memory_audit.lineage.trust import TrustRules

HEAD = "format: memaudit gate policy v1\n"
FULL = (
    HEAD
    + """
tau_ppm: 350000
max_age_s: 60
trust: {sources: [user], principals: [alice], except_principals: [bob], unattributed: trusted, propagation: strongest}
names: '[a-z]+[.]pdf'
trusted_outputs: [balance, {tool: contacts, fields: [iban]}, {tool: page, domains: [bank.example]}]
tools:
  pay:
    mode: authority
    refusal: repair
    intent: [pay]
    parameters:
      to: {kind: iban, authority: [user]}
      room: {kind: choice, choices: [red, blue]}
      invoice: {kind: pattern, pattern: 'INV-\\d+'}
    free: [subject]
  wipe: {mode: coarse}
"""
)


def test_every_member_is_read():
    policy = parse_gate_policy(FULL.encode(), "p")
    assert (policy.tau_ppm, policy.max_age_s) == (350_000, 60)
    assert policy.trusted_outputs == {
        "balance", TrustedOutput(tool="contacts", fields=frozenset({"iban"})),
        TrustedOutput(tool="page", domains=frozenset({"bank.example"})),
    }  # fmt: skip
    assert policy.trust == TrustRules(
        sources=frozenset({"user"}), principals=frozenset({"alice"}), except_principals=frozenset({"bob"}),
        unattributed="trusted", propagation="strongest",
    )  # fmt: skip
    assert policy.names.fullmatch("bill.pdf")
    pay = policy.tools["pay"]
    assert (pay.mode, pay.refusal, pay.intent, policy.tools["wipe"].mode) == ("authority", "repair", ("pay",), "coarse")
    assert (pay.rule("to").kind, pay.rule("to").authority) == ("iban", ("user",))
    assert pay.rule("room").choices == ("red", "blue")
    assert pay.rule("invoice").pattern.fullmatch("INV-7")
    assert pay.rule("subject") is None
    assert pay.rule("forgotten").kind == "text"


def test_defaults_and_json():
    policy = parse_gate_policy(b'{"format": "memaudit gate policy v1", "tools": {"x": {"free": ["*"]}}}', "p")
    assert (policy.tau_ppm, policy.max_age_s, policy.trust) == (DEFAULT_TAU_PPM, None, TrustRules())
    assert policy.names is None
    assert policy.tools["x"].rule("anything") is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "expected a mapping"),
        ("[1]", "expected a mapping"),
        ("tools: {x: {}}", "not a gate policy"),
        ("format: v2\ntools: {x: {}}", "not a gate policy"),
        (HEAD, "tools must name 1 to"),
        (HEAD + "tools: {}", "tools must name 1 to"),
        (HEAD + "tools: {x: {}}\ntau: 3", "unknown field 'tau'"),
        (HEAD + "tools: {x: {}}\ntau_ppm: 0.2", "tau_ppm is 0.2, expected a whole number from 0 to 1,000,000"),
        (HEAD + "tools: {x: {}}\ntau_ppm: true", "tau_ppm is True, expected a whole number"),
        (HEAD + "tools: {x: {}}\ntau_ppm: 1000001", "tau_ppm is 1000001, expected a whole number"),
        (HEAD + "tools: {x: {}}\nnames: '('", "gate.yaml: names '(' is not a regular expression"),
        (HEAD + "tools: {x: {}}\nnames: [a]", "gate.yaml: names ['a'] is not a regular expression"),
        (HEAD + "tools: {x: {}}\nnames:", "gate.yaml: names has no value"),
        (HEAD + "tools: {x: {}}\nmax_age_s:", "gate.yaml: max_age_s has no value"),
        (HEAD + "tools: {x: {}}\nmax_age_s: -1", "max_age_s is -1, expected a whole number"),
        (HEAD + "tools: {x: {}}\ntrust: {sources: [web]}", "trust: sources[0] is 'web', expected one of user"),
        (HEAD + "tools: {x: {}}\ntrust: {principals: [12]}", "trust: principals[0] is 12, expected text"),
        (HEAD + "tools: {x: {}}\ntrust: {unattributed: maybe}", "expected one of trusted, external"),
        (HEAD + "tools: {x: {mode: strict}}", "mode is 'strict', expected one of coarse, authority"),
        (HEAD + "tools: {x: {mode: coarse, free: [a]}}", "mode coarse looks at no parameter"),
        (HEAD + "tools: {x: {parameters: {a: {kind: phone}}}}", "kind is 'phone', expected one of text"),
        (HEAD + "tools: {x: {parameters: {a: {authority: []}}}}", "authority must be some of"),
        (HEAD + "tools: {x: {parameters: {a: {authority: [external]}}}}", "'external', expected one of user"),
        (HEAD + "tools: {x: {parameters: {a: {kind: pattern, pattern: '('}}}}", "not a regular expression"),
        (HEAD + "tools: {x: {parameters: {a: {kind: pattern}}}}", "a pattern belongs to kind pattern, which needs one"),
        (HEAD + "tools: {x: {parameters: {a: {pattern: b}}}}", "a pattern belongs to kind pattern"),
        (HEAD + "tools: {x: {parameters: {a: {kind: choice}}}}", "choices belong to kind choice, which needs some"),
        (HEAD + "tools: {x: {parameters: {a: {choices: [b]}}}}", "choices belong to kind choice"),
        (HEAD + "tools: {x: {parameters: {a: {}}, free: [a]}}", "is both sensitive and free"),
        (HEAD + "tools: {x: {free: [a, a]}}", "different texts"),
        (HEAD + "tools: {'*': {mode: coarse}}", "tools: '*' stands for all only in free and principals"),
        (HEAD + "tools: {x: {parameters: {'*': {authority: [user]}}}}", "x: parameters: '*' stands for all only"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: ['*']", "trusted_outputs: '*' stands for all only"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [12]", "trusted_outputs[0] is 12, expected text"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: {a: b}", "trusted_outputs is {'a': 'b'}, expected a list"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [{tool: a}]", "'a' has neither fields nor domains"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [{tool: a, fields: []}]", "fields is [], expected a list"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [{tool: a, fields: [b], domains: []}]", "domains is [], expected"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [{tool: a, field: [b]}]", "unknown field 'field'"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [{fields: [b]}]", "trusted_outputs: tool is missing"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [{tool: '*', fields: [b]}]", "'*' stands for all only"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [{tool: a, fields: ['*']}]", "'*' names no member of an object"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [{tool: a, fields: [b..c]}]", "'b..c' names no member"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [{tool: a, domains: ['https://b.c']}]", "is no host name in lower"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [{tool: a, domains: [Bank.example]}]", "is no host name in lower"),
        (HEAD + "tools: {x: {}}\ntrusted_outputs: [a, {tool: a, fields: [b]}]", "a tool is listed twice"),
        (HEAD + "tools: {x: {}}\ntrust: {except_principals: ['*']}", "except_principals: '*' stands for all only"),
        (HEAD + "tools: {'x ': {}}", "tools: 'x ' begins or ends with a blank"),
        (HEAD + "tools: {x: {parameters: {' a': {}}}}", "parameters: ' a' begins or ends with a blank"),
        (HEAD + "tools: {x: {}, x: {mode: coarse}}", "a member is there twice"),
        (HEAD + "tools: &t {x: {}}\ntrust: *t", "aliases are not allowed"),
        (HEAD + "tools: {x: !!python/object:os.system {}}", "not valid YAML"),
        (HEAD + "tools: {x", "not valid YAML"),
        ("\xff", "expected a mapping"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line_that_names_the_file(text, error):
    with pytest.raises(UsageError) as raised:
        parse_gate_policy(text.encode(), "gate.yaml")
    assert str(raised.value).startswith("gate.yaml")
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_bytes_that_are_no_text_or_too_many_are_refused():
    with pytest.raises(UsageError, match="not valid YAML"):
        parse_gate_policy(b"\xff\xfe\xfa", "p")
    with pytest.raises(UsageError, match="at most 1048576 bytes"):
        parse_gate_policy(b" " * (1 << 20) + b"x", "p")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"absent\.yaml: cannot be read"):
        load_gate_policy(tmp_path / "absent.yaml")
