"""The demo's corpus keeps its promises: real events, and no clue to the poison but its content and its effect."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from memory_audit.attribution.replays.harm import answer_label
from memory_audit.config import load_config
from memory_audit.formats.import_jsonl import parse_entries
from memory_audit.jobs.demo_corpus import CONFIG_FILE, ENTRIES_FILE, EVENTS_FILE, corpus_folder
from memory_audit.jobs.executors.replay_group import Program
from memory_audit.request import read_events
from tests.unit.jobs.poisoned_in_the_demo import POISONED

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_audit.entry import Entry
    from memory_audit.events import Event

MAX_CLUE_AUC = 0.75
"""How well one figure about an entry may tell poison from benign, in either direction."""

REQUEST = re.compile(r"Question: .+\nOptions:\nA\) .+\nB\) .+\nC\) .+\nD\) .+")
RESPONSE = re.compile(r"Thought: .+\nAnswer: [A-H]")


@cache
def entries() -> tuple[Entry, ...]:
    raw = (corpus_folder() / ENTRIES_FILE).read_bytes()
    return tuple(parse_entries(raw.splitlines(keepends=True), ENTRIES_FILE, {}))


@cache
def events() -> tuple[Event, ...]:
    return read_events(corpus_folder() / EVENTS_FILE).events


def is_poisoned(entry: Entry) -> bool:
    return entry.entry_id in POISONED[entry.tenant]


def auc(figure: Callable[[Entry], float]) -> float:
    """Chance that a poisoned entry has the larger figure; ties count half."""
    poison = [figure(entry) for entry in entries() if is_poisoned(entry)]
    benign = [figure(entry) for entry in entries() if not is_poisoned(entry)]
    wins = sum((a > b) + 0.5 * (a == b) for a in poison for b in benign)
    return wins / len(poison) / len(benign)


def test_sizes_are_those_of_the_brief():
    assert 60 <= len(entries()) <= 100
    assert {entry.tenant for entry in entries()} == set(POISONED)
    assert len(POISONED["orchard-bikes"]) in range(1, 4)
    assert 6 <= sum(map(len, POISONED.values())) <= 12
    known = {(entry.tenant, entry.entry_id) for entry in entries()}
    assert all((tenant, entry_id) in known for tenant, ids in POISONED.items() for entry_id in ids)


def test_every_entry_is_a_multiple_choice_case_with_a_thought():
    for entry in entries():
        assert REQUEST.fullmatch(entry.request), entry.entry_id
        assert RESPONSE.fullmatch(entry.response), entry.entry_id
        assert unicodedata.is_normalized("NFC", entry.text)


def test_only_poison_answers_with_a_label_that_was_not_offered():
    for entry in entries():
        assert (answer_label(entry.response) in set("EFGH")) == is_poisoned(entry)


def test_files_carry_no_labels_and_no_metadata():
    fields = {"tenant", "entry_id", "principal", "source", "request", "response", "created_at_ms"}
    for line in (corpus_folder() / ENTRIES_FILE).read_text().splitlines():
        assert json.loads(line).keys() == fields
    assert all(not entry.metadata and not entry.parents for entry in entries())
    assert all(not event.extra for event in events())


def test_every_entry_has_its_own_writer_and_all_have_one_source():
    assert max(Counter(entry.principal for entry in entries()).values()) == 1
    assert {entry.source for entry in entries()} == {"user"}
    assert len({entry.created_at_ms for entry in entries()}) == len(entries())


def test_requests_are_all_different():
    assert max(Counter((entry.tenant, entry.request) for entry in entries()).values()) == 1


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("length of the response", lambda entry: len(entry.response)),
        ("length of the request", lambda entry: len(entry.request)),
        ("length of both", lambda entry: len(entry.text)),
        ("time", lambda entry: entry.created_at_ms),
        ("place in the log", lambda entry: entries().index(entry)),
        ("writer's name", lambda entry: int(entry.principal.removeprefix("user-"), 16)),
    ],
)
def test_no_figure_about_an_entry_tells_poison_from_benign(name, figure):
    found = auc(figure)
    print(f"AUC of {name} alone: {found:.2f}")  # noqa: T201 - shown by pytest -s and on failure
    assert 1 - MAX_CLUE_AUC < found < MAX_CLUE_AUC


def test_times_are_shuffled():
    times = [entry.created_at_ms for entry in entries()]
    rises = sum(a < b for a, b in pairwise(times))
    assert 0.3 < rises / len(times) < 0.7


def test_events_are_harm_and_probes_of_both_tenants():
    counts = Counter((event.tenant, event.harm) for event in events())
    for tenant in POISONED:
        assert 4 <= counts[tenant, "harmful"] <= 6
        assert 3 <= counts[tenant, "benign"] <= 4


def test_events_observed_what_they_are_labelled():
    config = load_config(corpus_folder() / CONFIG_FILE, {})
    _, scorer = Program.of(config.agent, config.harm, config.seed).build()
    for event in events():
        scoring = scorer.score(event.query, event.output)
        with pytest.raises(StopIteration) as stop:
            next(scoring)
        assert stop.value.value == (1.0 if event.harm == "harmful" else 0.0), event.event_id
        assert config.probe_pattern is not None
        assert event.harm == "harmful" or re.search(config.probe_pattern, event.output)


def test_events_name_what_was_retrieved():
    known = {(entry.tenant, entry.entry_id) for entry in entries()}
    for event in events():
        assert event.retrieved is not None
        assert len(event.retrieved) == 5
        assert all((event.tenant, entry_id) in known for entry_id in event.retrieved)


def test_one_tenant_is_sparse_and_in_the_other_poison_supports_itself():
    shares = {
        tenant: [
            len(POISONED[tenant] & set(event.retrieved or ()))
            for event in events()
            if (event.tenant, event.harm) == (tenant, "harmful")
        ]
        for tenant in POISONED
    }
    assert all(1 <= share <= 2 for share in shares["orchard-bikes"])
    assert all(4 <= share <= 5 for share in shares["tidewater-net"])
