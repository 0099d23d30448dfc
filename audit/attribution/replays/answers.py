"""What counts as the answer in an output."""

from __future__ import annotations

import re

__all__ = ["answer_of"]


def answer_of(output: str, pattern: str | None) -> str | None:
    """Return what counts as the answer in an output: the pattern's last match, or the whole text folded.

    None where the pattern does not match: the output has no answer.
    """
    if pattern is None:
        return " ".join(output.casefold().split())
    found = list(re.finditer(pattern, output))
    if not found:
        return None
    return found[-1].group(1) if found[-1].re.groups else found[-1].group(0)
