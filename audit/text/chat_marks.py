"""The marks by which chat templates tell turns apart ("<|im_end|>", "</s>", "[INST]"), broken up in text to be quoted.

Tokenisers read such a mark as a control token wherever it is spelt, so that quoted text could end its own turn, or have
what stands before it read as padding. One space inside makes it plain text again. Which tokenizer will read the text is
not known here, as it may be a server's: broken up are marks with a bar or slash, and those that are named here.
"""

from __future__ import annotations

import re

__all__ = ["chat_marks", "without_chat_marks"]

MAX_SHOWN = 40
"""Characters of a mark that are told."""

_ANGLED = (
    r"unk|pad|mask|cls|sep|sop|eop|(?:unk|pad|mask|cls|sep|bos|eos)_token|tool_call|tool_response|image|video|audio|"
    r"(?:start|end)_of_image|fim_\w+|file_sep|repo_name|<SYS>|unused_?\d+|extra_id_\d+|reserved_\w*\d+"
)
"""Of Gemma, Llama 2, Qwen, Command R, T5, ChatGLM, Baichuan, and of models of code and of images."""

_SQUARE = (
    r"INST|CLS|SEP|PAD|UNK|MASK|BOS|EOS|[gs]MASK|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|"
    r"ARGS|CALL_ID|THINK|IMG(?:_BREAK|_END)?|(?:BEGIN_)?AUDIO|PREFIX|MIDDLE|SUFFIX|UNUSED_TOKEN_\d+|control_\d+"
)
"""Of Mistral, ChatGLM, InternLM and the family of BERT. In small letters they are words in brackets."""

_MARKS = re.compile(
    r"(?i:<(?=[|\uff5c/]|\s*(?:s|bos|eos|start_of_turn|end_of_turn|im_start|im_end|think)\b|(?:"
    + _ANGLED
    + r")>)|\[(?=/?INST\]))|\[(?=\||/?(?:"
    + _SQUARE
    + r")\])"
)
_ENDS = re.compile(r"(?<=[|\uff5c])>")  # some models spell their marks with the full-width bar


def without_chat_marks(text: str) -> str:
    """Return the text with a space inside of each mark."""
    return _ENDS.sub(" >", _MARKS.sub(lambda mark: f"{mark[0]} ", text))


def chat_marks(text: str) -> list[str]:
    """Return the different marks of a text, each cut after MAX_SHOWN characters, in the order of their first place."""
    return list(dict.fromkeys(_shown(text, mark.start()) for mark in _MARKS.finditer(text)))


def _shown(text: str, start: int) -> str:
    """Return a mark up to its end: `_MARKS` finds where one begins."""
    piece = text[start : start + MAX_SHOWN]
    end = re.search(r"[>\]]", piece)
    return piece if end is None else piece[: end.end()]
