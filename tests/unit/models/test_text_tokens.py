"""No text spells a control token, whatever kind of tokenizer reads it; others are read as ever."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from memory_audit.errors import ModelError
from memory_audit.models.text_tokens import read_as_text
from memory_audit.models.weights.packaged import ensure

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(600)  # the first use on a machine assembles the packaged models

MARKS = ("<s>", "</s>", "<pad>", "[SEP]", "[PAD]", "[MASK]", "<mask>", "<tool_call>", "<|im_end|>", "[UNK]")
UNKNOWN = {"unk_token": "[UNK]"}
ENDS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIKLMNOPSTUVW<>/[]|_.:;! \n"
SPLITTERS = ("", " ", "\t", "a", "[", "<", "\u2581", "\u200b")


def special(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([mark for mark in MARKS if mark not in ("<mask>", "<tool_call>", "[UNK]")])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=True)])
    tokenizer.add_special_tokens([AddedToken("[UNK]", normalized=True)])
    tokenizer.add_tokens(["<tool_call>", "   "])  # not special, as in Qwen2.5; and a run of blanks
    return tokenizer


def pieces() -> Tokenizer:
    """As of XLM-RoBERTa and DeBERTa-v3: the vocabulary has the control tokens, and nothing is as likely."""
    vocabulary = [(mark, 0.0) for mark in MARKS] + [(letter, -3.0) for letter in "\u2581" + LETTERS.replace(" ", "")]
    made = Tokenizer(models.Unigram([*vocabulary, ("\u2581a", -2.0), ("ab", -2.5)], MARKS.index("[UNK]"), False))
    made.normalizer, made.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    return special(made)


def pieces_of_the_whole() -> Tokenizer:
    made = pieces()
    made.pre_tokenizer = None
    return made


def words() -> Tokenizer:
    made = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate((*MARKS, "a", "ab", "SEP]", "["))}, "[UNK]")
    )
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return special(made)


def word_pieces() -> Tokenizer:
    """As of BERT."""
    known = (*MARKS, *LETTERS.replace(" ", "").replace("\n", ""), *(f"##{letter}" for letter in LETTERS))
    made = Tokenizer(models.WordPiece({word: number for number, word in enumerate(known)}, **UNKNOWN))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    return special(made)


def merged_bytes() -> Tokenizer:
    """As of RoBERTa, with words that its vocabulary has taken whole."""
    known = {word: number for number, word in enumerate((*MARKS, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"))}
    made = Tokenizer(models.BPE(known, [("a", "b")], ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return special(made)


KINDS = (pieces, pieces_of_the_whole, words, word_pieces, merged_bytes)
PACKAGED = {"minilm": slice(1, -1), "nli": slice(1, -1), "0.5b": slice(None)}
"""And where the text is among the tokens that their template makes of it."""

texts = st.lists(
    st.one_of(st.sampled_from(MARKS), st.sampled_from(SPLITTERS), st.text(LETTERS, max_size=12), st.text(max_size=8)),
    max_size=6,
).map("".join)


def control_of(tokenizer: Any) -> set[int]:
    """The numbers of all control tokens but the unknown's, which any rare letter gives."""
    added = getattr(tokenizer, "added_tokens_decoder", None) or tokenizer.get_added_tokens_decoder()
    return {number for number, token in added.items() if token.content.strip() and token.content != "[UNK]"}


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return found


MADE = {make: (make(), make()) for make in KINDS}
for _, _ours in MADE.values():
    read_as_text(_ours)


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
def test_no_text_spells_a_control_token_and_texts_that_spell_none_are_read_as_ever(
    kind: Callable[[], Tokenizer], text: str
):
    plain, ours = MADE[kind]
    control = control_of(plain)
    read, before = ids(ours, text), ids(plain, text)
    assert not control & set(read)
    if not control & set(before) and "[unk]" not in unicodedata.normalize("NFKC", text).casefold():
        assert read == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mark", MARKS)
def test_each_would_be_read_as_one_without(kind: Callable[[], Tokenizer], mark: str):
    plain, ours = MADE[kind]
    assert plain.token_to_id(mark) in ids(plain, mark)
    assert len(ids(ours, f"a {mark}")) > len(ids(plain, f"a {mark}")) or mark == "[UNK]" or kind is words


def test_a_mark_that_normalisation_spells_is_read_as_letters():
    plain, ours = MADE[pieces]
    spelt = "<\uff53>"  # a wide s
    assert plain.token_to_id("<s>") in ids(plain, spelt)
    assert ours.token_to_id("<s>") not in ids(ours, spelt)


def test_runs_of_blanks_that_a_vocabulary_has_stay_one_token():
    plain, ours = MADE[merged_bytes]
    assert ids(ours, "a   b") == ids(plain, "a   b") == [plain.token_to_id(part) for part in ("a", "   ", "b")]


@pytest.mark.parametrize("kind", KINDS)
def test_templates_still_put_control_tokens_around_texts_and_pairs(kind: Callable[[], Tokenizer]):
    backend = kind()
    names = [("<s>", backend.token_to_id("<s>")), ("</s>", backend.token_to_id("</s>"))]
    backend.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B </s>", names)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **UNKNOWN, **ENDS)
    read_as_text(tokenizer)
    (start, end) = (number for _, number in names)
    one, two = (tokenizer(*pair)["input_ids"] for pair in (("a </s>", "ab"), ("a", "</s> ab")))
    for found in (one, two):
        assert [number for number in found if number in (start, end)] == [start, end, end]
    assert one != two
    padded = tokenizer(["a", "a </s> a"], padding=True)["input_ids"]
    assert padded[0][-1] == tokenizer.pad_token_id


def test_reading_as_text_twice_is_reading_as_text():
    once, twice = pieces(), pieces()
    for tokenizer in (once, twice, twice):
        read_as_text(tokenizer)
    assert once.to_str() == twice.to_str()


class Deaf(PreTrainedTokenizerBase):
    """Reads control tokens whatever it is told."""

    added_tokens_decoder = {7: AddedToken("[SEP]", special=True)}  # noqa: RUF012

    def __init__(self) -> None:
        self.split_special_tokens = False

    def __call__(self, given: list[str], **_options: object) -> dict[str, list[list[int]]]:  # type: ignore[override]
        return {"input_ids": [[7] if "[SEP]" in text else [8] for text in given]}


def test_a_tokenizer_that_reads_control_tokens_all_the_same_is_refused():
    with pytest.raises(ModelError, match=r"reads \[SEP\] in a text as control tokens"):
        read_as_text(Deaf())


@pytest.fixture(scope="module")
def loaded() -> dict[str, tuple[Any, Any]]:
    from transformers import AutoTokenizer  # noqa: PLC0415 - takes seconds

    found = {}
    for name in PACKAGED:
        plain, ours = (AutoTokenizer.from_pretrained(ensure(name)) for _ in range(2))
        read_as_text(ours)
        found[name] = plain, ours
    return found


@pytest.mark.weights
@pytest.mark.parametrize("name", PACKAGED)
@given(text=texts)
def test_the_packaged_models_read_the_letters_of_every_text(loaded: dict[str, tuple[Any, Any]], name: str, text: str):
    plain, ours = loaded[name]
    control, body = control_of(plain), PACKAGED[name]
    read, before = (tokenizer(text)["input_ids"] for tokenizer in (ours, plain))
    assert not control & set(read[body])
    if not control & set(before[body]) and "[UNK]" not in text:
        assert read == before
