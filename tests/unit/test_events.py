"""Events as JSON lines: round trip, and one clear line for each way to be wrong."""

from __future__ import annotations

import json
import pickle
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import EventError
from memory_audit.events import MAX_LINE_BYTES, MAX_RETRIEVED, Event, parse_events

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NAME = TEXT.map(lambda text: unicodedata.normalize("NFC", text))
EVENTS = st.builds(
    Event,
    event_id=NAME,
    tenant=NAME,
    ts_ms=st.integers(0, 2**53),
    query=TEXT,
    output=TEXT,
    retrieved=st.none() | st.lists(NAME, unique=True, max_size=4).map(tuple),
    harm=st.sampled_from(["harmful", "benign"]),
    harm_source=TEXT,
    extra=st.dictionaries(st.sampled_from(["trace_id", "session", "model"]), st.none() | st.integers() | TEXT),
)
GOOD = {"event_id": "e1", "tenant": "t", "ts_ms": 5, "query": "q", "output": "y", "harm": {"label": "harmful"}}


def line(**changes):  # noqa: ANN003
    return json.dumps({name: value for name, value in (GOOD | changes).items() if value != "ABSENT"}).encode() + b"\n"


def parse(*lines):  # noqa: ANN002
    return list(parse_events(lines, "events.jsonl"))


@given(st.lists(EVENTS, max_size=4, unique_by=lambda event: event.event_id))
def test_events_come_back_as_they_were_written(events):
    raw = "".join(f"{event.to_json()}\n" for event in events).encode()
    assert parse(*raw.splitlines(keepends=True)) == events


@given(EVENTS)
def test_one_event_is_one_line(event):
    assert len(event.to_json().encode().splitlines()) == 1


@given(EVENTS)
def test_events_survive_the_way_between_processes(event):
    assert pickle.loads(pickle.dumps(event)) == event  # noqa: S301 - our own bytes


def test_names_are_spelled_as_in_the_store():
    (event,) = parse(line(event_id="caf\u0065\u0301", tenant="me\u0301", retrieved=["me\u0301mo-1"]))
    assert (event.event_id, event.tenant, event.retrieved) == ("caf\u00e9", "m\u00e9", ("m\u00e9mo-1",))
    with pytest.raises(EventError, match="names an entry twice"):
        parse(line(retrieved=["\u00e9", "e\u0301"]))


def test_blank_lines_are_skipped_and_still_counted():
    assert [event.event_id for event in parse(line(), b"\n", b"  \n", line(event_id="e2"))] == ["e1", "e2"]
    with pytest.raises(EventError, match=r"events\.jsonl, line 3: not JSON"):
        parse(line(), b"\n", b"{")


def test_the_mark_that_windows_writes_before_a_file_is_no_part_of_its_first_line():
    assert [event.event_id for event in parse("\ufeff".encode() + line())] == ["e1"]


def test_what_the_log_does_not_say_is_none_and_not_empty():
    assert parse(line())[0].retrieved is None
    assert parse(line(retrieved=[]))[0].retrieved == ()


def test_characters_beyond_the_basic_plane_may_be_spelled_as_pairs():
    assert parse(line(query="\U0001f600"))[0].query == "\U0001f600"


def test_fields_of_others_are_kept():
    assert parse(line(trace_id="abc"))[0].extra == {"trace_id": "abc"}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{not json}\n", "not JSON"),
        (b'{"event_id": "e1", "tenant": "\xff"}\n', "not valid UTF-8 at byte 30"),
        (b"[1]\n", "expected an object with event_id, tenant"),
        (b"5\n", "expected an object with event_id, tenant"),
        (b"[" * 100_000, "not JSON"),
        (b'{"n": ' + b"1" * 5_000 + b"}", "not JSON"),
        (b" " * (10 << 20) + b"\n", f"10485761 bytes, at most {MAX_LINE_BYTES} are allowed in one event"),
        (line(query="q" * 70_000), "query is longer than 65536 bytes"),
        (line(event_id=""), "event_id is '', expected text, not empty"),
        (line(tenant=7), "tenant is 7, expected text"),
        (line(query="ABSENT"), "query is missing"),
        (line(output=None), "output is None, expected text"),
        (line(harm="harmful"), "harm is 'harmful', expected an object with label, source"),
        (line(harm={"label": "bad"}), "harm.label is 'bad', expected one of harmful, benign"),
        (line(harm={"label": ["harmful"]}), "harm.label is ['harmful'], expected one of harmful, benign"),
        (line(harm={"label": "benign", "note\n": "x"}), r"unknown field 'note\n' of harm; known are label, source"),
        (line(harm="ABSENT"), "harm is missing"),
        (line(ts_ms=1.5), "expected a whole number of 0 or more"),
        (line(ts_ms=True), "expected a whole number of 0 or more"),
        (line(ts_ms=-1), "expected a whole number of 0 or more"),
        (line(retrieved="m1"), "retrieved is 'm1', expected a list of texts"),
        (line(retrieved=["m1", 2]), "retrieved[1] is 2, expected text"),
        (line(retrieved=["m1", "m1"]), "names an entry twice"),
        (
            line(retrieved=[str(n) for n in range(MAX_RETRIEVED + 1)]),
            f"expected a list of texts, 0 to {MAX_RETRIEVED:,}",
        ),
        (line(query="\ud800"), "not valid Unicode"),
        (line(trace_id=["\udfff"]), "not valid Unicode"),
    ],
)
def test_a_bad_line_is_named_by_its_number_in_one_short_line(raw, message):
    with pytest.raises(EventError) as failure:
        parse(line(), raw if raw.endswith(b"\n") else raw + b"\n")
    text = str(failure.value)
    assert text.startswith("events.jsonl, line 2: ")
    assert message in text
    assert "\n" not in text
    assert len(text) < 300


def test_an_id_that_comes_twice_is_refused():
    with pytest.raises(EventError, match=r"line 2: event id 'e1' appears twice"):
        parse(line(), line())
