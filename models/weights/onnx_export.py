"""Export a Hugging Face sequence classifier to ONNX with free batch and length, and quantise its weights to int8.

Weights become int8 per tensor; activations are quantised on the fly (ONNX Runtime's dynamic quantisation). Logits move
by a few tenths, rankings hardly: `memory_audit.models.nli.nli_model` states which graph it runs. The graph's inputs are
`input_ids`, `attention_mask` and, of models that tell premise from hypothesis by them, `token_type_ids`.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from pathlib import Path

from memory_audit.models.telemetry import tell_nobody
from memory_audit.models.weights.own_process import run_module

__all__ = ["INT8_GRAPH", "export_int8", "export_int8_in_subprocess"]

INT8_GRAPH = "model-int8.onnx"

SEGMENTS_FLAG = "--segments"

_OPSET = 17
"""The last operator set that every execution provider of ONNX Runtime 1.2x supports in full."""


def export_int8(folder: Path, out: Path, *, segments: bool = False) -> None:
    """Write an int8 ONNX graph; `out` is there whole or not at all, and nothing else is left beside it.

    Args:
        folder: The classifier.
        out: The graph.
        segments: Whether the graph takes `token_type_ids`.
    """
    tell_nobody()
    import torch  # noqa: PLC0415 - heavy, and needed once per machine
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415
    from transformers import AutoModelForSequenceClassification  # noqa: PLC0415

    class Logits(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)

        def forward(self, *given: torch.Tensor) -> torch.Tensor:
            return self.model(**dict(zip(names, given, strict=True)), return_dict=False)[0]

    ids = torch.tensor([[1, 5, 6, 2], [1, 7, 2, 0]])
    example = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if segments:
        example["token_type_ids"] = torch.tensor([[0, 0, 1, 1], [0, 0, 1, 0]])
    names, free = list(example), {0: "batch", 1: "tokens"}
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".export-") as work, warnings.catch_warnings():
        exact, partial = Path(work) / "float32.onnx", Path(work) / out.name
        warnings.simplefilter("ignore")  # the tracer warns of every Python branch it follows
        torch.onnx.export(
            Logits().eval(), tuple(example.values()), str(exact), dynamo=False, opset_version=_OPSET,
            input_names=names, output_names=["logits"],
            dynamic_axes=dict.fromkeys(names, free) | {"logits": {0: "batch"}},
        )  # fmt: skip
        logging.getLogger().setLevel(logging.ERROR)  # one line of advice that does not apply to dynamic quantisation
        quantize_dynamic(exact, partial, weight_type=QuantType.QInt8)
        partial.replace(out)


def export_int8_in_subprocess(folder: Path, out: Path, *, segments: bool = False) -> None:
    """Run `export_int8` in a process of its own, which gives its memory back.

    Raises:
        ModelError: the process failed; carries the last line it wrote.
    """
    flags = [SEGMENTS_FLAG] if segments else []
    run_module(__spec__.name, str(folder), str(out), *flags, what=f"exporting {folder} to ONNX")


if __name__ == "__main__":
    export_int8(Path(sys.argv[1]), Path(sys.argv[2]), segments=SEGMENTS_FLAG in sys.argv[3:])
