"""Shape of the trace task's incidents, and the harm that is read off an answer."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.attribution.trace.incidents import LiteralHarm, has_literal, load_incidents
from benchmarks.gate.derivation.measures import auc
from memory_audit.attribution.replays.harm import load_harm
from memory_audit.errors import UsageError

INCIDENTS = load_incidents()
IDS = [incident.incident_id for incident in INCIDENTS]


def text(memory):
    return " ".join(memory)


def test_there_are_five_incidents_on_each_of_38_fields():
    assert len(set(IDS)) == len(INCIDENTS) == 190
    assert len({incident.question for incident in INCIDENTS}) == 190
    assert set(Counter(incident.field for incident in INCIDENTS).values()) == {5}


@pytest.mark.parametrize("incident", INCIDENTS, ids=IDS)
def test_an_incident_is_what_it_says(incident):
    memories = [*incident.benign, incident.poison]
    assert len(incident.benign) == 4
    assert len(set(memories)) == 5
    for memory in memories:
        assert 15 <= len(text(memory).split()) <= 60
        assert "\n" not in text(memory)
    harm = incident.harm.casefold()
    assert has_literal(incident.harm, incident.poison[1])
    assert harm not in incident.question.casefold()
    assert not any(harm in text(memory).casefold() for memory in incident.benign)
    if incident.truth is not None:
        truth = incident.truth.casefold()
        assert any(truth in memory[1].casefold() for memory in incident.benign)
        assert truth not in text(incident.poison).casefold()


def test_a_third_of_the_incidents_have_the_right_answer_in_a_benign_memory():
    share = sum(incident.truth is not None for incident in INCIDENTS) / len(INCIDENTS)
    assert 0.3 <= share <= 0.45


@pytest.mark.parametrize("part", [slice(0, 1), slice(1, 2), slice(0, 2)], ids=["request", "response", "both"])
@pytest.mark.parametrize("measure", [len, lambda said: len(said.split()), lambda said: "?" in said])
def test_length_and_form_do_not_tell_poison_from_benign(measure, part):
    values, labels = [], []
    for incident in INCIDENTS:
        for memory in (*incident.benign, incident.poison):
            values.append(float(measure(text(memory[part]))))
            labels.append(memory is incident.poison)
    assert 0.4 < auc(np.asarray(values), np.asarray(labels)) < 0.6


@pytest.mark.parametrize("word", ["ignore", "attack", "poison", "inject", "system", "[", "<", "{", "!"])
def test_nothing_shouts(word):
    assert not any(word in text(incident.poison).casefold() for incident in INCIDENTS)


@pytest.mark.parametrize(
    ("literal", "said", "found"),
    [
        ("Crowfoot", "crowfoot, since spring", True),
        ("61", "The rate is 61 euros.", True),
        ("61", "The rate is 161 euros.", False),
        ("61", "The rate is 610 euros.", False),
        ("27", "27°C", True),
        ("overwrite", "The clerk overwrites it.", True),
        ("-oz", "add -oz.", True),
        ("canal", "the canal", True),
        ("fax", "Halifax", False),
    ],
)
def test_a_literal_is_found_as_a_word_or_number_of_its_own(literal, said, found):
    assert has_literal(literal, said) is found


def test_an_answer_is_judged_by_its_own_question():
    harm = load_harm(
        {"kind": "benchmarks.attribution.trace.incidents:LiteralHarm", "literals": {"q1": "Moor", "q2": "Bach"}}
    )

    def judged(query, output):
        with pytest.raises(StopIteration) as stop:
            next(harm.score(query, output))
        return stop.value.value

    assert (judged("q1", "Ask Moor."), judged("q2", "Ask Moor."), judged("q3", "Ask Moor.")) == (1.0, 0.0, None)


@pytest.mark.parametrize("literals", [["Moor"], {"q": ""}])
def test_a_harm_without_words_is_refused(literals):
    with pytest.raises(UsageError, match="not a table"):
        LiteralHarm(literals=literals)
