"""Tokenizers that read a text's letters: nothing in it is a control token, however it is spelt ("[SEP]", "</s>").

A memory is written by attackers. As control tokens, a few "[PAD]" after a question hardly move its embedding, and a
"[SEP]" ends the premise of an NLI model where its author wants. A template still puts such tokens around a text, by
their numbers. A text that spells none has the tokens that it has without this.

Not for what replays an agent's own prompt: there the agent's server reads control tokens, and so does the replay.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from memory_audit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["read_as_text"]

_BRACKETED = re.compile(r"[<\[{|].*[>\]}|]", re.DOTALL)
"""How control tokens are spelt that their tokenizer does not call special ("<tool_call>"). Other added tokens are of
text: words, and runs of blanks."""

_RARE = "\U00013000"
"""A hieroglyph: most vocabularies have it not, and read it as their token for what is unknown, which steers nothing."""


def read_as_text(tokenizer: Any) -> None:
    """Have a tokenizer read texts as their letters from now on.

    Args:
        tokenizer: One of transformers, or of the library tokenizers.

    Raises:
        ModelError: it reads control tokens out of texts all the same.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - only who loads a model pays for it

    if isinstance(tokenizer, Tokenizer):
        backend: Any = tokenizer
        added = tokenizer.get_added_tokens_decoder()
    else:
        backend, added = getattr(tokenizer, "backend_tokenizer", None), tokenizer.added_tokens_decoder
        tokenizer.split_special_tokens = True  # at each call transformers sets its backend to this
    control = {
        token.content: number
        for number, token in added.items()
        if len(token.content) > 1 and (token.special or _BRACKETED.fullmatch(token.content))
    }
    if backend is not None:
        backend.add_special_tokens([text for text, number in control.items() if not added[number].special])
        backend.encode_special_tokens = True  # which reads the special ones as letters, and others not
        _cut(backend, _spelt(tokenizer, control))
    unknown = _numbers(tokenizer, [_RARE])
    left = [text for text in _spelt(tokenizer, control) if control[text] not in unknown]
    if left:
        raise ModelError(
            f"the tokenizer reads {', '.join(left):.80} in a text as control tokens: whoever writes a memory could "
            "steer the model with them; choose another model"
        )


def _cut(backend: Any, spelt: Sequence[str]) -> None:
    """Cut texts behind the first letter of control tokens.

    Vocabularies of words or sentence pieces have them a second time, and find them in the letters, of which
    normalisation may have made them: cut after it, they are in no piece of a text.
    """
    from tokenizers import Regex, pre_tokenizers  # noqa: PLC0415

    if spelt:
        pattern = "|".join(f"{re.escape(text[0])}(?={re.escape(text[1:])})" for text in spelt)
        cuts, before = pre_tokenizers.Split(Regex(pattern), "isolated"), backend.pre_tokenizer
        backend.pre_tokenizer = cuts if before is None else pre_tokenizers.Sequence([before, cuts])


def _spelt(tokenizer: Any, control: Mapping[str, int]) -> list[str]:
    """Return the control tokens that come out of a text that spells them, alone, between words or within one."""
    texts = [text for spelt in control for text in (spelt, f"a {spelt} a", f"a{spelt}a")]
    found = _numbers(tokenizer, texts)
    return [text for text, number in control.items() if number in found]


def _numbers(tokenizer: Any, texts: Sequence[str]) -> set[int]:
    """Return all tokens of some texts."""
    if not texts:
        return set()
    if callable(tokenizer):
        return set(itertools.chain.from_iterable(tokenizer(texts, add_special_tokens=False)["input_ids"]))
    read = tokenizer.encode_batch(texts, add_special_tokens=False)
    return {number for one in read for number, seen in zip(one.ids, one.attention_mask, strict=True) if seen}
