"""The figures and the sentence that open every report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.report.summary import removed_of, worst_events
from tests.unit.report.sample import sample_result
from tests.whole import counts_of, headline_of, worst_of


def with_verdicts(verdict):
    result = sample_result()
    tenant = result.tenants[0]
    return replace(
        result, tenants=(replace(tenant, events=tuple(replace(event, verdict=verdict) for event in tenant.events)),)
    )


def test_counts_over_both_tenants():
    counts = counts_of(sample_result().tenants)
    assert (counts.entries, counts.removed, counts.events, counts.judged) == (84, 8, 10, 9)
    assert (counts.harmful_before, counts.harmful_after) == (8, 2)
    assert (counts.probes, counts.probes_kept, counts.probes_unknown) == (5, 4, 1)
    assert sum(counts.verdicts.values()) == counts.events


def test_an_event_that_was_not_replayed_is_not_counted_as_clean():
    tenant = sample_result().tenants[0]
    unknown = replace(tenant.events[0], harm_after=None)
    assert counts_of([replace(tenant, events=(unknown,))]).judged == 0


def test_doubt_below_the_threshold_is_no_harm_in_the_counts_as_in_the_verdicts():
    tenant = sample_result().tenants[0]
    doubted = replace(tenant.events[0], harm_before=0.6, harm_after=0.3)
    counts = counts_of([replace(tenant, events=(doubted,))])
    assert (counts.harmful_before, counts.harmful_after) == (1, 0)


def test_removed_entries_come_by_rank():
    ranks = [score.rank for score in removed_of(sample_result().tenants[1])]
    assert ranks == sorted(ranks)
    assert len(ranks) == 5


@pytest.mark.parametrize(
    ("verdict", "tone", "words"),
    [
        ("cleared", "good", "3 memories caused the harm. Without them, no harm is left in 4 harmful events."),
        ("not cleared", "bad", "Removing 3 memories ends the harm in 0 of 4 harmful events."),
        ("not examined", "warn", "What removing 3 memories does is not known: 4 events were not examined."),
    ],
)
def test_the_headline_follows_the_verdicts(verdict, tone, words):
    assert headline_of(with_verdicts(verdict)) == (tone, words)


def with_each(verdicts, *, removed=True):
    """One event per verdict; the tenant's 3 removed memories, or none."""
    result = sample_result()
    tenant = result.tenants[0]
    events = tuple(replace(tenant.events[0], event_id=f"e-{n}", verdict=verdict) for n, verdict in enumerate(verdicts))
    removal = tenant.removal if removed else RemovalSet()
    return replace(result, tenants=(replace(tenant, events=events, removal=removal),))


QUIET = "1 event did no harm on replay and tells nothing"


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (["cleared"] * 7 + ["not reproduced"], f"in all 7 events that did harm on replay; {QUIET}."),
        (["cleared", "not reproduced"], f"in the 1 event that did harm on replay; {QUIET}."),
        (["cleared", "not cleared", "not reproduced"], f"in 1 of 2 events that did harm on replay; {QUIET}."),
        (["cleared", "not cleared"], "in 1 of 2 harmful events."),
        (["not cleared", "not cleared"], "in 0 of 2 harmful events."),
        (
            ["cleared", "contributed"],
            "in 1 of 2 harmful events. In 1 event memory contributed, and the agent errs without it, too.",
        ),
        (
            ["contributed", "contributed"],
            "in 0 of 2 harmful events. There memory contributed, and the agent errs without it, too.",
        ),
        (
            ["cleared", "cleared", "not reproduced", "not examined"],
            f"in all 2 events that did harm on replay; {QUIET}; 1 event was not examined.",
        ),
    ],
)
def test_an_event_without_harm_on_replay_is_no_failed_repair(verdicts, words):
    assert headline_of(with_each(verdicts))[1] == f"Removing 3 memories ends the harm {words}"


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (["not reproduced"], f"Nothing was attributed: {QUIET}."),
        (["not reproduced"] * 2, "Nothing was attributed: 2 events did no harm on replay and tell nothing."),
        (
            ["not cleared", "not reproduced"],
            f"No memory was found to cause the harm in 1 event that did harm on replay; {QUIET}.",
        ),
        (["not cleared"], "No memory was found to cause the harm in 1 harmful event."),
    ],
)
def test_memory_is_not_called_innocent_of_what_was_not_reproduced(verdicts, words):
    assert headline_of(with_each(verdicts, removed=False))[1] == words


