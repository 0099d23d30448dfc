"""The detectors that come with the package, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.scan.detectors.chat_tokens import ChatTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memory_audit.scan.detector import Detector

__all__ = ["DETECTORS"]

DETECTORS: Mapping[str, Callable[[], Detector]] = {"chat-tokens": ChatTokens}
