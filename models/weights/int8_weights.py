"""Quantise a bf16 model folder to int8 (W8A8, round to nearest), in compressed-tensors layout, which vLLM serves.

Weights: one symmetric scale per output row. Activations: one scale per token, computed while serving. Norms, embeddings
and the output head stay bf16. No calibration data are needed, and none is used. Outputs differ from bf16: opt in.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["quantise_int8"]

_INT8_MAX = 127.0
_PROJECTIONS = ("_proj.weight",)
"""Linear layers of Llama-like decoders: q, k, v, o, gate, up and down."""


def quantise_int8(folder: Path, out: Path) -> None:
    """Write the int8 form of `folder` to `out`, which must not exist."""
    from safetensors import safe_open  # noqa: PLC0415 - heavy, and needed once per machine
    from safetensors.torch import save_file  # noqa: PLC0415

    out.mkdir()
    for path in sorted(folder.iterdir()):
        if path.name.startswith(("tokenizer", "generation_config", "chat_template", "special_tokens")):
            shutil.copy(path, out)
    for shard in sorted(folder.glob("*.safetensors")):
        tensors = {}
        with safe_open(shard, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                tensor = file.get_tensor(name)
                if name.endswith(_PROJECTIONS):
                    scale = tensor.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / _INT8_MAX
                    tensors[name] = (tensor.float() / scale).round().clamp(-_INT8_MAX, _INT8_MAX).char()
                    tensors[f"{name}_scale"] = scale
                else:
                    tensors[name] = tensor
        save_file(tensors, out / shard.name, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
                "input_activations": {
                    "num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True,
                },
            }
        },
    }  # fmt: skip
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
