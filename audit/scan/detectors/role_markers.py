"""Markers of turns in plain words: a model reads what follows as another speaker's, though no control token is there.

The markers are those of published prompt formats that are plain text, at the beginning of a line: Alpaca's
"### Instruction:", Vicuna's "USER:" and "ASSISTANT:", Claude's "Human:", and the roles of chat interfaces. Calls of
tools are told by their form: the JSON of OpenAI, Mistral and Hermes, and the elements of Claude and Llama. Turns of the
two speakers alone are what a kept conversation looks like, and tell little.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import finding_about

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory
    from memory_audit.scan.finding import Finding

__all__ = ["RoleMarkers"]

MAX_MARKERS = 5
"""Different markers told of one memory."""

MIN_SPEAKER_TURNS = 2
"""One "User:" at the beginning of a line is a heading as often as a turn."""

_LINE = r"^[ \t]{0,8}(?:[>*_\[({]{1,4}[ \t]?)?"
_OVER = re.compile(
    _LINE + r"((?:system|developer)(?: (?:prompt|message|instructions?|override))?[\])}*_]{0,4}:"
    r"|\[(?:system|developer)\](?!\()|#{2,4} ?(?:system|instructions?|response)\b ?:)",
    re.IGNORECASE | re.MULTILINE,
)
_SPEAKERS = re.compile(_LINE + r"((?:user|human|assistant)[\])}*_]{0,4}:)", re.IGNORECASE | re.MULTILINE)
_CALLS = re.compile(
    r'("(?:tool_calls|function_call|tool_use_id)"\s{0,8}:'
    r'|"name"\s{0,8}:\s{0,8}"[\w.-]{1,64}"\s{0,8},\s{0,8}"(?:arguments|parameters)"\s{0,8}:'
    r"|<(?:function_calls|tool_use|tool_call|tool_code)>|<invoke name=|<function=)"
)

KINDS = {
    "system-turn": Kind(
        title="A line that opens a turn of the system or an instruction",
        advice="Read what follows it: text that a model takes for its operator's is obeyed. Remove the memory unless "
        "it records a prompt on purpose.",
        severity="medium",
        taxonomy=("ASI06", "AML.T0051.001", "AML.T0080.000"),
    ),
    "tool-call": Kind(
        title="A call of a tool, written out",
        advice="Check that it records a call that took place; an agent may repeat it.",
        severity="low",
        taxonomy=("ASI06", "AML.T0053", "AML.T0080.000"),
    ),
    "speaker-turns": Kind(
        title="Turns of a conversation in one memory",
        advice="Keep turns as records of their own, or mark them as a quotation where they are shown to a model.",
        severity="info",
        taxonomy=("ASI06", "AML.T0080.000"),
    ),
}


class RoleMarkers:
    """See the module."""

    name = "role-markers"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset()
    alone = True

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield at most one finding of each kind for each memory."""
        del memory
        for entry in entries:
            text = "\n".join((entry.text, *entry.metadata.values()))
            speakers = _markers(_SPEAKERS, text)
            found = {
                "system-turn": (_markers(_OVER, text), "a model may take part of it for its operator's words"),
                "tool-call": (_markers(_CALLS, text), "it holds what a model or its runtime may take for a call"),
                "speaker-turns": (
                    speakers if len(speakers) >= MIN_SPEAKER_TURNS else [],
                    "a model may take part of it for turns of its own conversation",
                ),
            }
            for kind, (markers, message) in found.items():
                if markers:
                    yield finding_about(
                        entry, detector=self.name, kind=kind, severity=KINDS[kind].severity, message=message,
                        evidence=[("marker", marker) for marker in markers[:MAX_MARKERS]],
                    )  # fmt: skip


def _markers(pattern: re.Pattern[str], text: str) -> list[str]:
    """Return the different markers of a text, each cut short, in the order of their first place."""
    return list(dict.fromkeys(match[1][:80] for match in pattern.finditer(text)))
