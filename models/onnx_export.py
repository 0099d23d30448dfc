"""Export a Hugging Face sequence classifier to ONNX with free batch and length, and quantise its weights to int8.

Weights become int8 per tensor; activations are quantised on the fly (ONNX Runtime's dynamic quantisation). Logits move
by a few tenths, rankings hardly: `models.entailment` states which graph it runs. The graph's inputs are `input_ids` and
`attention_mask`.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

from audit.errors import ModelError
from models.telemetry import tell_nobody

__all__ = ["INT8_GRAPH", "export_int8", "export_int8_in_subprocess"]

INT8_GRAPH = "model-int8.onnx"

_OPSET = 17
"""The last operator set that every execution provider of ONNX Runtime 1.2x supports in full."""


def export_int8(folder: Path, out: Path) -> None:
    """Write `out` (an int8 ONNX graph) from the classifier in `folder`."""
    tell_nobody()
    import torch  # noqa: PLC0415 - heavy, and needed once per machine
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415
    from transformers import AutoModelForSequenceClassification  # noqa: PLC0415

    class Logits(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]

    ids = torch.tensor([[1, 5, 6, 2], [1, 7, 2, 0]])
    free = {0: "batch", 1: "tokens"}
    exact, partial = out.with_suffix(".float32.partial"), out.with_suffix(".partial")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer warns of every Python branch it follows
        torch.onnx.export(
            Logits().eval(), (ids, torch.ones_like(ids)), str(exact), dynamo=False, opset_version=_OPSET,
            input_names=["input_ids", "attention_mask"], output_names=["logits"],
            dynamic_axes={"input_ids": free, "attention_mask": free, "logits": {0: "batch"}},
        )  # fmt: skip
        logging.getLogger().setLevel(logging.ERROR)  # one line of advice that does not apply to dynamic quantisation
        quantize_dynamic(exact, partial, weight_type=QuantType.QInt8)
    exact.unlink()
    partial.rename(out)


def export_int8_in_subprocess(folder: Path, out: Path) -> None:
    """Run `export_int8` in a process of its own, which gives its memory back.

    Raises:
        ModelError: the process failed; carries the last line it wrote.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.run(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", "models.onnx_export", str(folder), str(out)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if process.returncode != 0:
        last = (process.stderr.strip().splitlines() or ["no output"])[-1]
        raise ModelError(f"exporting {folder} to ONNX failed with exit code {process.returncode}: {last[:300]}")


if __name__ == "__main__":
    export_int8(Path(sys.argv[1]), Path(sys.argv[2]))
