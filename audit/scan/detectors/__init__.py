"""The detectors that come with the package, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.scan.detectors.chat_tokens import ChatTokens
from memory_audit.scan.detectors.whole_memory.bursts import Bursts
from memory_audit.scan.detectors.whole_memory.contradictions import Contradictions
from memory_audit.scan.detectors.whole_memory.copies import Copies
from memory_audit.scan.detectors.whole_memory.elsewhere import Elsewhere
from memory_audit.scan.detectors.whole_memory.laundered import Laundered
from memory_audit.scan.detectors.whole_memory.removed_again import RemovedAgain
from memory_audit.scan.detectors.whole_memory.superseded import Superseded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memory_audit.scan.detector import Detector

__all__ = ["DETECTORS"]

DETECTORS: Mapping[str, Callable[[], Detector]] = {
    "bursts": Bursts,
    "chat-tokens": ChatTokens,
    "contradictions": Contradictions,
    "copies": Copies,
    "elsewhere": Elsewhere,
    "laundered": Laundered,
    "removed-again": RemovedAgain,
    "superseded": Superseded,
}
