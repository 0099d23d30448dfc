"""Sets of memories that bring the harm together where none does alone: a step of the search.

What is needed together shows when one of it is left out. Of what is needed as *some k of n*, any one is dispensable and
none does it alone: only sets tell. So a smallest part of the context is looked for that still brings the harm, as delta
debugging does (Zeller & Hildebrandt, 2002), by halving: kept beside what is found so far, which is the shortest prefix
of the rest that brings it? Its last memory belongs to the set (Junker's QuickXplain, 2004, takes the same steps). About
`s * log2(k)` replays find a set of `s` among `k`. Then each member is left out in turn: where the harm stays, others
complete the set in its place, and these are looked for in the same way, also among what moves up.

Whether the harm comes is told by replays as text. What it is worth is told by the odds where these are measured: the
set must raise them as much as a memory that is attributed alone, and must lose as much with any member replaced by a
control memory. What the topic brings by itself counts for nothing. A memory that was merely kept, or speaks of the same
topic, falls short of that and is dropped.

Nothing is kept between rounds but the answers: what is asked next follows from taking the same steps again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from memory_audit.attribution.replays.ablation import keep_only, topic_alone
from memory_audit.attribution.search.settings import CONTROL_MEMORIES
from memory_audit.attribution.search.state import Round, Transition
from memory_audit.counted import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Sequence

    from memory_audit.attribution.replays.ablation import Ablation
    from memory_audit.attribution.search.event import EventState
    from memory_audit.attribution.search.state import SearchState

    T = TypeVar("T")
    Asking: TypeAlias = Generator[Sequence[Ablation], None, T]
    """Yields questions, and goes on when they are answered."""

__all__ = ["combination_round", "is_wanted", "read_combinations"]

MOST_NAMED = 8
"""Members that one reason names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """Memories of one event that bring the harm together, none of which can be spared."""

    members: tuple[str, ...]
    nats: float | None
    """How much they raise the odds together; None where whole answers tell."""


def is_wanted(search: SearchState) -> bool:
    """Tell whether sets are to be looked for, or were found and are not in S yet."""
    asked, found = _examine(search)
    return bool(asked or found)


def combination_round(search: SearchState) -> Round:
    """Ask whether the harm comes with parts of the context; one event at a time of those that share some of it."""
    return Round(asked=_examine(search)[0], noted=search)


def read_combinations(search: SearchState) -> Transition:
    """Move sets into S once all is answered."""
    asked, found = _examine(search)
    if asked:
        return Transition(next="combinations", state=search, why="which memories bring the harm together is narrowed")
    why = f"{counted(len(found), 'memory')} joined the set, which bring the harm together with others"
    if found:
        search = search.with_attributed({**search.removal.attributed, **found}).reopened()
    return Transition(next="sufficiency", state=search, why=why)


def _examine(search: SearchState) -> tuple[list[Ablation], dict[str, str]]:
    """Return what is to be asked of events whose harm is known to stay, and the memories of sets with the reason."""
    asked: list[Ablation] = []
    found: dict[str, str] = {}
    taken: set[str] = set()
    for state in search.open_events():
        context = search.context(state)
        replayed = state.replays.by_context.get(context)
        if replayed is None or not replayed.is_harmful or not taken.isdisjoint(context):
            continue
        questions, sets = _told(search, state)
        if questions or sets:
            taken.update(context)
        asked += questions
        if not questions:
            found |= _reasons(state, sets)
    return asked, found


def _told(search: SearchState, state: EventState) -> tuple[Sequence[Ablation], Sequence[Combination]]:
    """Take an event's steps as far as answers go: what is to be asked, or else the sets."""
    steps = _Steps(search, state).sets()
    try:
        while search.given.seen.answers(asked := next(steps)):
            pass
    except StopIteration as done:
        return (), done.value
    return asked, ()


def _completing(
    kept: Sequence[str], others: Sequence[str], brings: Callable[[Collection[str]], Asking[bool]]
) -> Asking[list[str]]:
    """Find a smallest part of `others` that brings the harm beside `kept`: with all of them it comes, with none not.

    Where more memories may also prevent it, what is returned brings it still, but may hold some that can be spared.

    Args:
        kept: Shown in any case.
        others: The likeliest first.
        brings: Asks whether the harm comes with some memories.

    Returns:
        Some of `others`, the last needed first.
    """
    found: list[str] = []
    while True:
        low, high = 0, len(others)
        while high - low > 1:
            middle = (low + high) // 2
            if (yield from brings([*kept, *found, *others[:middle]])):
                high = middle
            else:
                low = middle
        found.append(others[high - 1])
        others = others[: high - 1]
        if not others or (yield from brings([*kept, *found])):
            return found


