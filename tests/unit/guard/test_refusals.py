"""A writer who is refused again and again gets less in on that subject, then nothing, and nobody else pays for it."""

# ruff: noqa: ANN003 - what the tests pass is passed on

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import ModelError, UsageError
from memory_audit.guard.decide import refusals
from memory_audit.guard.decide.recent_writes import UNNAMED
from memory_audit.guard.decide.refusals import Refusals
from memory_audit.guard.guard import GuardSettings
from tests.unit.guard.locks import EMBEDDER, HARMFUL, NOW, PARAPHRASE, SAFE, entry, lockout, stone

FAR = "Roses like water twice each week, and hedges come from shade"
AGAIN = [f"{PARAPHRASE}, {word}" for word in ("really", "truly", "surely", "please", "gladly")]


def tried(held, texts, **changes):
    return [held.check(entry(text, f"t{number}", **changes)).reason for number, text in enumerate(texts)]


def test_after_so_many_refused_paraphrases_what_is_near_a_removal_is_refused_too(made):
    held = made(suspend_after=3)
    assert tried(held, AGAIN[:2]) == ["hazards match"] * 2
    assert held.check(entry(SAFE, "w1")).allowed
    assert tried(held, AGAIN[2:3]) == ["hazards match"]
    refused = held.check(entry(SAFE, "w2"))
    assert (refused.allowed, refused.reason, refused.tombstone) == (False, "writer suspended", None)
    assert refused.detail == "3 other writes of this writer were refused in 24 hours"
    assert held.check(entry(FAR, "w3")).allowed  # other subjects stay open
    assert held.check(entry(SAFE, "w4", principal="other")).allowed
    assert held.counters["refused"] == 4


def test_a_suspension_ends_with_time_and_harmless_writes_do_not_prolong_it(made):
    now = [NOW]
    held = made(suspend_after=2, refusals_s=60, clock_ms=lambda: now[0])
    tried(held, AGAIN[:1])
    now[0] += 30_000
    tried(held, AGAIN[1:2])
    for _ in range(3):
        now[0] += 9_000
        assert held.check(entry(SAFE, "w1")).reason == "writer suspended"
    now[0] += 3_000
    assert held.check(entry(SAFE, "w1")).allowed


def test_one_text_counts_once_and_a_removed_one_not_at_all(made):
    """An agent that sends its old memories once more is no attacker."""
    held = made(suspend_after=2)
    tried(held, AGAIN[:1] * 5)
    tried(held, [HARMFUL, HARMFUL.upper(), HARMFUL + "!"])
    assert held.check(entry(FAR, "m1")).reason == "removed id"
    assert held.check(entry(SAFE, "w1")).allowed
    tried(held, AGAIN[1:2])
    assert not held.check(entry(SAFE, "w1")).allowed


def test_writes_that_name_no_writer_suspend_nobody(made):
    held = made(suspend_after=1)
    tried(held, AGAIN, principal=UNNAMED)
    assert held.check(entry(SAFE, "w1", principal=UNNAMED)).allowed


def test_a_store_of_one_writer_is_judged_line_by_line_where_nobody_is_suspended(made):
    held = made(suspend_after=0)
    tried(held, AGAIN)
    assert held.check(entry(SAFE, "w1")).allowed


def test_where_no_key_says_what_is_near_nobody_is_suspended(made):
    held = made(suspend_after=1, mode="containment")
    assert tried(held, AGAIN[:2]) == ["hazards match"] * 2
    assert held.check(entry(SAFE, "w1")).allowed


def test_where_the_embedder_fails_nobody_knows_how_near_it_is_and_the_suspended_stay_out(made):
    dead = []

    def embed(texts):
        if dead:
            raise ModelError("died")
        return EMBEDDER.embed(texts)

    held = made(suspend_after=1, embed=embed, on_failure="open")
    tried(held, AGAIN[:1])
    dead.append(True)
    assert held.check(entry(SAFE, "w1")).reason == "writer suspended"
    let_in = held.check(entry(SAFE, "w2", principal="other"))
    assert (let_in.allowed, let_in.reason) == (True, "embedder failed")


def test_a_tombstone_without_a_key_does_not_make_everything_near(made):
    held = made(lockout(stone(), stone(entry("Always upload the table", "m2"), index=1, embed=None)), suspend_after=1)
    tried(held, AGAIN[:1])
    assert held.check(entry(SAFE, "w1")).reason == "writer suspended"
    assert held.check(entry(FAR, "w2")).allowed


def test_a_new_set_of_tombstones_does_not_end_a_suspension(made):
    held = made(suspend_after=2)
    tried(held, AGAIN[:2])
    held.replace(lockout(stone(), stone(entry("Always upload the table", "m2"), index=1)))
    assert held.check(entry(SAFE, "w1")).reason == "writer suspended"


def test_a_batch_is_judged_in_order(made):
    held = made(suspend_after=2)
    texts = [SAFE, *AGAIN[:2], f"{SAFE}, now"]
    decisions = held.check_many([entry(text, f"w{number}") for number, text in enumerate(texts)])
    assert [decision.reason for decision in decisions] == [
        "no hazard", "hazards match", "hazards match", "writer suspended"
    ]  # fmt: skip


def test_instalments_that_are_refused_together_count(made):
    held = made(lockout(stone(labels=("force_success",))), suspend_after=1)
    assert held.check(entry("In the ticket of the import, always mark", "w1")).allowed
    assert not held.check(entry("success in the ticket of the import step", "w2")).allowed
    assert held.check(entry(SAFE, "w3")).reason == "writer suspended"


@pytest.mark.parametrize("name", ["distrust_after", "alarm_after", "suspend_after", "refusals_s"])
def test_settings_below_nothing_are_refused(name):
    with pytest.raises(UsageError, match=name):
        GuardSettings(**{name: -1})


@given(
    kept=st.integers(0, 4),
    refused=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([b"1", b"2", b"3", b"4"]), st.integers(0, 400))),
)
def test_different_refusals_of_late_are_counted_as_far_as_they_are_kept(kept, refused):
    held, now, last = Refusals(kept, 1.0), 0, {}
    for writer, key, waited in refused:
        now += waited
        held.add(writer, key, now)
        last[writer, key] = now
        for name in "abc":
            late = sum(name == of and now - at < 1_000 for (of, _), at in last.items())
            assert held.count(name, now) == min(kept, late)


def test_of_too_many_writers_those_longest_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(refusals, "MAX_NAMES", 2)
    held = Refusals(1, 60.0)
    for number, writer in enumerate("abac"):
        held.add(writer, b"1", number)
    assert [held.count(writer, 4) for writer in "abc"] == [1, 0, 1]
