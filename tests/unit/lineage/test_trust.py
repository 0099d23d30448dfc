"""Base labels: both the source and the principal must be trusted, and no recorded origin is no good origin."""

import pytest

from memory_audit.errors import UsageError
from memory_audit.gate.gate_policy import parse_gate_policy
from memory_audit.lineage.trust import DEFAULT_TAU_PPM, TrustRules, parse_trust_rules
from tests.unit.lineage.worlds import entry


def base_label(rules, item, tau_ppm=DEFAULT_TAU_PPM):
    """Label of an entry as if it had no ancestors."""
    return "trusted" if rules.distrust(item, tau_ppm) is None else "external"


@pytest.mark.parametrize(
    ("source", "label"), [("user", "trusted"), ("agent", "external"), ("tool", "external"), ("external", "external")]
)
def test_by_default_users_are_trusted_and_an_agent_only_for_what_it_can_account_for(source, label):
    assert base_label(TrustRules(), entry("e", source=source)) == label


@pytest.mark.parametrize(
    ("parents", "label"),
    [
        ([("p", 1_000_000)], "trusted"),
        ([("p", 800_001)], "trusted"),
        ([("p", 800_000)], "external"),
        ([("p", 0)], "external"),
        ([("p", 1)], "external"),
        ([("p", 400_000), ("q", 400_001)], "trusted"),
        ([("p", 1_000_000), ("q", 1_000_000)], "trusted"),
    ],
)
def test_an_agents_entry_is_trusted_by_itself_where_its_parents_account_for_it(parents, label):
    assert base_label(TrustRules(), entry("e", *parents)) == label
    assert base_label(TrustRules(unattributed="trusted"), entry("e", *parents)) == "trusted"
    assert base_label(TrustRules(), entry("e", *parents, source="user")) == "trusted"


def test_how_much_may_be_unrecorded_follows_the_threshold():
    rules, half = TrustRules(), entry("e", ("p", 500_000))
    assert [base_label(rules, half, tau) for tau in (0, 500_000, 500_001)] == ["external", "external", "trusted"]
    assert base_label(rules, entry("e", ("p", 1_000_000)), 0) == "trusted"
    assert base_label(rules, entry("e", ("p", 0)), 1_000_000) == "external"


def test_an_agent_that_records_everything_may_be_taken_at_its_word():
    assert base_label(TrustRules(unattributed="trusted"), entry("e")) == "trusted"


def test_a_trusted_source_does_not_help_a_stranger():
    rules = TrustRules(principals=frozenset({"alice"}))
    assert base_label(rules, entry("e", source="user", principal="alice")) == "trusted"
    assert base_label(rules, entry("e", source="user", principal="mallory")) == "external"


def test_an_excepted_principal_is_external_where_all_others_are_trusted():
    rules = TrustRules(except_principals=frozenset({"mallory"}))
    assert base_label(rules, entry("e", source="user", principal="mallory")) == "external"


def test_distrust_says_why():
    assert TrustRules().distrust(entry("e", source="tool")) == "source tool is not trusted"
    assert TrustRules().distrust(entry("e")) == "the agent recorded no parents for it"
    assert TrustRules().distrust(entry("e", ("p", 0))) == "the agent recorded no parents for it that weigh anything"
    assert TrustRules().distrust(entry("e", ("p", 250_000))) == "the agent recorded parents for 0.25 of it alone"
    assert TrustRules().distrust(entry("e", ("p", 250_000)), 800_000) is None
    assert TrustRules().distrust(entry("e", source="user")) is None


def test_a_block_is_read_and_what_it_leaves_out_is_the_default():
    block = {"sources": ["user"], "except_principals": ["bot"], "unattributed": "trusted", "propagation": "strongest"}
    assert parse_trust_rules(block, "x") == TrustRules(
        sources=frozenset({"user"}), except_principals=frozenset({"bot"}), unattributed="trusted",
        propagation="strongest",
    )  # fmt: skip
    assert parse_trust_rules({}, "x") == TrustRules()
    assert parse_trust_rules({"principals": ["alice"], "sources": []}, "x") == TrustRules(
        sources=frozenset(), principals=frozenset({"alice"})
    )


def test_a_name_is_compared_in_the_form_that_entries_have():
    rules = parse_trust_rules({"except_principals": ["Jose\u0301"]}, "x")
    assert base_label(rules, entry("e", source="user", principal="Jos\u00e9")) == "external"


TWICE = "must be a list of at most 10000 different texts"
FIELDS = "sources, principals, except_principals, unattributed, propagation"
KNOWN = f"known are {FIELDS}"
WRONG = [
    ([], "x: expected a mapping of at most 10000 names to values"),
    ({"sorces": []}, f"x: unknown field 'sorces'; {KNOWN}"),
    ({7: []}, f"x: expected an object with {FIELDS}"),
    ({"sources": "user"}, "x: sources is 'user', expected a list"),
    ({"sources": None}, "x: sources has no value"),
    ({"sources": ["web"]}, "x: sources[0] is 'web', expected one of user, agent, tool, external"),
    ({"principals": [12]}, "x: principals[0] is 12, expected text, not empty"),
    ({"principals": [["a"]]}, "x: principals[0] is ['a'], expected text, not empty"),
    ({"except_principals": [""]}, "x: except_principals[0] is '', expected text, not empty"),
    ({"except_principals": ["*"]}, "x: except_principals: '*' stands for all only in principals: name each one"),
    ({"except_principals": ["bob "]}, "x: except_principals: 'bob ' begins or ends with a blank"),
    ({"principals": ["Jos\u00e9", "Jose\u0301"]}, f"x: principals {TWICE}"),
    ({"principals": ["a", "a"]}, f"x: principals {TWICE}"),
    ({"unattributed": "maybe"}, "x: unattributed is 'maybe', expected one of trusted, external"),
    ({"unattributed": ["trusted"]}, "x: unattributed is ['trusted'], expected one of trusted, external"),
    ({"propagation": "paper"}, "x: propagation is 'paper', expected one of shares, strongest"),
    ({"propagation": None}, "x: propagation has no value"),
]


@pytest.mark.parametrize(("block", "message"), WRONG)
def test_what_is_wrong_with_a_block_is_said_in_one_line(block, message):
    with pytest.raises(UsageError) as caught:
        parse_trust_rules(block, "x")
    assert str(caught.value) == message


def test_a_gate_policy_says_it_in_the_same_words():
    text = "format: memaudit gate policy v1\ntools: {pay: {}}\ntrust: {unattributed: maybe}"
    with pytest.raises(UsageError) as caught:
        parse_gate_policy(text.encode(), "gate.yaml")
    wrong = "unattributed is 'maybe', expected one of trusted, external"
    assert str(caught.value) == f"gate.yaml: trust: {wrong}"


def test_a_long_list_is_refused():
    with pytest.raises(UsageError, match="at most 10000"):
        parse_trust_rules({"principals": [str(number) for number in range(10_001)]}, "x")
