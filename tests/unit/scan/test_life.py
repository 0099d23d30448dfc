"""What a finding is called from scan to scan."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memory_audit.scan.acceptances import Acceptances, read_acceptances
from memory_audit.scan.fail_on import failing, parse_fail_on
from memory_audit.scan.finding import Finding
from memory_audit.scan.life import MAX_FIXED, MAX_NAMED, track

DAY_MS = 86_400_000
RAN = ("chat-tokens",)
NOTHING = Acceptances()


def finding(key: str = "a", **changes: Any) -> Finding:
    fields: dict[str, Any] = {
        "detector": "chat-tokens", "kind": "chat-tokens", "tenant": "acme", "entry_ids": (f"m-{key}",),
        "severity": "medium", "message": "as another turn", "key": key,
    }  # fmt: skip
    return Finding(**(fields | changes))


def night(found=(), earlier=(), *, day=1, ran=RAN, accepted=NOTHING):
    return track(found, earlier, now_ms=day * DAY_MS, ran=ran, accepted=accepted)


def states(known):
    return {item.finding.key: item.state for item in known}


def test_a_finding_is_new_then_known_then_fixed_then_returned_then_known():
    told: list[str] = []
    earlier: Any = ()
    for day, found in enumerate([["a"], ["a"], [], [], ["a"], ["a"]]):
        earlier = night(map(finding, found), earlier, day=day)
        told += [item.state for item in earlier]
    assert told == ["new", "known", "fixed", "fixed", "returned", "known"]
    assert earlier[0].first_seen_ms == 0


def test_when_it_was_fixed_is_kept_until_it_is_back():
    first = night([finding()])
    fixed = night([], night([], first, day=2), day=3)
    assert [item.fixed_ms for item in fixed] == [2 * DAY_MS]
    assert night([finding()], fixed, day=4)[0].fixed_ms is None


def test_what_was_not_looked_for_is_not_fixed():
    first = night([finding("a"), finding("b", detector="copies")], ran=("chat-tokens", "copies"))
    assert states(night([], first, day=2)) == {"a": "fixed", "b": "known"}
    assert states(night([], first, day=2, ran=())) == {"a": "known", "b": "known"}


def test_an_accepted_finding_comes_back_when_its_acceptance_ends():
    accepted = read_acceptances(
        b'[{kind: chat-tokens, tenant: acme, entry: m-a, reason: docs, by: ana, until: "1970-01-03"}]', "file"
    )
    (first,) = night([finding()], accepted=accepted)
    assert first.state == "accepted"
    assert first.acceptance is not None
    assert first.acceptance.reason == "docs"
    told, earlier = [], (first,)
    for day in (2, 3, 4):
        earlier = night([finding()], earlier, day=day, accepted=accepted)
        told.append(earlier[0].state)
    assert told == ["accepted", "returned", "known"]


def test_copies_of_a_memory_are_one_finding_that_names_them():
    copies = [finding(entry_ids=(f"m-{place}",)) for place in range(MAX_NAMED + 5)]
    (known,) = night([*copies, finding(entry_ids=("m-1",), severity="high")])
    assert known.finding.entry_ids == tuple(f"m-{place}" for place in range(MAX_NAMED))
    assert known.finding.affected == MAX_NAMED + 5
    assert known.finding.severity == "high"
    assert night([finding(), finding(entry_ids=("m-2",))])[0].finding.affected == 0


def test_fixed_findings_are_kept_within_a_bound_the_latest_first():
    first = night([finding("old")])
    second = night([finding(str(place)) for place in range(MAX_FIXED)], first, day=2)
    third = night([], second, day=3)
    assert len(third) == MAX_FIXED
    assert "old" not in states(third)


@given(st.lists(st.sets(st.sampled_from("abcd")), max_size=6), st.randoms())
def test_a_state_follows_from_where_it_was_seen(nights, random):
    earlier: Any = ()
    for day, keys in enumerate(nights):
        order = random.sample(sorted(keys), len(keys))
        now = night([finding(key) for key in order], earlier, day=day)
        assert now == night([finding(key) for key in sorted(keys)], earlier, day=day)
        seen_before = {key for keys in nights[:day] for key in keys}
        last = nights[day - 1] if day else set()
        for item in now:
            key = item.finding.key
            expected = "fixed"
            if key in keys:
                expected = "new" if key not in seen_before else "known" if key in last else "returned"
            assert item.state == expected
            assert item.first_seen_ms == min(d for d, k in enumerate(nights) if key in k) * DAY_MS
        assert {item.finding.key for item in now} == keys | seen_before
        earlier = now


def test_what_fails_is_what_was_asked_for():
    first = night([finding("a", severity="high"), finding("b", severity="low")])
    second = night([finding("a", severity="high"), finding("c", severity="info"), finding("d", severity="high")], first)

    def failed(asked):
        return {item.finding.key for item in failing(second, parse_fail_on(asked))}

    assert failed("new:high") == {"d"}
    assert failed("new") == {"c", "d"}
    assert failed("new:high, known:medium") == {"a", "d"}
    assert failed("returned") == set()
