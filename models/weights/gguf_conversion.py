"""Make a Hugging Face folder of a Qwen2 that lies in the parts of a GGUF file, one tensor at a time.

The forms of a folder:

    bf16     its weights as bf16 safetensors, which vLLM serves
    int8     as int8 ones, see `memory_audit.models.weights.int8_weights`
    packed   none: they are read from the parts, see `memory_audit.models.weights.packed_weights`

Weights are converted in a process of its own, which gives back at its end what they took in memory:
`python -m memory_audit.models.weights.gguf_conversion FORM OUT PART...`.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from memory_audit.models.libraries.telemetry import tell_nobody
from memory_audit.models.weights.gguf_file import GgufFile
from memory_audit.models.weights.int8_weights import int8_settings, int8_tensors
from memory_audit.models.weights.own_process import run_module
from memory_audit.models.weights.packed_weights import AT_ONCE, write_packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from memory_audit.models.weights.gguf_file import StoredTensor, Value

__all__ = ["FORMS", "Form", "convert", "convert_in_subprocess"]

Form = Literal["bf16", "int8", "packed"]
FORMS: tuple[Form, ...] = get_args(Form)

_HEAD = "head.gguf"


def convert(form: Form, out: Path, gguf: GgufFile) -> None:
    """Write the folder `out`, which must not exist: settings, tokenizer with chat template, and the weights' form.

    Raises:
        ModelError: no GGUF file, or a damaged one.
    """
    tell_nobody()
    settings, stored, first = gguf.head()
    out.mkdir()
    _save_tokenizer(gguf, first, out)
    names = _save_settings(settings, out)
    tensors = {name: stored[source] for name, source in names.items()}
    if form == "packed":
        write_packed(out, gguf, tensors)
        return
    if form == "int8":
        file = out / "config.json"
        file.write_text(json.dumps(int8_settings(json.loads(file.read_text())), indent=1) + "\n")
    _save_weights(gguf, tensors, out, int8=form == "int8")


def convert_in_subprocess(form: Form, out: Path, parts: Sequence[Path]) -> None:
    """Run `convert` in a process of its own.

    Raises:
        ModelError: the process failed; carries the last line it wrote.
    """
    run_module(__spec__.name, form, str(out), *map(str, parts), what=f"converting {parts[0].name} to {form}")


def _save_tokenizer(gguf: GgufFile, first: int, out: Path) -> None:
    """Save the tokenizer that the head of the file describes; what follows the head is a hole for those who map it."""
    from transformers import Qwen2Tokenizer  # noqa: PLC0415 - by name: `Auto` would read the head twice more, slowly

    head = out / _HEAD
    with head.open("wb") as file:
        file.write(gguf.read(0, first))
        file.truncate(sum(part.stat().st_size for part in gguf.parts))
    tokenizer = Qwen2Tokenizer.from_pretrained(out, gguf_file=_HEAD, local_files_only=True)
    head.unlink()
    tokenizer.save_pretrained(out)


def _save_settings(settings: dict[str, Value], out: Path) -> dict[str, str]:
    """Save the model's settings, and return its weights' names in the file by the names that transformers has."""
    import torch  # noqa: PLC0415 - only this process pays for it
    from gguf import MODEL_ARCH, get_tensor_name_map  # noqa: PLC0415 - likewise
    from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: PLC0415 - likewise

    layers = settings["qwen2.block_count"]
    config = Qwen2Config(
        _model_name_or_path=settings["general.name"],
        architectures=[Qwen2ForCausalLM.__name__],
        vocab_size=settings["tokenizer.ggml.tokens"],
        hidden_size=settings["qwen2.embedding_length"],
        intermediate_size=settings["qwen2.feed_forward_length"],
        num_hidden_layers=layers,
        num_attention_heads=settings["qwen2.attention.head_count"],
        num_key_value_heads=settings["qwen2.attention.head_count_kv"],
        max_position_embeddings=settings["qwen2.context_length"],
        rms_norm_eps=settings["qwen2.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_theta": settings["qwen2.rope.freq_base"], "rope_type": "default"},
        bos_token_id=settings["tokenizer.ggml.bos_token_id"],
        eos_token_id=settings["tokenizer.ggml.eos_token_id"],
        pad_token_id=settings["tokenizer.ggml.padding_token_id"],
        tie_word_embeddings=False,
    )
    with torch.device("meta"):  # for the names alone
        model = Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16)  # noqa: SLF001 - as its Auto class does
    model.config.save_pretrained(out)
    model.generation_config.save_pretrained(out)
    known = get_tensor_name_map(MODEL_ARCH.QWEN2, layers)
    return {name: known.get_name(name, try_suffixes=(".weight", ".bias")) for name in model.state_dict()}


def _save_weights(gguf: GgufFile, tensors: dict[str, StoredTensor], out: Path, *, int8: bool) -> None:
    from safetensors.torch import save_file  # noqa: PLC0415 - only this process pays for it

    def form(item: tuple[str, StoredTensor]) -> dict[str, torch.Tensor]:
        name, stored = item
        tensor = gguf.bf16(stored)
        return int8_tensors(name, tensor) if int8 else {name: tensor}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        weights = {name: tensor for found in pool.map(form, tensors.items()) for name, tensor in found.items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    convert(cast("Form", sys.argv[1]), Path(sys.argv[2]), GgufFile([Path(part) for part in sys.argv[3:]]))
