"""Keys and tokens of known services in a memory, as Yelp's detect-secrets recognises them by their form.

Its detectors of one service's format are used. Those by entropy, by the words around a value, and of public addresses
are not: in prose they are wrong too often. Passwords in plain words are therefore not found. Evidence shows the first
characters and the length. Cost: texts are cut into overlapping windows, since two of its patterns take time that is
quadratic in a text's length (7 s for 65 kB).
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import finding_about, shown_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory
    from memory_audit.scan.finding import Finding

__all__ = ["Secrets", "masked"]

WINDOW, OVERLAP = 4_096, 1_024
"""Characters that are read together, and of these what the next window repeats: longer than a key with its name."""

SHOWN = 4
"""First characters of a secret that are told: they name the service."""

MAX_SECRETS = 5
LEFT_OUT = frozenset({"IPPublicDetector"})

KINDS = {
    "secrets": Kind(
        title="A key or token of a service",
        advice="Revoke it where it was issued, then remove the memory: whoever can make the agent recall it has it.",
        severity="high",
        taxonomy=("ASI03", "AML.T0055", "AML.T0082"),
    )
}


class Secrets:
    """See the module.

    Raises:
        UsageError: detect-secrets is not installed.
    """

    name = "secrets"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset()
    alone = True

    def __init__(self) -> None:
        try:
            self._detectors, self._is_template = _detectors()
        except ImportError:
            raise UsageError(
                "detector secrets needs detect-secrets; in MemAudit's folder: pip install -c constraints.txt '.[scan]'"
            ) from None

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield one finding for each memory with a secret."""
        del memory
        for entry in entries:
            if found := self._secrets(shown_text(entry)):
                yield finding_about(
                    entry, detector=self.name, kind="secrets", severity="high",
                    message="it holds what has the form of a secret: " + ", ".join(sorted(set(found.values()))),
                    evidence=[(service, masked(value)) for value, service in list(found.items())[:MAX_SECRETS]],
                )  # fmt: skip

    def _secrets(self, text: str) -> dict[str, str]:
        """Return secrets, each with the name of its kind."""
        found: dict[str, str] = {}
        for start in range(0, max(len(text) - OVERLAP, 1), WINDOW - OVERLAP):
            window = text[start : start + WINDOW]
            for detector in self._detectors:
                for value in detector.analyze_string(window):
                    if isinstance(value, str) and value and not self._is_template(value):
                        found.setdefault(value, detector.secret_type)
        return found


def masked(value: str) -> str:
    """Return a secret's first characters, at most a quarter of it, and its length."""
    return f"{value[: min(SHOWN, len(value) // 4)]}… ({len(value)} characters)"


def _detectors() -> tuple[list[Any], Any]:
    """Return detect-secrets' detectors of single formats, and what tells a placeholder.

    Raises:
        ImportError: it is not installed.
    """
    plugins = importlib.import_module("detect_secrets.plugins")
    base = importlib.import_module("detect_secrets.plugins.base").RegexBasedDetector
    modules = [
        importlib.import_module(f"{plugins.__name__}.{one.name}") for one in pkgutil.iter_modules(plugins.__path__)
    ]
    classes = [
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, base)
        and found.__module__ == module.__name__ != base.__module__
    ]
    heuristic = importlib.import_module("detect_secrets.filters.heuristic")
    return [found() for found in classes if found.__name__ not in LEFT_OUT], heuristic.is_templated_secret
