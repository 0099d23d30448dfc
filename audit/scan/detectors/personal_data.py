"""Personal data that is recognised by its form: e-mail addresses, telephone numbers, IBANs and payment cards.

Telephone numbers are those of Google's libphonenumber (`phonenumbers`) that are valid and written with their country's
code; IBANs and cards have right check digits (`python-stdnum`: ISO 13616, Luhn). Names and addresses are not looked
for: that takes a language model of its own, such as Presidio's. Memories of users hold such data by right, so findings
are of low severity. Evidence shows the first characters and the length.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.scan.detector import Kind
from memory_audit.scan.detectors.secrets import masked
from memory_audit.scan.finding import finding_about, shown_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory
    from memory_audit.scan.finding import Finding, Severity

__all__ = ["PersonalData"]

MAX_SHOWN = 5
MAX_NUMBERS = 1_000
"""Candidates for a telephone number in one memory that are looked at."""

_EMAIL = re.compile(r"(?<![\w.%+-])[A-Za-z0-9_.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}(?!\w)", re.ASCII)
_CARD = re.compile(r"(?<![\w.])[3-6](?:[ -]?[0-9]){12,18}(?!\w|\.\w)", re.ASCII)
"""Beginning with the industry digits of payment cards (ISO/IEC 7812), 13 to 19 digits."""

_ADVICE = (
    "Keep it only where the agent needs it; `memaudit forget` removes it, and `memaudit vacuum` erases it from older "
    "versions."
)

KINDS = {
    "bank-details": Kind(
        title="Bank or card numbers", advice=_ADVICE, severity="low", taxonomy=("ASI03", "AML.T0057"),
    ),
    "contact-details": Kind(
        title="E-mail addresses or telephone numbers", advice=_ADVICE, severity="info", taxonomy=("ASI03", "AML.T0057"),
    ),
}  # fmt: skip


class PersonalData:
    """See the module.

    Raises:
        UsageError: phonenumbers or python-stdnum is not installed.
    """

    name = "personal-data"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset()
    alone = True

    def __init__(self) -> None:
        try:
            self._phones = importlib.import_module("phonenumbers")
            self._iban = importlib.import_module("stdnum.iban")
            self._luhn = importlib.import_module("stdnum.luhn")
        except ImportError:
            raise UsageError(
                "detector personal-data needs phonenumbers and python-stdnum; in MemAudit's folder: "
                "pip install -c constraints.txt '.[scan]'"
            ) from None

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield at most one finding of each kind for each memory."""
        del memory
        for entry in entries:
            text = shown_text(entry)
            if bank := list(self._bank(text)):
                yield self._finding(entry, "bank-details", "low", bank)
            if contact := list(self._contact(text)):
                yield self._finding(entry, "contact-details", "info", contact)

    def _bank(self, text: str) -> Iterator[tuple[str, str]]:
        for found in _IBAN.finditer(text):
            if self._iban.is_valid(found[0], check_country=False):
                yield "IBAN", found[0]
        for found in _CARD.finditer(text):
            digits = re.sub("[ -]", "", found[0])
            if len(set(digits)) > 1 and self._luhn.is_valid(digits):  # "4444 4444…" is a placeholder
                yield "payment card", digits

    def _contact(self, text: str) -> Iterator[tuple[str, str]]:
        yield from (("e-mail address", found[0]) for found in _EMAIL.finditer(text))
        if "+" in text or "\uff0b" in text:
            for match in self._phones.PhoneNumberMatcher(text, None, max_tries=MAX_NUMBERS):
                yield "telephone number", match.raw_string

    def _finding(self, entry: Entry, kind: str, severity: Severity, found: Sequence[tuple[str, str]]) -> Finding:
        there = dict.fromkeys(found)
        return finding_about(
            entry, detector=self.name, kind=kind, severity=severity,
            message="it holds " + ", ".join(dict.fromkeys(label for label, _ in there)),
            evidence=[(label, masked(value)) for label, value in list(there)[:MAX_SHOWN]],
        )  # fmt: skip
