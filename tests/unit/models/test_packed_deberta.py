"""DeBERTa-v3 packed, against transformers' own, on weights drawn at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.models.nli.packed_deberta import PackedDeberta, fits, length_packs

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

TOKENS, WORDS, BUCKETS = 48, 50, 8

V3: dict[str, Any] = {
    "model_type": "deberta-v2", "relative_attention": True, "share_att_key": True, "norm_rel_ebd": "layer_norm",
    "position_biased_input": False, "type_vocab_size": 0, "pooler_hidden_act": "gelu", "hidden_act": "gelu",
    "pos_att_type": ["p2c", "c2p"], "position_buckets": BUCKETS,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DeBERTa-v3 of two layers, whose buckets are full long before its positions end."""
    import torch  # noqa: PLC0415 - takes seconds
    from transformers import DebertaV2Config, DebertaV2ForSequenceClassification  # noqa: PLC0415

    torch.manual_seed(0)
    config = DebertaV2Config(
        **{name: value for name, value in V3.items() if name != "model_type"}, vocab_size=WORDS, hidden_size=32,
        num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=TOKENS,
        pooler_hidden_size=32, initializer_range=0.3, num_labels=3,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("nli") / "deberta"
    DebertaV2ForSequenceClassification(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def exact(folder: Path) -> PackedDeberta:
    return PackedDeberta(folder, device="cpu", dtype="float32", max_tokens=TOKENS)


@pytest.fixture(scope="module")
def half(folder: Path) -> PackedDeberta:
    return PackedDeberta(folder, device="cpu", dtype="bfloat16", max_tokens=TOKENS)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    from transformers import AutoModelForSequenceClassification  # noqa: PLC0415

    return AutoModelForSequenceClassification.from_pretrained(folder).eval()


rows = st.lists(st.integers(1, WORDS - 1), min_size=1, max_size=TOKENS)
packs = st.lists(rows, min_size=1, max_size=6).map(lambda pack: sorted(pack, key=len, reverse=True))


@settings(max_examples=30, deadline=None)
@given(pack=packs)
def test_packed_logits_are_those_of_transformers(exact: PackedDeberta, half: PackedDeberta, theirs: Any, pack: Any):
    import torch  # noqa: PLC0415

    with torch.inference_mode():
        meant = np.concatenate([theirs(input_ids=torch.tensor([row])).logits.numpy() for row in pack])
    assert exact.logits(pack) == pytest.approx(meant, abs=1e-4)
    assert half.logits(pack) == pytest.approx(meant, abs=0.2)


@settings(max_examples=30, deadline=None)
@given(pack=packs, other=packs)
def test_logits_in_float32_are_the_same_in_any_pack(exact: PackedDeberta, pack: Any, other: Any):
    alone = np.concatenate([exact.logits([row]) for row in pack])
    order = sorted(range(len(pack) + len(other)), key=lambda index: -len([*pack, *other][index]))
    together = exact.logits([[*pack, *other][index] for index in order])
    found = {index: together[place] for place, index in enumerate(order)}
    assert np.stack([found[index] for index in range(len(pack))]) == pytest.approx(alone, abs=1e-5)


def test_what_is_no_deberta_v3_does_not_fit():
    assert fits(V3)
    assert fits(V3 | {"pos_att_type": "p2c|c2p"})
    changes: list[dict[str, object]] = [
        {"model_type": "bert"}, {"relative_attention": False}, {"conv_kernel_size": 3}, {"pos_att_type": ["c2p"]},
        {"pos_att_type": 5}, {"position_buckets": -1}, {"position_buckets": "many"}, {"position_biased_input": True},
        {"type_vocab_size": 2}, {"hidden_act": "relu"}, {"embedding_size": 16}, {"share_att_key": False},
    ]  # fmt: skip
    for change in changes:
        assert not fits(V3 | change), change
    assert not fits({})


@given(lengths=st.lists(st.integers(1, 600), max_size=200), limit=st.integers(1, 2_000))
def test_every_pair_is_in_one_pack_and_no_pack_is_too_large(lengths: list[int], limit: int):
    found = length_packs(lengths, limit)
    assert sorted(index for pack in found for index in pack) == list(range(len(lengths)))
    for pack in found:
        assert sum(lengths[index] for index in pack) <= limit or len(pack) == 1
    order = [lengths[index] for pack in found for index in pack]
    assert order == sorted(order, reverse=True)
