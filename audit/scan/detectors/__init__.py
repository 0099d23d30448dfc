"""The detectors that come with the package, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.scan.detectors.chat_tokens import ChatTokens
from memory_audit.scan.detectors.hidden_characters import HiddenCharacters
from memory_audit.scan.detectors.imitation import Imitation
from memory_audit.scan.detectors.instructions import Instructions
from memory_audit.scan.detectors.no_provenance import NoProvenance
from memory_audit.scan.detectors.personal_data import PersonalData
from memory_audit.scan.detectors.role_markers import RoleMarkers
from memory_audit.scan.detectors.secrets import Secrets
from memory_audit.scan.detectors.stale import Stale
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
    "hidden-characters": HiddenCharacters,
    "imitation": Imitation,
    "instructions": Instructions,
    "laundered": Laundered,
    "no-provenance": NoProvenance,
    "personal-data": PersonalData,
    "removed-again": RemovedAgain,
    "role-markers": RoleMarkers,
    "secrets": Secrets,
    "stale": Stale,
    "superseded": Superseded,
}
