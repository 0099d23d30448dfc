"""How bad a finding is: from its kind, from what the memory can do, and from who can have written it.

1. A kind has a severity of its own (`Kind.severity`); configuration may give it another, which then stands as it is.
2. Only kinds of poisoning, which have the id ASI06, are moved further; a secret is as bad in any memory.
3. A memory *can do* something where its text names POWERS: money, credentials, execution, or advice that people follow.
4. It is *from outside* where a tool or an external source wrote it, or nobody knows who did.
5. Both: one step up. Neither, and the user wrote it: one step down. `info` stays, and nothing goes above `high`.

The words are short and public, to be read and argued with; they find no memory by themselves. Ids are those of the
OWASP Top 10 for Agentic Applications 2026 and of MITRE ATLAS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, get_args

from memory_audit.errors import UsageError
from memory_audit.formats.members import as_members
from memory_audit.guard.decide.write import UNNAMED
from memory_audit.scan.finding import SEVERITIES, Evidence, Severity, shown_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from memory_audit.entry import Entry
    from memory_audit.scan.finding import Finding

__all__ = ["ASI06", "POWERS", "TAXONOMY", "SeverityRules", "parse_severity_rules", "powers_of"]

ASI06 = "ASI06"

TAXONOMY: Mapping[str, str] = {
    "ASI01": "Agent Goal Hijack",
    "ASI03": "Identity and Privilege Abuse",
    "ASI06": "Memory and Context Poisoning",
    "ASI09": "Human-Agent Trust Exploitation",
    "AML.T0051.001": "LLM Prompt Injection: Indirect",
    "AML.T0053": "AI Agent Tool Invocation",
    "AML.T0055": "Unsecured Credentials",
    "AML.T0057": "LLM Data Leakage",
    "AML.T0068": "LLM Prompt Obfuscation",
    "AML.T0070": "RAG Poisoning",
    "AML.T0073": "Impersonation",
    "AML.T0074": "Masquerading",
    "AML.T0080": "AI Agent Context Poisoning",
    "AML.T0080.000": "AI Agent Context Poisoning: Memory",
    "AML.T0082": "RAG Credential Harvesting",
}
"""Ids that kinds of finding have, with their names."""

_WORDS: Mapping[str, str] = {
    "money": "pay payment payments paid transfer transfers refund refunds invoice invoices iban wallet purchase",
    "credentials": "password passwords passphrase credential credentials token tokens api_key apikey secret login otp",
    "execution": "curl wget bash sudo exec eval subprocess chmod powershell shell script scripts command deploy",
    "advice": "dose dosage medication prescribe diagnosis invest portfolio lawsuit contract warranty",
}
POWERS: Mapping[str, frozenset[str]] = {power: frozenset(words.split()) for power, words in _WORDS.items()}
"""What a memory can do, and the words that tell it."""

_WORD = re.compile(r"\w+")
_OUTSIDE = frozenset({"tool", "external"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SeverityRules:
    """The module's rules, with a configuration's own severities."""

    fixed: Mapping[str, Severity] = field(default_factory=dict)
    """By kind of finding; they stand whatever the memory is."""

    def rate(self, finding: Finding, entry: Entry, taxonomy: tuple[str, ...]) -> Finding:
        """Return a finding with the severity that the rules give it.

        What moved it is told as evidence.

        Args:
            finding: With the severity of its kind.
            entry: The first of its memories.
            taxonomy: Of its kind.
        """
        if finding.kind in self.fixed:
            return replace(finding, severity=self.fixed[finding.kind])
        if ASI06 not in taxonomy or finding.severity == "info":
            return finding
        powers, outside = powers_of(entry), entry.source in _OUTSIDE or entry.principal == UNNAMED
        step = -1 if powers and outside else int(not powers and not outside and entry.source == "user")
        if not step:
            return finding
        place = SEVERITIES.index(finding.severity) + step
        because = [("can do", power) for power in powers] + [("written by", "an outsider" if outside else "the user")]
        told = tuple(Evidence(label=label, value=value, entry_id=entry.entry_id) for label, value in because)
        return replace(
            finding, severity=SEVERITIES[min(max(place, 0), len(SEVERITIES) - 1)], evidence=(*finding.evidence, *told)
        )


def powers_of(entry: Entry) -> tuple[str, ...]:
    """Return what a memory can do by the words of all that an agent reads of it, in the order of `POWERS`."""
    words = {word.casefold() for word in _WORD.findall(shown_text(entry))}
    return tuple(power for power, telling in POWERS.items() if words & telling)


def parse_severity_rules(value: Any, where: str) -> SeverityRules:
    """Read the block `severity` of a configuration.

        personal-data: info
        system-turn: high

    Args:
        value: As YAML gave it: kinds of finding to severities.
        where: The file and the place in it, for messages.

    Raises:
        UsageError: not a mapping, or another word for a severity. Any kind may be named: users' detectors have theirs.
    """
    members = as_members(value, where)
    for kind, severity in members.items():
        if severity not in get_args(Severity):
            raise UsageError(f"{where}: {kind:.80} is {severity!r:.40}, expected one of {', '.join(SEVERITIES)}")
    return SeverityRules(fixed=members)
