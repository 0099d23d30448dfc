"""The debug log of an attribution: per round and event what was asked, what was seen, and what followed.

Example (one line of `RUN/search.jsonl`, wrapped here):

    {"tenant": "acme", "event_id": "e-1", "round": 4, "phase": "sufficiency", "more": 0,
     "asked": [{"kind": "keep_one", "measure": "odds", "point": 0, "entries": ["m-3"], "count": 1, "harm": null,
                "nats": 1.5}],
     "followed": ["m-3 alone raises the odds by 5.5 nats"], "next": "necessity", "why": "1 memory joined the set, …"}

Rules: one JSON object a line, ASCII only; ids and numbers, and no text of a memory, a question or an answer. A line
names at most MAX_ASKED questions, and MAX_NAMED entries of each. The log ends where it would be longer than MAX_BYTES.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.formats import outside_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memory_audit.attribution.removal_set import RemovalSet
    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.attribution.search.event import EventState

__all__ = ["MAX_BYTES", "Asked", "SearchLog", "Step", "Tell", "TraceLine", "parse_log"]

MAX_BYTES = 16 << 20
"""Of a run's log: some ten thousand rounds of one event."""

MAX_ASKED = 24
"""Questions named in one line."""

MAX_NAMED = 8
"""Entries named in one question or change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One round of an attribution, told as it ends."""

    phase: str
    next: str
    why: str
    answers: Sequence[tuple[Ablation, Outcome]]
    before: Mapping[str, EventState]
    after: Mapping[str, EventState]
    was: RemovalSet
    """S before the step."""

    now: RemovalSet


Tell = "Callable[[Step], None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question of an event, and its answer."""

    kind: str
    measure: str
    point: int
    entries: tuple[str, ...]
    """Those that were shown, or left out, the first few of them."""

    count: int
    """How many these are in all."""

    harm: float | None
    nats: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """What one round was to one event."""

    tenant: str
    event_id: str
    round: int
    phase: str
    asked: tuple[Asked, ...]
    more: int
    """Questions of the round that are not named."""

    followed: tuple[str, ...]
    """What is known of the event since."""

    next: str
    """The phase after this one, of the whole search."""

    why: str


class SearchLog:
    """Collects the lines of one run."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._bytes = 0
        self._rounds: dict[str, int] = {}

    def of(self, tenant: str) -> Callable[[Step], None]:
        """Return what one tenant's attribution tells its steps to."""

        def tell(step: Step) -> None:
            self._rounds[tenant] = self._rounds.get(tenant, 0) + 1
            if self._bytes < MAX_BYTES:
                for line in _lines(tenant, self._rounds[tenant], step):
                    self._add(json.dumps(asdict(line)).encode() + b"\n")

        return tell

    def _add(self, line: bytes) -> None:
        self._bytes += len(line)
        if self._bytes <= MAX_BYTES:
            self._lines.append(line)

    def data(self) -> bytes:
        """Return the log as a file holds it."""
        return b"".join(self._lines)


def parse_log(data: bytes, where: str) -> Iterator[TraceLine]:
    """Read a log back.

    Raises:
        UsageError: names the line that is none of a log.
    """
    for number, line in enumerate(data.splitlines(), start=1):
        record = outside_json.decode(line, f"{where}:{number}")
        try:
            yield _line(record)
        except (TypeError, KeyError, AttributeError):
            raise UsageError(f"{where}:{number}: not a line of a search log") from None


def _line(record: dict[str, Any]) -> TraceLine:
    asked = tuple(Asked(**{**item, "entries": _texts(item["entries"])}) for item in record["asked"])
    line = TraceLine(**{**record, "asked": asked, "followed": _texts(record["followed"])})
    numbers = (line.round, line.more, *(number for item in asked for number in (item.point, item.count)))
    values = (value for item in asked for value in (item.harm, item.nats) if value is not None)
    _texts([line.tenant, line.event_id, line.phase, line.next, line.why])
    _texts([text for item in asked for text in (item.kind, item.measure)])
    if not all(type(number) is int for number in numbers) or not all(type(value) in {int, float} for value in values):
        raise TypeError
    return line


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise TypeError
    return tuple(value)


