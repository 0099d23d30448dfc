"""Base labels: both the source and the principal must be trusted, and no recorded origin is no good origin."""

import pytest

from audit.lineage.trust import TrustRules
from tests.unit.lineage.worlds import entry


@pytest.mark.parametrize(
    ("source", "label"), [("user", "trusted"), ("agent", "external"), ("tool", "external"), ("external", "external")]
)
def test_by_default_users_are_trusted_and_an_agent_only_for_what_it_can_account_for(source, label):
    assert TrustRules().base_label(entry("e", source=source)) == label


def test_an_agents_entry_with_parents_is_trusted_by_itself():
    assert TrustRules().base_label(entry("e", ("p", 0))) == "trusted"


def test_an_agent_that_records_everything_may_be_taken_at_its_word():
    assert TrustRules(unattributed="trusted").base_label(entry("e")) == "trusted"


def test_a_trusted_source_does_not_help_a_stranger():
    rules = TrustRules(principals=frozenset({"alice"}))
    assert rules.base_label(entry("e", source="user", principal="alice")) == "trusted"
    assert rules.base_label(entry("e", source="user", principal="mallory")) == "external"


def test_an_excepted_principal_is_external_where_all_others_are_trusted():
    rules = TrustRules(except_principals=frozenset({"mallory"}))
    assert rules.base_label(entry("e", source="user", principal="mallory")) == "external"


def test_distrust_says_why():
    assert TrustRules().distrust(entry("e", source="tool")) == "source tool is not trusted"
    assert TrustRules().distrust(entry("e")) == "the agent recorded no parents for it"
    assert TrustRules().distrust(entry("e", source="user")) is None
