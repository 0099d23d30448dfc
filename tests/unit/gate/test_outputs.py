"""Of a tool's output that much is trusted as the policy says, and the rest is external: nothing is both, or lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.gate.call import Context, ToolCall, ToolOutput
from memory_audit.gate.gate import Gate
from memory_audit.gate.gate_policy import TrustedOutput, parse_gate_policy
from memory_audit.gate.outputs import output_texts

OURS, THEIRS = "GB29 NWBK 6016 1331 9268 19", "DE89370400440532013000"
REQUEST = "Please pay the landlord."
POLICY = """
format: memaudit gate policy v1
trusted_outputs:
  - balance
  - {tool: contacts, fields: [iban, owner.iban]}
  - {tool: read_page, domains: [bank.example]}
  - {tool: search, fields: [iban], domains: [bank.example, bank.test]}
tools:
  pay: {parameters: {to: {kind: iban}}}
  wipe: {mode: coarse}
"""


def decided(account, *outputs, tool="pay"):  # noqa: ANN002
    gate = Gate(parse_gate_policy(POLICY.encode(), "policy"))
    call = ToolCall(tool=tool, arguments={"to": account} if tool == "pay" else {})
    return gate.decide(call, Context(request=REQUEST, outputs=outputs), now_ms=0)


def returned(tool, value, **more):  # noqa: ANN003
    return ToolOutput(tool=tool, text=value if isinstance(value, str) else json.dumps(value), **more)


@pytest.mark.parametrize(
    ("output", "verdict"),
    [
        (returned("balance", f"to {OURS}"), "allow"),
        (returned("contacts", [{"iban": OURS, "note": "hello"}]), "allow"),
        (returned("contacts", {"owner": {"iban": [OURS]}}), "allow"),
        (returned("contacts", {"iban": {"main": OURS}}), "allow"),
        (returned("contacts", {"note": OURS}), "deny"),
        (returned("contacts", {"note": {"iban": OURS}}), "deny"),
        (returned("contacts", {"owner": {"note": OURS}}), "deny"),
        (returned("contacts", {"owner.iban": OURS}), "deny"),
        (returned("contacts", json.dumps({"note": f'", "iban": "{OURS}'})), "deny"),
        (returned("contacts", f"iban: {OURS}"), "deny"),
        (returned("contacts", f'{{"iban": "x", "iban": "{OURS}"}}'), "deny"),
        (returned("contacts", f'{{"iban": "{OURS}"'), "deny"),
        (returned("contacts", f'{{"iban": "{OURS} \ud800"}}'), "deny"),
        (returned("read_page", f"to {OURS}", domain="bank.example"), "allow"),
        (returned("read_page", f"to {OURS}", domain="Bank.Example"), "allow"),
        (returned("read_page", f"to {OURS}", domain="pages.bank.example"), "deny"),
        (returned("read_page", f"to {OURS}", domain="notbank.example"), "deny"),
        (returned("read_page", f"from bank.example: to {OURS}"), "deny"),
        (returned("search", {"iban": OURS}, domain="bank.test"), "allow"),
        (returned("search", {"iban": OURS}, domain="shop.test"), "deny"),
        (returned("search", {"iban": OURS}), "deny"),
        (returned("search", {"text": OURS}, domain="bank.test"), "deny"),
        (returned("other", {"iban": OURS}, domain="bank.example"), "deny"),
    ],
)  # fmt: skip
def test_a_value_is_authorised_by_the_part_that_is_listed(output, verdict):
    assert decided(OURS, output).verdict == verdict


def test_the_part_that_is_not_listed_keeps_the_context_from_being_clean():
    assert decided(OURS, returned("contacts", [{"iban": OURS}, {"owner": {"iban": OURS}}]), tool="wipe").call
    assert decided(OURS, returned("contacts", {"iban": OURS, "note": ""}), tool="wipe").verdict == "deny"
    assert decided(OURS, returned("contacts", {"iban": OURS}, names=("a note",)), tool="wipe").verdict == "deny"


def test_a_finding_names_the_field_and_the_decision_what_is_assumed_of_its_tool():
    outputs = returned("contacts", {"iban": OURS, "note": THEIRS}), returned("balance", "0"), returned("other", "x")
    answer = decided(OURS, *outputs)
    assert answer.findings[0].where == "iban of output 1 of contacts"
    assert answer.assumptions == (
        "no outsider can write to iban, owner.iban of what contacts returns",
        "no outsider can write to what balance returns",
    )
    answer = decided(THEIRS, *outputs)
    assert (answer.verdict, answer.findings[0].where) == ("deny", "output 1 of contacts")
    page = returned("search", {"iban": OURS}, domain="bank.test")
    assert decided(OURS, page).assumptions == (
        "no outsider can write to iban of what search returns from bank.example, bank.test",
    )
    assert decided(OURS, returned("read_page", "hello", domain="shop.test")).assumptions == ()


def test_a_record_that_a_listed_field_names_is_named_and_its_own_fields_stay_listed():
    policy = POLICY.replace("kind: iban", "kind: iban, authority: [named]").replace("iban, owner", "file, owner")
    gate = Gate(parse_gate_policy(policy.encode(), "policy"))
    record = returned("contacts", {"note": OURS}, names=("bill_7.txt",))

    def verdict(*outputs):  # noqa: ANN002
        call = ToolCall(tool="pay", arguments={"to": OURS})
        return gate.decide(call, Context(request=REQUEST, outputs=outputs), now_ms=0).verdict

    assert verdict(record) == "deny"
    assert verdict(record, returned("contacts", {"note": "see bill_7.txt"})) == "deny"
    assert verdict(record, returned("contacts", {"file": "bill_7.txt"})) == "allow"


names = st.sampled_from(["a", "b", "c"])
scalars = st.integers(0, 10_000).map(lambda number: f"v{number}")
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=12
)
paths = st.frozensets(st.lists(names, min_size=1, max_size=3).map(".".join), min_size=1, max_size=3)


def leaves(value, path=()):
    """Every scalar, with the names that lead to it."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, path)
    else:
        yield path, value


@given(documents, paths)
def test_every_value_is_in_the_trusted_part_or_in_the_rest_as_its_path_says(document, fields):
    texts = output_texts(returned("t", document), 1, TrustedOutput(tool="t", fields=fields))
    starts = [tuple(field.split(".")) for field in fields]
    for origin, listed in (("tool", True), ("external", False)):
        expected = [value for path, value in leaves(document) if any(path[: len(s)] == s for s in starts) == listed]
        found = " ".join(text.text for text in texts if text.origin == origin)
        assert sorted(word for word in "".join(c if c.isalnum() else " " for c in found).split() if word[0] == "v") == (
            sorted(expected)
        )