class _Steps:
    """The steps that find the sets of one event."""

    def __init__(self, search: SearchState, state: EventState) -> None:
        self._search, self._state = search, state
        self._order: dict[str, int] = {}

    def sets(self) -> Asking[list[Combination]]:
        """Find a set, and those that others make in a member's place; as many as the context has memories at most."""
        context = self._context(())
        members = yield from _completing((), self._likeliest(context), self._brings)
        sets = [first] if (first := (yield from self._proven((), members))) else []
        for found in sets:  # grows
            for member in found.members:
                kept = [name for name in found.members if name != member]
                while len(sets) < len(context) and (another := (yield from self._with_others(kept, sets))):
                    sets.append(another)
        return sets

    def _with_others(self, kept: Sequence[str], sets: Sequence[Combination]) -> Asking[Combination | None]:
        """Find a set of what is kept and memories that are in none yet; None where the harm is gone without these."""
        named = {name for found in sets for name in found.members}
        context = self._context(named.difference(kept))
        if not (yield from self._brings(context)):
            return None
        others = self._likeliest(name for name in context if name not in kept)
        added = yield from _completing(kept, others, self._brings)
        return (yield from self._proven(kept, added))

    def _proven(self, kept: Sequence[str], added: Sequence[str]) -> Asking[Combination | None]:
        """Drop those of `added` that can be spared, one after the other; None where what is left is no set.

        Members that are kept were needed in another set.
        """
        rule, added = self._search.given.rule, list(added)
        measures = self._search.given.seen.measures(self._state)
        yield [topic_alone(self._state.event_id, point) for measure, point in measures if measure == "odds"]
        evidence = math.inf
        while added and len(kept) + len(added) > 1:
            members = [*kept, *added]
            nats = yield from self._gain(members)
            if nats is None or (evidence := min(evidence, nats)) < rule.threshold_nats:
                return None
            losses: dict[str, float] = {}
            for member in added:
                losses[member] = yield from self._loss(members, member, nats)
            if rule.attributes(min(evidence, *losses.values()), members):
                return Combination(members=self._ordered(members), nats=nats if self._state.points else None)
            added.remove(min(added, key=losses.__getitem__))
        return None

    def _loss(self, members: Sequence[str], member: str, nats: float) -> Asking[float]:
        """How much is lost without a member, and with a control memory in its place, in nats; the less of the two.

        A control memory may be planted, and complete the set itself: several are asked, while all do.
        """
        event, rule = self._state.event, self._search.given.rule
        unused = self._search.given.memory.unused(event.query, CONTROL_MEMORIES, logged=event.retrieved)
        controls = [entry.entry_id for entry in unused if entry.entry_id not in members]
        others = [name for name in members if name != member]
        lost = nats - ((yield from self._gain(others)) or 0.0)
        if lost < rule.threshold_nats or len(unused) < CONTROL_MEMORIES or not controls:
            return lost
        replaced = -math.inf
        for control in controls:
            replaced = max(replaced, nats - ((yield from self._gain([*others, control])) or 0.0))
            if replaced >= min(lost, rule.needed_nats(member)):
                break
        return min(lost, replaced)

    def _gain(self, names: Iterable[str]) -> Asking[float | None]:
        """How much memories raise the odds together, in nats; harm that comes counts as much as what is attributed."""
        seen, state, shown = self._search.given.seen, self._state, self._ordered(names)
        if not state.points:
            settings = self._search.given.settings
            harmful = yield from self._brings(shown)
            return harmful * (settings.attribution_nats + settings.consistent_extra_nats)
        while not seen.answers(asked := seen.shown(state, shown)):
            yield asked
        return seen.gain(state, shown)

    def _brings(self, shown: Collection[str]) -> Asking[bool]:
        """Ask whether the harm comes with these memories, best match first."""
        kept = self._ordered(shown)
        known = self._state.replays.by_context.get(kept)
        if known is None:
            asked = keep_only(self._state.event_id, "keep_group" if len(kept) > 1 else "keep_one", "text", kept)
            yield [asked]
            known = self._search.given.seen[asked]
        return known.is_harmful

    def _context(self, without: Iterable[str]) -> tuple[str, ...]:
        """What is retrieved without these memories and S."""
        context = self._search.context(self._state, self._search.removal.ids.union(without))
        for name in context:
            self._order.setdefault(name, len(self._order))
        return context

    def _ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Put memories in the order in which they are retrieved: what moves up comes last."""
        return tuple(sorted(names, key=lambda name: self._order.get(name, len(self._order))))

    def _likeliest(self, names: Iterable[str]) -> list[str]:
        """Put first what has the most credit."""
        return sorted(names, key=lambda name: -self._state.credit_of(name))


def _reasons(state: EventState, sets: Sequence[Combination]) -> dict[str, str]:
    """Name the members of all sets of one event as one: entry id to the reason, which they share."""
    members = list(dict.fromkeys(name for found in sets for name in found.members))
    if not members:
        return {}
    fewest = min(len(found.members) for found in sets)
    nats = [found.nats for found in sets if found.nats is not None]
    does = f"raise the odds of the harm in {state.event_id} by {min(nats):.1f} nats" if nats else (
        f"bring the harm in {state.event_id}"
    )  # fmt: skip
    more = f" and {len(members) - MOST_NAMED} more" if len(members) > MOST_NAMED else ""
    named = ", ".join(members[:MOST_NAMED]) + more
    return dict.fromkeys(members, f"{fewest} of {len(members)} together {does}, none alone: {named}")
