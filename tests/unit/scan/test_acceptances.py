"""Acceptances are read strictly, and told where they are of no use."""

from __future__ import annotations

import pytest

from memory_audit.errors import UsageError
from memory_audit.scan.acceptances import read_acceptances
from memory_audit.scan.fail_on import parse_fail_on
from tests.unit.scan.test_life import DAY_MS, finding, night

WORD = "reason: documentation\n  by: ana"


def read(text):
    return read_acceptances(text.encode(), "accepted.yaml")


def test_a_fingerprint_accepts_one_finding_and_a_kind_all_of_a_tenant():
    one = read(f"- fingerprint: {finding('a').fingerprint}\n  {WORD}\n")
    assert [one.of(finding(key), 0) is not None for key in "ab"] == [True, False]
    kind = read(f"- kind: chat-tokens\n  tenant: acme\n  {WORD}\n")
    assert kind.of(finding("b"), 0) is not None
    assert kind.of(finding("b", tenant="other"), 0) is None
    entry = read(f"- kind: chat-tokens\n  tenant: acme\n  entry: m-a\n  {WORD}\n")
    assert entry.of(finding("changed", entry_ids=("m-a", "m-b")), 0) is not None
    assert entry.of(finding("b", entry_ids=("m-b", "m-a")), 0) is None


def test_an_acceptance_holds_through_its_last_day():
    accepted = read(f'- fingerprint: {finding().fingerprint}\n  {WORD}\n  until: "1970-01-02"\n')
    assert accepted.of(finding(), 2 * DAY_MS - 1) is not None
    assert accepted.of(finding(), 2 * DAY_MS) is None


def test_an_ended_acceptance_and_one_of_nothing_are_told():
    accepted = read(
        f'- fingerprint: {finding("a").fingerprint}\n  {WORD}\n  until: "1970-01-01"\n'
        f"- kind: chat-tokens\n  tenant: other\n  {WORD}\n"
        f"- kind: chat-tokens\n  tenant: acme\n  entry: m-b\n  {WORD}\n"
    )
    known = night([finding("a"), finding("b")], accepted=accepted)
    ended, nothing = accepted.notes(known, DAY_MS)
    assert ended.endswith("ended on 1970-01-01: it counts no more")
    assert nothing == "the acceptance of chat-tokens of tenant other by ana accepts nothing that was found"


def test_an_empty_file_accepts_nothing():
    assert read("# nothing yet\n").items == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"- fingerprint: 12\n  {WORD}", "expected a fingerprint of 64 hexadecimal digits"),
        (f"- kind: chat-tokens\n  {WORD}", "either a fingerprint, or a kind and a tenant"),
        (f"- tenant: acme\n  {WORD}", "either a fingerprint, or a kind and a tenant"),
        (f"- fingerprint: {'a' * 64}\n  entry: m-1\n  {WORD}", "either a fingerprint, or a kind and a tenant"),
        (f"- kind: a\n  tenant: acme\n  {WORD}\n  severity: low", "unknown field 'severity'"),
        ("- kind: a\n  tenant: acme\n  by: ana", "reason is missing"),
        (f"- kind: a\n  tenant: acme\n  {WORD}\n  until: 2027-01-01", "quote it"),
        (f'- kind: a\n  tenant: acme\n  {WORD}\n  until: "2027-02-30"', "until is '2027-02-30'"),
        (f"- kind: a\n  kind: b\n  tenant: acme\n  {WORD}", "twice"),
        (f"- kind: a\n  tenant: acme\n  {WORD}\n" * 2, "a of tenant acme is accepted twice"),
        ("kind: a", "expected"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(text, told):
    with pytest.raises(UsageError, match=r"^accepted\.yaml: ") as error:
        read(text)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "new:", "new:critical", "fixed", "accepted:high", "new,new:low", "new;known"])
def test_words_that_fail_on_knows_not_are_refused(text):
    with pytest.raises(UsageError, match=r"^--fail-on "):
        parse_fail_on(text)
