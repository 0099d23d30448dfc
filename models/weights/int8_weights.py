"""Weights in int8 (W8A8, round to nearest), in compressed-tensors layout, which vLLM serves.

Weights: one symmetric scale per output row. Activations: one scale per token, computed while serving. Norms, embeddings
and the output head stay bf16. No calibration data are needed, and none is used. Outputs differ from bf16: opt in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_audit.models.weights.gguf_file import ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

__all__ = ["int8_settings", "int8_tensors"]

_INT8_MAX = 127.0
_PROJECTIONS = ("_proj.weight",)
"""Linear layers of Llama-like decoders: q, k, v, o, gate, up and down."""


def int8_tensors(name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what is stored of a bf16 tensor: of a projection its int8 form and scales, else the tensor."""
    import torch  # noqa: PLC0415 - heavy, and needed once per machine

    if not name.endswith(_PROJECTIONS):
        return {name: tensor}
    integers, scales = [], []
    for rows in tensor.split(ROWS):
        values = rows.float()
        scales.append(values.abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / _INT8_MAX)
        integers.append((values / scales[-1]).round().clamp(-_INT8_MAX, _INT8_MAX).char())
    return {name: torch.cat(integers), f"{name}_scale": torch.cat(scales)}


def int8_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a bf16 model's `config.json` as that of its int8 form."""
    return dict(config) | {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "int-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {
                        "num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False,
                    },
                    "input_activations": {
                        "num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True,
                    },
                }
            },
        }
    }  # fmt: skip
