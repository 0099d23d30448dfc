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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memory_audit.scan.detector import Detector

__all__ = ["DETECTORS"]

DETECTORS: Mapping[str, Callable[[], Detector]] = {
    "chat-tokens": ChatTokens,
    "hidden-characters": HiddenCharacters,
    "imitation": Imitation,
    "instructions": Instructions,
    "no-provenance": NoProvenance,
    "personal-data": PersonalData,
    "role-markers": RoleMarkers,
    "secrets": Secrets,
    "stale": Stale,
}
