"""A trace as one event: the root's question and answer, and what was retrieved on the way.

What the root does not say is taken from the span that was asked first, and from the one that answered last. Documents
of several retrievals follow each other in time, each once; one within another is a part of it. Where a reranker chose
among them, the agent saw what the reranker left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from memory_audit.entry import MAX_TEXT_BYTES
from memory_audit.events import MAX_RETRIEVED, Event
from memory_audit.traces.resolution import GUESSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.traces.harm import Label
    from memory_audit.traces.records import Kind, Span
    from memory_audit.traces.resolution import Means, Memories

__all__ = ["Left", "Resolution", "Trace"]

Left = Literal["no question or answer", "too long", "too many documents", "documents not resolved", "documents lost"]
"""Why a trace with a label is no event."""

MAX_HELD = 4 * MAX_RETRIEVED
"""Documents of one trace that are held: those within another retrieval, and those that a reranker leaves out, too."""


@dataclass(slots=True)
class Resolution:
    """What became of the documents of one trace."""

    by: dict[Means, int] = field(default_factory=dict)
    unresolved: int = 0
    lost: int = 0
    """Documents that the trace had and has no more: at least so many."""

    entry_ids: list[str] = field(default_factory=list)
    """Resolved, best match first, each once."""

    guessed: list[str] = field(default_factory=list)
    """Those of them that are guesses."""

    @property
    def documents(self) -> int:
        """How many were retrieved."""
        return sum(self.by.values()) + self.unresolved + self.lost

    @property
    def share(self) -> float:
        """Share of the documents that are resolved; 1 where there are none."""
        return sum(self.by.values()) / self.documents if self.documents else 1.0


class Trace:
    """The spans of one trace, folded one after the other.

    Args:
        spans: In order of their start.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self.start_ms = self.spans = 0
        self._root = self._first = self._last = ""
        self._root_answer = ""
        self._parents: dict[str, str] = {}
        self._retrievals: dict[str, Span] = {}
        self._held = 0
        for span in spans:
            self._add(span)

    def _add(self, span: Span) -> None:
        self.spans += 1
        self.start_ms = self.start_ms or span.start_us // 1_000
        self._parents[span.span_id] = span.parent_id
        if not span.parent_id:
            self._root = self._root or span.asked
            self._root_answer = self._root_answer or span.answered
        if span.kind == "other":
            self._first = self._first or span.asked
            self._last = span.answered or self._last
        elif span.documents is not None or span.lost:
            self._held += len(span.documents or ())
            if self._held <= MAX_HELD:
                self._retrievals[span.span_id] = span

    def _shown(self) -> list[Span]:
        """Return the spans whose documents the agent saw: rerankers, or else retrievals, none within another."""
        kinds = {span.kind for span in self._retrievals.values()}
        kind = "rerank" if "rerank" in kinds else "retrieval"
        return [
            span
            for span in self._retrievals.values()
            if span.kind == kind and not self._is_within(span.parent_id, kind)
        ]

    def _is_within(self, span_id: str, kind: Kind) -> bool:
        seen: set[str] = set()
        while span_id and span_id not in seen:  # parents may name each other in a circle
            seen.add(span_id)
            if (found := self._retrievals.get(span_id)) is not None and found.kind == kind:
                return True
            span_id = self._parents.get(span_id, "")
        return False

    def resolve(self, memories: Memories) -> Resolution | None:
        """Look up what was retrieved; None where the trace does not say.

        A document of two retrievals counts twice, and an entry is in the event once.
        """
        if not (shown := self._shown()):
            return None
        found = Resolution(lost=sum(span.lost for span in shown))
        entry_ids: dict[str, bool] = {}
        for span in shown:
            for document in span.documents or ():
                entry = memories.resolve(document, span.start_us // 1_000 or self.start_ms)
                if entry is None:
                    found.unresolved += 1
                    continue
                found.by[entry.means] = found.by.get(entry.means, 0) + 1
                entry_ids.setdefault(entry.entry_id, entry.means in GUESSES)
        found.entry_ids = list(entry_ids)
        found.guessed = [entry_id for entry_id, guess in entry_ids.items() if guess]
        return found

    def event(self, trace_id: str, tenant: str, label: Label, found: Resolution | None, least: float) -> Event | Left:
        """Make the event, or say why it is none.

        Args:
            trace_id: Its id.
            tenant: As the store names it.
            label: What is known of its harm.
            found: What `resolve` returned; where that is None the audit's own retrieval stands in.
            least: Share of the documents that must be resolved: an event without memories that the agent saw would
                blame those that are left.
        """
        query, output = self._root or self._first, self._root_answer or self._last
        if not query or not output:
            return "no question or answer"
        if any(len(text.encode()) > MAX_TEXT_BYTES for text in (query, output)):
            return "too long"
        extra: dict[str, object] = {}
        if found is not None:
            if self._held > MAX_HELD or len(found.entry_ids) > MAX_RETRIEVED:
                return "too many documents"
            if found.share < least:
                return "documents lost" if found.lost else "documents not resolved"
            extra = {"resolved": found.by, "unresolved": found.unresolved + found.lost, "guessed": found.guessed}
        return Event(
            event_id=trace_id, tenant=tenant, ts_ms=self.start_ms, query=query, output=output,
            retrieved=None if found is None else tuple(found.entry_ids), harm=label.harm, harm_source=label.source,
            extra={"trace": {"spans": self.spans, **extra}},
        )  # fmt: skip
