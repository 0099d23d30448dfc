"""What names a record: nothing that a request has anyway, no part of a name, and no name that two records have."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memory_audit.gate.call import Context, ToolCall, ToolOutput
from memory_audit.gate.gate import Gate
from memory_audit.gate.gate_policy import parse_gate_policy
from memory_audit.gate.names import MAX_LOOKED_THROUGH, MAX_NAME_CHARS, MAX_NAMED, named_records
from memory_audit.gate.values import fold

REQUEST = "Please pay the rent for December to the landlord, as bill.txt says. It is due on 2026-12-01, 900 euros."
POLICY = """
format: memaudit gate policy v1
trusted_outputs: [inbox]
tools: {pay: {parameters: {to: {kind: iban, authority: [user, named]}}}}
"""
THEIRS, OURS = "DE89370400440532013000", "GB29NWBK60161331926819"

plain_words = st.from_regex(r"[a-z]{1,12}", fullmatch=True)
requests = st.lists(plain_words, min_size=1, max_size=12).map(" ".join)
file_names = st.from_regex(r"[a-z]{5,8}\.(txt|pdf)", fullmatch=True)


def record(text, *names, tool="read"):  # noqa: ANN002
    return ToolOutput(tool=tool, text=text, names=names)


def named(request, *outputs, pattern=None):  # noqa: ANN002
    return {outputs[place].text for place in named_records(outputs, [fold(request)], pattern)}


def verdict(request, *outputs, policy=POLICY):  # noqa: ANN002
    gate = Gate(parse_gate_policy(policy.encode(), "p"))
    return gate.decide(
        ToolCall(tool="pay", arguments={"to": THEIRS}), Context(request=request, outputs=outputs), now_ms=0
    ).verdict


@pytest.mark.parametrize(
    "name",
    [
        "the", "The", "a", "it", "rent", "the rent", "pay the rent", "landlord", "the landlord", "December",
        "rent for December", "please pay the rent for december to the landlord", "900", "2026-12-01", "900 euros", "",
        " ", ".", "says.", "bill", "txt", "as bill", "says. It",
    ],
)  # fmt: skip
def test_an_article_a_topic_or_a_value_of_the_request_names_no_record(name):
    assert verdict(REQUEST, record(f"The landlord has {THEIRS}.", *filter(None, [name]))) == "deny"


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (REQUEST, "bill.txt"),
        (REQUEST, "BILL.txt"),
        ("Do what INC-4411 says", "INC-4411"),
        ("See www.dora-website.com", "www.dora-website.com"),
        ("Pay as 'December bill.txt' says", "December bill.txt"),
        ("Do it like team_notes", "team_notes"),
        ("As ann@example.org wrote", "ann@example.org"),
        ("Lies 請求書2026.pdf", "請求書2026.pdf"),
    ],
)
def test_the_name_of_one_thing_names_it(request_, name):
    assert verdict(request_, record(f"Pay to {THEIRS}.", name)) == "allow"


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        ("Read about covid-19", "covid-19"),
        ("Go to room 101", "room 101"),
        ("Invite the U.S.A. team", "U.S.A."),
        ("Move it to 10.30am", "10.30am"),
        ("Send 98.70EUR", "98.70EUR"),
        ("Pay DE89 3704 0044 0532 0130 00", "DE89 3704 0044 0532 0130 00"),
        ("Call +44 20 7946 0000", "+44 20 7946 0000"),
        ("Check the follow-up", "follow-up"),
        ("Use my-bill.txt", "bill.txt"),
        ("Use bill.txt.bak", "bill.txt"),
        ("Use docs/bill.txt", "bill.txt"),
        ("Use bill.txt", "b\u200bill.txt"),
        ("Use bill.txt", "bill.tx"),
    ],
)
def test_what_only_looks_like_a_name_or_is_part_of_one_names_nothing(request_, name):
    assert named(request_, record("x", name)) == set()


def test_a_name_that_several_records_have_names_none_of_them():
    ours, theirs = record(f"Pay to {OURS}.", "bill.txt"), record(f"Pay to {THEIRS}.", "Bill.TXT")
    assert verdict(REQUEST, theirs) == "allow"  # what a stranger may name is no authority
    assert verdict(REQUEST, ours, theirs) == "deny"
    assert verdict(REQUEST, theirs, record("Nothing here", "bill.txt", tool="inbox")) == "deny"
    assert named(REQUEST, ours, theirs) == set()


def test_one_record_that_was_read_twice_is_one():
    assert named(REQUEST, *[record("a", "bill.txt")] * 2, record("a", "bill.txt", tool="search")) == {"a"}


def test_a_record_with_a_name_of_its_own_besides_a_shared_one_is_named_by_that():
    assert named("Use bill.txt and notes.pdf", record("a", "bill.txt", "notes.pdf"), record("b", "bill.txt")) == {"a"}


def test_of_two_names_one_within_the_other_neither_names():
    long, short = record("a", "December bill.txt"), record("b", "bill.txt")
    assert named("Pay the December bill.txt", long, short) == set()
    assert named("Pay bill.txt", long, short) == {"b"}
    assert named("Pay the December bill.txt", long) == {"a"}
    assert named("Pay the December bill.txt", record("a", "December bill.txt", "bill.txt")) == {"a"}


def test_a_trusted_text_names_as_the_request_does():
    assert verdict("Pay it", record(f"Pay to {THEIRS}.", "bill.txt"), record("see bill.txt", tool="inbox")) == "allow"
    assert verdict("Pay it", record(f"Pay to {THEIRS}.", "the"), record("see the bill", tool="inbox")) == "deny"


def test_a_text_that_names_more_than_anyone_means_is_a_list():
    many = [record(f"text {number}", f"file{number:04}.txt") for number in range(MAX_NAMED + 1)]
    listing = " ".join(name for output in many for name in output.names)
    assert named(listing, *many) == set()
    assert len(named(listing, *many[:-1])) == MAX_NAMED


def test_more_to_look_through_than_a_decision_may_cost_names_nothing(monkeypatch):
    monkeypatch.setattr("memory_audit.gate.names.MAX_LOOKED_THROUGH", 20)
    assert named("Use bill.txt", record("a", "bill.txt")) == {"a"}
    assert named("Use bill.txt and more", record("a", "bill.txt")) == set()
    assert MAX_LOOKED_THROUGH > 20


def test_a_policy_says_what_names_a_record():
    pattern = re.compile(r"ticket #\d+|the rent")
    texts = record("a", "ticket #12"), record("b", "bill.txt"), record("c", "ticket #1"), record("d", "the rent ")
    long = "x" * (MAX_NAME_CHARS + 1)
    assert named("Close ticket #12, see bill.txt, and the rent", *texts, pattern=pattern) == {"a", "d"}
    assert named(f"see {long}", record("a", long), pattern=re.compile("x+")) == set()
    open_to = POLICY + "names: 'the rent'\n"
    assert verdict(REQUEST, record(f"Pay to {THEIRS}.", "the rent"), policy=open_to) == "allow"
    assert verdict(REQUEST, record(f"Pay to {THEIRS}.", "bill.txt"), policy=open_to) == "deny"


@given(requests, st.data())
def test_no_words_of_a_request_name_a_record(request, data):
    words = request.split()
    start = data.draw(st.integers(0, len(words) - 1))
    end = data.draw(st.integers(start + 1, len(words)))
    name = " ".join(words[start:end])
    shown = data.draw(st.sampled_from([name, name.upper(), name.title(), f" {name} ", f"{name}.", f'"{name}"']))
    assert named(request, record("theirs", shown)) == set()


@st.composite
def contexts(draw):
    """A request that mentions some of a few names, and records that have them, some sharing one."""
    pool = draw(st.lists(file_names, min_size=1, max_size=4, unique=True))
    pool += [f"old {name}" for name in pool]
    mentioned = draw(st.lists(st.sampled_from(pool), max_size=4))
    records = [
        record(f"text {number}", *draw(st.lists(st.sampled_from(pool), max_size=3)))
        for number in range(draw(st.integers(1, 5)))
    ]
    return "use " + " and ".join(mentioned), records


@given(contexts(), st.randoms(use_true_random=False))
def test_the_order_of_the_outputs_does_not_count(context, random):
    request, records = context
    shuffled = records.copy()
    random.shuffle(shuffled)
    assert named(request, *shuffled) == named(request, *records)


@given(contexts(), contexts())
def test_another_record_names_no_record_that_was_there(context, other):
    request, records = context
    more = [record(f"more {output.text}", *output.names) for output in other[1]]
    assert named(request, *records, *more) & {output.text for output in records} <= named(request, *records)


@given(contexts())
def test_every_named_record_has_a_name_in_the_request_that_no_other_has(context):
    request, records = context
    for text in named(request, *records):
        names = {name for output in records if output.text == text for name in output.names if name in request}
        others = {name for output in records if output.text != text for name in output.names}
        assert names - others


@given(contexts(), st.data())
def test_a_stranger_with_the_same_name_is_never_named_by_it(context, data):
    request, records = context
    known = [name for output in records for name in output.names]
    assume(known)
    assert "stranger" not in named(request, *records, record("stranger", data.draw(st.sampled_from(known))))