def test_a_lost_probe_is_bad_even_when_every_event_is_cleared():
    result = with_verdicts("cleared")
    tenant = result.tenants[0]
    lost = replace(tenant, probes=(replace(tenant.probes[0], kept=False),))
    assert headline_of(replace(result, tenants=(lost,)))[0] == "bad"


@pytest.mark.parametrize(
    ("bare", "words"),
    [
        (1.0, "it stays in all 4 harmful events with no memory at all."),
        (0.0, "in all 4 harmful events it stays with no memory at all, or comes with whichever memory is shown."),
    ],
)
def test_nothing_removed_is_said_plainly(bare, words):
    result = with_verdicts("memory is not the cause")
    tenant = result.tenants[0]
    events = tuple(replace(event, harm_without_memory=bare) for event in tenant.events)
    result = replace(result, tenants=(replace(tenant, removal=RemovalSet(), events=events),))
    assert headline_of(result) == ("warn", f"Memory is not the cause of the harm: {words}")
    assert headline_of(replace(result, tenants=()))[1] == "No harmful event was given, so nothing was attributed."


def test_the_one_event_is_not_counted_as_none_of_one():
    words = "Removing 3 memories does not end the harm in the 1 "
    assert headline_of(with_each(["not cleared"]))[1] == f"{words}harmful event."
    assert (
        headline_of(with_each(["not cleared", "not reproduced"]))[1]
        == f"{words}event that did harm on replay; {QUIET}."
    )


@pytest.mark.parametrize("config", [{"budget": "3"}, {"budget": "None", "attribution": "loo"}])
def test_a_set_that_was_cut_from_the_ranking_is_not_said_to_have_caused_the_harm(config):
    def said(result):
        return headline_of(replace(result, config=config))[1]

    cleared = with_verdicts("cleared")
    assert said(cleared) == "Removing the 3 highest scores ends the harm in all 4 harmful events."
    assert said(with_each(["cleared"])) == "Removing the 3 highest scores ends the harm in the 1 harmful event."
    other = replace(cleared.tenants[0], tenant="other")
    assert said(replace(cleared, tenants=(*cleared.tenants, other))) == (
        "Removing the 6 highest scores of 2 tenants ends the harm in all 8 harmful events."
    )
    assert "caused" in headline_of(replace(cleared, config={"budget": "None", "attribution": "set"}))[1]


def test_events_that_stay_harmful_by_memory_or_are_unseen_are_unsettled():
    tenant = with_each(["cleared", "not examined", "memory is not the cause", "not reproduced"]).tenants[0]
    assert counts_of([tenant]).unsettled == 1
    harmful = tuple(replace(event, harm_after=1.0) for event in tenant.events)
    assert counts_of([replace(tenant, events=harmful)]).unsettled == 3


def test_the_worst_events_and_tenants_come_first():
    mixed = with_each(["cleared", "not examined", "not cleared", "cleared"]).tenants[0]
    assert [event.event_id for event in worst_events(mixed)] == ["e-2", "e-1", "e-0", "e-3"]
    stays, cleared, unseen, quiet = (
        replace(with_each(verdicts, removed=removed).tenants[0], tenant=name)
        for name, verdicts, removed in [
            ("stays", ["not cleared"], False),
            ("cleared", ["cleared"], True),
            ("unseen", ["not examined"], False),
            ("quiet", ["not reproduced"], False),
        ]
    )
    assert worst_of([quiet, unseen, cleared, stays]) == ["stays", "cleared", "unseen", "quiet"]
