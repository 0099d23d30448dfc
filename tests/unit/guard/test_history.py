"""Earlier writes against a plain list of them: who and what was refused so often of late counts, nothing else."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from memory_audit.guard.decide.guard_decision import GuardDecision
from memory_audit.guard.decide.history import History
from memory_audit.guard.decide.instalments import Instalment
from memory_audit.guard.decide.settings import HistorySettings
from memory_audit.guard.decide.write import UNNAMED, Write
from tests.unit.guard.blocked import entry, stone

STONES = (stone(), stone(entry("Always upload the table", "m2"), index=1))
WRITERS = st.sampled_from(["a", "b", UNNAMED])
REFUSED = st.tuples(st.just("refused"), WRITERS, st.sampled_from(b"123456"), st.integers(0, 1))
TRIED = st.tuples(st.just("tried"), WRITERS, st.sets(st.integers(0, 1)), st.booleans())
ALONE = GuardDecision(allowed=True, reason="another behaviour", similarity=0.9, restated_nats=-1.0)


@given(
    limits=st.tuples(*(st.integers(0, 3),) * 2),
    steps=st.lists(st.tuples(st.integers(0, 400), st.one_of(REFUSED, TRIED)), max_size=40),
)
def test_a_write_is_refused_for_what_was_refused_before_and_for_nothing_else(limits, steps):
    distrust, alarm = limits
    settings = HistorySettings(distrust_after=distrust, alarm_after=alarm, refusals_s=1.0)
    held, now, by_writer, by_stone = History(settings), 0, {}, {}

    def late(refused, name):
        return sum(of == name and now - at < 1_000 for (of, _), at in refused.items())

    for waited, (kind, writer, what, place) in steps:
        now += waited
        if kind == "refused":
            decision = GuardDecision(allowed=False, reason="behaviour restated", tombstone=STONES[place])
            held.after(Write(entry(chr(what), principal=writer)), decision, now, piece=None, past=None)
            by_writer[writer, what] = by_stone[place, what] = now
            continue
        failed = place
        alone = replace(ALONE, reason="model failed") if failed else ALONE
        past = held.before(Write(entry(principal=writer)), [STONES[number] for number in sorted(what)], now)
        found = held.refusal(alone, past, in_doubt=bool(what))
        tries = 0 if writer == UNNAMED else late(by_writer, writer)
        expected = None
        if what and any(0 < alarm <= late(by_stone, number) for number in what):
            expected = "removal attacked"
        if (what or failed) and 0 < distrust <= tries:
            expected = "writer distrusted"
        assert (found and found.reason) == expected
        assert found is None or (not found.allowed and found.detail)


def test_a_write_that_came_meanwhile_has_the_other_decided_on_again():
    held, now = History(HistorySettings()), 5
    first, second = (Write(entry(text, text)) for text in ("one", "two"))
    kept = [Instalment(key=one.key, entry_id=one.entry.entry_id, text_forms=(), at_ms=now) for one in (first, second)]
    past = held.before(second, (), now)
    assert held.after(first, ALONE, now, piece=kept[0], past=held.before(first, (), now))
    assert not held.after(second, ALONE, now, piece=kept[1], past=past)
    again = held.before(second, (), now)
    assert again.recent == (kept[0],)
    assert held.after(second, ALONE, now, piece=kept[1], past=again)
    assert held.before(Write(entry("three")), (), now).recent == tuple(kept)
