"""A tokenizer of whole words with a chat template, for tests that need a transformers tokenizer and no weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, models, pre_tokenizers

if TYPE_CHECKING:
    from collections.abc import Mapping


def word_tokenizer(words: Mapping[str, int]) -> Any:
    """Give the words these ids; everything else is unknown (0)."""
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - takes seconds

    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "eos_token": "[END]"}
    vocabulary = {token: number for number, token in enumerate(special.values())} | dict(words)
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=made, **special)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }} : {{ m.content }} ; {% endfor %}assistant : "
    return tokenizer
