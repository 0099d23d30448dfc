"""Control tokens of chat templates in a memory: a model reads them as the end of a turn, or as another speaker.

What is broken up where a memory is quoted is more (`memory_audit.text.chat_marks`): all that a tokenizer could take for
one. Told are whole tokens, and of closing ones those that have an opening one: "</p>" and "|x|<|y|" are none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import Evidence, Finding, content_digest
from memory_audit.text.chat_marks import chat_marks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory

__all__ = ["ChatTokens"]

MAX_MARKS = 5
"""Marks told of one memory."""

_WHOLE = re.compile(r"[<\[]\s*(?:[|\uff5c][^\s<>|\uff5c]+[|\uff5c]|[^\s<>|\uff5c]+)\s*[>\]]")

KINDS = {
    "chat-tokens": Kind(
        title="Control tokens of a chat template",
        advice="Read the memory, and remove it unless it is about chat templates. MemAudit breaks such tokens up where "
        "it quotes a memory; an agent that does not is steered by them.",
        severity="medium",
        taxonomy=("ASI06", "AML.T0051.001", "AML.T0080.000"),
    )
}


class ChatTokens:
    """See the module."""

    name = "chat-tokens"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset()
    alone = True

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield one finding for each memory with such a token."""
        for entry in entries:
            if marks := [mark for mark in chat_marks(entry.text) if _is_token(mark)]:
                yield Finding(
                    detector=self.name, kind="chat-tokens", tenant=memory.tenant, entry_ids=(entry.entry_id,),
                    severity="medium", message="a model may read part of this memory as another turn",
                    evidence=tuple(
                        Evidence(label="token", value=mark, entry_id=entry.entry_id) for mark in marks[:MAX_MARKS]
                    ),
                    key=content_digest(entry),
                )  # fmt: skip


def _is_token(mark: str) -> bool:
    return bool(_WHOLE.fullmatch(mark)) and (not mark.startswith("</") or bool(chat_marks(f"<{mark[2:]}")))
