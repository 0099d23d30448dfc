"""Marks of chat templates in quoted text: broken up for every family of models that is named, and nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.models.weights.packaged import ensure
from memory_audit.text.chat_marks import without_chat_marks

pytestmark = pytest.mark.timeout(600)  # the first use on a machine assembles the packaged backbone

NAMED = """
<|im_start|> <|im_end|> <|endoftext|> <|fim_prefix|> <tool_call> </tool_call> <tool_response> <think> </think>
<s> </s> <unk> <pad> <mask> [INST] [/INST] [inst] <<SYS>> <</SYS>> <bos> <eos> <start_of_turn> <end_of_turn>
<start_of_image> <unused7> <extra_id_0> <BOS_TOKEN> <PAD> <UNK> <CLS> <SEP> <MASK_TOKEN> <reserved_106> <sop> <eop>
[CLS] [SEP] [PAD] [UNK] [MASK] [gMASK] [sMASK] [BOS] [EOS] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CALLS]
[AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [IMG] [IMG_BREAK] [IMG_END] [PREFIX] [SUFFIX] [THINK] [/THINK]
[|user|] [|endofturn|] <fim_prefix> <fim_suffix> <file_sep> <repo_name> <image> [UNUSED_TOKEN_146] [control_8]
<\uff5cend\u2581of\u2581sentence\uff5c> <\uff5cUser\uff5c>
"""
MARKS = NAMED.split()


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("frame", ["{}", "a{}b", "[{}]", "<{}>", "{0}{0}"])
def test_a_mark_is_broken_up_wherever_it_stands_by_spaces_alone(mark: str, frame: str):
    text = frame.format(mark)
    shown = without_chat_marks(text)
    assert mark not in shown
    assert shown.replace(" ", "") == text


@pytest.mark.parametrize(
    "text", ["a < b > c", "<access_token>", "<b>bold", "[mask] and [pad]", "see [1], [SEPT] and [note]", "List<String>"]
)
def test_other_brackets_stay_as_they_are(text: str):
    assert without_chat_marks(text) == text


@pytest.fixture(scope="module")
def backbone() -> Any:
    from transformers import AutoTokenizer  # noqa: PLC0415 - takes seconds

    return AutoTokenizer.from_pretrained(ensure("0.5b"))


@pytest.mark.weights
def test_the_packaged_backbone_reads_no_mark_of_its_own_in_quoted_text(backbone: Any):
    added = {number: token.content for number, token in backbone.added_tokens_decoder.items()}

    @given(text=st.lists(st.one_of(st.sampled_from(list(added.values())), st.text(max_size=4)), max_size=6))
    def quoted(text: list[str]) -> None:
        assert not set(backbone(without_chat_marks("".join(text)))["input_ids"]) & added.keys()

    quoted()
    for one, other in itertools.pairwise(added.values()):
        assert not set(backbone(without_chat_marks(f"{one}{other}"))["input_ids"]) & added.keys()
