"""The marks by which chat templates tell turns apart ("<|im_end|>", "</s>", "[INST]"), broken up in text to be quoted.

Tokenisers read such a mark as a control token wherever it is spelt, so that quoted text could end its own turn. One
space inside makes it plain text again. Not broken up are marks without a bar or slash that are not named here.
"""

from __future__ import annotations

import re

__all__ = ["without_chat_marks"]

_MARKS = re.compile(
    r"<(?=[|\uff5c/]|\s*(?:s|bos|eos|start_of_turn|end_of_turn|im_start|im_end|think)\b)|\[(?=/?INST\])", re.IGNORECASE
)
_ENDS = re.compile(r"(?<=[|\uff5c])>")  # some models spell their marks with the full-width bar


def without_chat_marks(text: str) -> str:
    """Return the text with a space inside of each mark."""
    return _ENDS.sub(" >", _MARKS.sub(lambda mark: f"{mark[0]} ", text))
