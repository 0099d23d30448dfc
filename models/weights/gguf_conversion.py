"""Turn a quantised GGUF file into the bf16 safetensors folder that vLLM serves, tokenizer and chat template included.

Runs as its own process (`python -m memory_audit.models.weights.gguf_conversion GGUF OUT`), because dequantising needs
twice the model in memory and Python gives little of it back.
"""

from __future__ import annotations

import sys
from pathlib import Path

from memory_audit.models.libraries.telemetry import tell_nobody
from memory_audit.models.weights.own_process import run_module

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
    run_module(__spec__.name, str(gguf), str(out), what=f"converting {gguf.name}")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
