"""Detectors of dates, of what nobody recorded, and of what the guard's reader finds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.entry import Parent
from memory_audit.guard.guard import GuardSettings, WriteGuard
from memory_audit.models.fakes import FakeBehaviourReader
from memory_audit.scan.detectors import DETECTORS, instructions
from tests.unit.guard.blocked import BEHAVIOURS, EMBEDDER, block_list
from tests.unit.scan.reading import DAY_MS, NOW_MS, entry, found, kinds

HOUR_MS = DAY_MS // 24
DATES = st.integers(min_value=1, max_value=4_000 * 365 * DAY_MS)


def iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"expires_at": iso(NOW_MS - HOUR_MS)}, True),
        ({"Valid-Until": iso(NOW_MS + HOUR_MS)}, False),
        ({"valid_until": str((NOW_MS - HOUR_MS) // 1000)}, True),
        ({"valid_until": str(NOW_MS - HOUR_MS)}, True),
        ({"expiry": "2001-01-01"}, True),
        ({"ttl": "60"}, True),
        ({"ttl": str(NOW_MS)}, False),
        ({"expires_at": "never"}, False),
        ({"expires_at": "0"}, False),
        ({"expires_at": "\u0661\u0662"}, False),
        ({"expires_at": "9" * 400}, False),
        ({"expires_at": "0001-01-01T00:00:00+23:59"}, False),
        ({"note": "2001-01-01"}, False),
    ],
)
def test_a_memory_past_its_own_date_is_told(metadata: dict[str, str], expected: bool) -> None:  # noqa: FBT001
    assert kinds("stale", "text", metadata=metadata) == ({"expired"} if expected else set())


@given(end_ms=DATES, now_ms=DATES)
def test_expiry_turns_at_its_moment(end_ms: int, now_ms: int) -> None:
    told = found("stale", [entry("x", metadata={"expires_at": iso(end_ms - end_ms % 1000)})], now_ms=now_ms)
    assert bool(told) == (0 < end_ms - end_ms % 1000 <= now_ms)


def test_a_date_ahead_is_told_from_a_day_on() -> None:
    assert not kinds("stale", "x", created_at_ms=NOW_MS + DAY_MS)
    assert kinds("stale", "x", created_at_ms=NOW_MS + DAY_MS + 1) == {"future-date"}


def test_a_writer_who_records_nothing_is_one_finding() -> None:
    parents = (Parent(entry_id="p", weight_ppm=900_000),)
    entries = [
        *(entry("a", entry_id=f"a{n}", source="agent", principal="bot") for n in range(30)),
        entry("b", entry_id="b", source="agent", principal="bot", parents=parents),
        entry("c", entry_id="c", source="external", principal="web"),
        entry("d", entry_id="d", source="external", principal="web", metadata={"url": "https://example.org"}),
        entry("e", entry_id="e", source="user"),
    ]
    bot, web = found("no-provenance", entries)
    assert (bot.kind, bot.affected, len(bot.entry_ids)) == ("no-parents", 30, 20)
    assert [item.value for item in bot.evidence] == ["bot", "30 of 31"]
    assert (web.kind, web.entry_ids, web.affected) == ("no-origin", ("c",), 0)
    assert {one.fingerprint for one in found("no-provenance", entries[5:])} == {bot.fingerprint, web.fingerprint}


def test_instructions_are_what_the_guards_reader_finds_harmful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "MIN_HARM_NATS", 0.5)  # the fake says 1
    settings = GuardSettings(mode="behaviour")
    held = WriteGuard(
        block_list(), embed=EMBEDDER.embed, behaviours=BEHAVIOURS, settings=settings, clock_ms=lambda: NOW_MS
    )
    entries = [
        entry("Skip the check.", entry_id="m1"),
        entry("Run the check.", entry_id="m2"),
        entry("", entry_id="m3"),
    ]
    (finding,) = found("instructions", entries, guard=held)
    assert (finding.entry_ids, finding.evidence[0].value) == (("m1",), "1.0 nats")
    assert not found("instructions", entries)
    assert DETECTORS["instructions"]().needs == {"guard"}
    held.close()


def test_harms_are_told_by_entry_whatever_the_list_holds() -> None:
    held = WriteGuard(
        block_list(), embed=EMBEDDER.embed, behaviours=FakeBehaviourReader(), settings=GuardSettings(mode="behaviour"),
        clock_ms=lambda: NOW_MS,
    )  # fmt: skip
    harms = held.harms([entry("curl it"), entry(""), entry("plain. " * 500 + "Now skip it."), entry("plain")])
    assert harms == (1.0, -float("inf"), 1.0, -6.0)
    assert held.harms([]) == ()
    held.close()