def _lines(tenant: str, number: int, step: Step) -> Iterator[TraceLine]:
    answers: dict[str, list[Asked]] = {}
    for ablation, outcome in step.answers:
        answers.setdefault(ablation.event_id, []).append(_asked(ablation, outcome))
    joined = {name: why for name, why in step.now.removed.items() if name not in step.was.removed}
    left = step.was.removed.keys() - step.now.removed.keys()
    for event_id, after in step.after.items():
        asked, before = answers.get(event_id, []), step.before[event_id]
        followed = [] if before is after else list(_changes(before, after))
        followed += [f"{name} joins the set: {why}" for name, why in joined.items() if name in after.influences]
        if gone := [name for name in sorted(left) if name in before.influences]:
            followed.append(f"{_named(gone)} leave the set")
        if asked or followed:
            yield TraceLine(
                tenant=tenant, event_id=event_id, round=number, phase=step.phase, asked=tuple(asked[:MAX_ASKED]),
                more=max(len(asked) - MAX_ASKED, 0), followed=tuple(followed), next=step.next, why=step.why,
            )  # fmt: skip


def _asked(ablation: Ablation, outcome: Outcome) -> Asked:
    names = ablation.removed if ablation.kept is None else ablation.kept
    return Asked(
        kind=ablation.kind, measure=ablation.measure, point=ablation.point, entries=names[:MAX_NAMED], count=len(names),
        harm=outcome.harm, nats=outcome.log_odds_nats,
    )  # fmt: skip


def _changes(before: EventState, after: EventState) -> Iterator[str]:
    """Say what is known of an event that was not, one line each."""
    old, new = before.where, after.where
    if len(new.all) > len(old.all):
        yield f"{counted(len(new.all) - len(old.all), 'new point')} to measure at, {len(new.all)} in all"
    if len(new.all) < len(old.all):
        yield f"{counted(len(old.all) - len(new.all), 'point')} dropped, {len(new.all)} left"
    if new.retired > old.retired:
        yield f"the first {new.retired} divergence points only showed wording: later ones are to count"
    if new.reference and not old.reference:
        yield f"the clean replay with {_named(new.reference)} is what the answer is compared with"
    yield from _control_changes(before, after)
    if before.influences and not after.influences:
        yield "what was measured of memories here is discarded"
    told = [name for name, influence in after.influences.items() if before.influences.get(name) != influence]
    for name in told[:MAX_NAMED]:
        influence = after.influences[name]
        parts = ((influence.sufficiency_nats, "alone raises"), (influence.necessity_nats, "by its absence lowers"))
        known = [f"{how} the odds by {nats:.1f} nats" for nats, how in parts if nats is not None]
        yield f"{name} {' and '.join(known) or 'could not be measured'}"
    if len(told) > MAX_NAMED:
        yield f"{len(told) - MAX_NAMED} more memories are measured"
    if silent := sorted(after.screening.cleared - before.screening.cleared):
        yield f"shown together, {_named(silent)} do nothing"
    if loud := sorted(after.screening.found - before.screening.found):
        yield f"shown together, {_named(loud)} raise the odds: each is to be measured alone"
    if before.settled != after.settled:
        yield "the event is open again" if after.settled is None else f"{after.status}: {after.reason}"


def _control_changes(before: EventState, after: EventState) -> Iterator[str]:
    old, new = before.controls, after.controls
    for point, odds in sorted(new.baseline.items()):
        if point not in old.baseline or old.baseline[point] != odds:
            yield f"point {point}: without a cause {'no odds can be had' if odds is None else f'{odds:.1f} nats'}"
    for point in sorted(new.format_points - old.format_points):
        yield f"point {point} is a matter of format, which any memory brings"
    for point in sorted(old.format_points - new.format_points):
        yield f"point {point} is no matter of format after all"
    if wanted := sorted(point for point, count in new.wanted.items() if count > old.wanted.get(point, 0)):
        yield f"more control memories are wanted at point {', '.join(map(str, wanted))}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
