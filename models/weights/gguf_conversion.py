"""Turn a quantised GGUF file into the bf16 safetensors folder that vLLM serves, tokenizer and chat template included.

Runs as its own process (`python -m memory_audit.models.weights.gguf_conversion GGUF OUT`), because dequantising needs
twice the model in memory and Python gives little of it back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from memory_audit.errors import ModelError
from memory_audit.models.telemetry import tell_nobody

__all__ = ["convert", "convert_in_subprocess"]


def convert(gguf: Path, out: Path) -> None:
    """Dequantise `gguf` and save model, tokenizer and chat template in `out`."""
    tell_nobody()
    import torch  # noqa: PLC0415 - only this process pays for it
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        quantization_config=GgufConfig(gguf_file=gguf.name, dequantize=True),
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def convert_in_subprocess(gguf: Path, out: Path) -> None:
    """Run `convert` in a process of its own.

    Raises:
        ModelError: the process failed; carries the last line it wrote.
    """
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.run(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", "memory_audit.models.weights.gguf_conversion", str(gguf), str(out)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if process.returncode != 0:
        last = (process.stderr.strip().splitlines() or ["no output"])[-1]
        raise ModelError(f"converting {gguf.name} failed with exit code {process.returncode}: {last[:300]}")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
