"""The figures and the sentence that open every report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audit.report.summary import headline, removed_of, summarise
from tests.unit.report.sample import sample_result


def with_verdicts(verdict):
    result = sample_result()
    tenant = result.tenants[0]
    return replace(
        result, tenants=(replace(tenant, events=tuple(replace(event, verdict=verdict) for event in tenant.events)),)
    )


def test_counts_over_both_tenants():
    counts = summarise(sample_result().tenants)
    assert (counts.entries, counts.removed, counts.events, counts.judged) == (84, 8, 10, 9)
    assert (counts.harmful_before, counts.harmful_after) == (8, 2)
    assert (counts.probes, counts.probes_kept, counts.probes_unknown) == (5, 4, 1)
    assert sum(counts.verdicts.values()) == counts.events


def test_an_event_that_was_not_replayed_is_not_counted_as_clean():
    tenant = sample_result().tenants[0]
    unknown = replace(tenant.events[0], harm_after=None)
    assert summarise([replace(tenant, events=(unknown,))]).judged == 0


def test_removed_entries_come_by_rank():
    ranks = [score.rank for score in removed_of(sample_result().tenants[1])]
    assert ranks == sorted(ranks)
    assert len(ranks) == 5


@pytest.mark.parametrize(
    ("verdict", "tone", "words"),
    [
        ("cleared", "good", "3 memories caused the harm. Without them, no harm is left in 4 harmful events."),
        ("not cleared", "bad", "Removing 3 memories ends the harm in 0 of 4 harmful events."),
        ("not examined", "warn", "Removing 3 memories ends the harm in 0 of 4 harmful events."),
    ],
)
def test_the_headline_follows_the_verdicts(verdict, tone, words):
    assert headline(with_verdicts(verdict)) == (tone, words)


def test_a_lost_probe_is_bad_even_when_every_event_is_cleared():
    result = with_verdicts("cleared")
    tenant = result.tenants[0]
    lost = replace(tenant, probes=(replace(tenant.probes[0], kept=False),))
    assert headline(replace(result, tenants=(lost,)))[0] == "bad"


def test_nothing_removed_is_said_plainly():
    result = with_verdicts("memory is not the cause")
    clean = tuple(replace(score, removed=False) for score in result.tenants[0].scores)
    result = replace(result, tenants=(replace(result.tenants[0], scores=clean),))
    assert headline(result) == (
        "warn",
        "Memory is not the cause of the harm: it stays in all 4 harmful events with no memory at all.",
    )
    assert headline(replace(result, tenants=()))[1] == "No harmful event was given, so nothing was attributed."
