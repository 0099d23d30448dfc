"""A writer that writes far more in a window than windows hold is told, also where it states false times."""

from __future__ import annotations

from tests.unit.scan.worlds import fingerprints, note, scanned

HOUR_MS = 3_600_000


def quiet(hours: int = 60, writers: int = 8):
    """Each writer writes one to three memories an hour."""
    return [
        note(f"q{hour}-{writer}-{count}", f"note {hour} {writer} {count}", principal=f"w{writer}",
             created_at_ms=(1_000 + hour) * HOUR_MS)
        for hour in range(hours) for writer in range(writers) for count in range(1 + (hour * 7 + writer * 3) % 3)
    ]  # fmt: skip


def flood(writer: str, count: int, *, apart_ms: int, start: int = 1_030):
    return [
        note(f"{writer}{place}", f"flood {place}", principal=writer, created_at_ms=start * HOUR_MS + place * apart_ms)
        for place in range(count)
    ]


def test_a_burst_by_stated_times_is_one_finding_of_its_writer():
    entries = [*quiet(), *flood("eve", 70, apart_ms=1_000)]
    (finding,) = scanned("bursts", entries)
    assert (finding.key, finding.affected, len(finding.entry_ids)) == ("eve", 70, 50)
    assert finding.message == "70 memories of one writer came in bursts"
    assert ("stated", "1970-02-12 22:00 UTC: 70 memories") in [(item.label, item.value) for item in finding.evidence]


def test_times_spread_over_years_do_not_hide_it():
    calm = quiet()
    spread = flood("eve", 95, apart_ms=200 * HOUR_MS)
    entries = [*calm[:300], *spread, *calm[300:]]
    (finding,) = scanned("bursts", entries)
    assert finding.key == "eve"
    assert {item.label for item in finding.evidence} == {"writer", "logged", "first"}
    mixed = list(calm)
    for place, late in enumerate(spread):
        mixed.insert(11 * place, late)
    assert scanned("bursts", mixed) == []


def test_steady_writers_one_writer_and_a_small_memory_have_none():
    assert scanned("bursts", quiet()) == []
    assert scanned("bursts", quiet(writers=1)) == []
    assert scanned("bursts", flood("import", 500, apart_ms=1)) == []
    assert scanned("bursts", []) == []


def test_another_burst_of_the_writer_is_the_same_finding():
    entries = [*quiet(), *flood("eve", 70, apart_ms=1_000)]
    more = [*entries, *(note(f"again{place}", "again", principal="eve", created_at_ms=9**10) for place in range(90))]
    assert fingerprints(scanned("bursts", entries)) == fingerprints(scanned("bursts", more))
