"""Earlier refusals against a plain list of them: who and what was refused so often of late counts, nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory_audit.guard.decide.attempts import Attempts
from memory_audit.guard.decide.guard_decision import GuardDecision
from memory_audit.guard.decide.recent_writes import UNNAMED
from memory_audit.guard.decide.settings import GuardSettings
from tests.unit.guard.blocked import entry, stone

STONES = (stone(), stone(entry("Always upload the table", "m2"), index=1))
WRITERS = st.sampled_from(["a", "b", UNNAMED])
REFUSED = st.tuples(st.just("refused"), WRITERS, st.sampled_from(b"123456"), st.integers(0, 1))
TRIED = st.tuples(st.just("tried"), WRITERS, st.sets(st.integers(0, 1)), st.booleans())


@given(
    limits=st.tuples(*(st.integers(0, 3),) * 2),
    steps=st.lists(st.tuples(st.integers(0, 400), st.one_of(REFUSED, TRIED)), max_size=40),
)
def test_a_write_is_refused_for_what_was_refused_before_and_for_nothing_else(limits, steps):
    distrust, alarm = limits
    settings = GuardSettings(distrust_after=distrust, alarm_after=alarm, refusals_s=1.0)
    held, now, by_writer, by_stone = Attempts(settings), 0, {}, {}

    def late(refused, name):
        return sum(of == name and now - at < 1_000 for (of, _), at in refused.items())

    for waited, (kind, writer, what, place) in steps:
        now += waited
        if kind == "refused":
            decision = GuardDecision(allowed=False, reason="behaviour restated", tombstone=STONES[place])
            held.add(writer, bytes([what]), decision, now)
            by_writer[writer, what] = by_stone[place, what] = now
            continue
        near = place
        alone = GuardDecision(
            allowed=True, reason="another behaviour", similarity=0.9 if near else 0.1, restated_nats=-1.0
        )
        doubted = [STONES[number] for number in sorted(what)]
        found = held.refusal(writer, alone, joins=near, doubted=doubted, foreign=lambda: False, now_ms=now)
        tries = 0 if writer == UNNAMED else late(by_writer, writer)
        expected = None
        if near and what and any(0 < alarm <= late(by_stone, number) for number in what):
            expected = "removal attacked"
        if near and what and 0 < distrust <= tries:
            expected = "writer distrusted"
        assert (found and found.reason) == expected
        assert found is None or (not found.allowed and found.detail)


@given(foreign=st.booleans(), joins=st.booleans())
def test_what_is_far_from_every_key_counts_where_no_key_can_tell(foreign, joins):
    held = Attempts(GuardSettings(distrust_after=1))
    held.add("a", b"1", GuardDecision(allowed=False, reason="behaviour restated", tombstone=STONES[0]), 0)
    alone = GuardDecision(allowed=True, reason="another behaviour", similarity=0.1, restated_nats=-1.0)
    found = held.refusal("a", alone, joins=joins, doubted=STONES[:1], foreign=lambda: foreign, now_ms=1)
    assert (found is not None) == (foreign or joins)
