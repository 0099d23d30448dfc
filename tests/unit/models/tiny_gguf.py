"""A Qwen2 of two layers in a GGUF file, whose tensors are of the kinds that the packaged files have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

if TYPE_CHECKING:
    from pathlib import Path

LAYERS, HIDDEN, HEADS, KEY_HEADS = 2, 256, 4, 2
KEYS = HIDDEN // HEADS * KEY_HEADS
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def write_tiny_gguf(path: Path) -> None:
    """Write the file; its values are random and always the same."""
    import gguf  # noqa: PLC0415 - takes a second

    kinds = gguf.GGMLQuantizationType
    letters = [*sorted(ByteLevel.alphabet()), "he"]
    tokens = [*letters, *SPECIAL]
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_name("Tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(letters) + [3] * len(SPECIAL))
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_pad_token_id(len(letters))
    writer.add_bos_token_id(len(letters))
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(TEMPLATE)

    random = np.random.default_rng(7)

    def add(name: str, rows: int, kind: gguf.GGMLQuantizationType) -> None:
        block, size = gguf.GGML_QUANT_SIZES[kind]  # small bytes are small scales, whatever the kind
        writer.add_tensor(name, random.integers(0, 40, (rows, HIDDEN // block * size), np.uint8), raw_dtype=kind)

    def add_plain(name: str, size: int) -> None:
        writer.add_tensor(name, random.normal(size=size).astype(np.float32))

    add("output.weight", len(tokens), kinds.Q8_0)
    add("token_embd.weight", len(tokens), kinds.Q5_0)
    for layer in range(LAYERS):
        for name, rows, kind in (
            ("attn_q", HIDDEN, kinds.Q5_0), ("attn_k", KEYS, kinds.Q4_K), ("attn_v", KEYS, kinds.Q6_K),
            ("attn_output", HIDDEN, kinds.Q4_K), ("ffn_gate", HIDDEN, kinds.Q4_K), ("ffn_up", HIDDEN, kinds.Q8_0),
            ("ffn_down", HIDDEN, kinds.Q6_K),
        ):  # fmt: skip
            add(f"blk.{layer}.{name}.weight", rows, kind)
        for name, size in (
            ("attn_q.bias", HIDDEN), ("attn_k.bias", KEYS), ("attn_v.bias", KEYS), ("attn_norm.weight", HIDDEN),
            ("ffn_norm.weight", HIDDEN),
        ):  # fmt: skip
            add_plain(f"blk.{layer}.{name}", size)
    add_plain("output_norm.weight", HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def install_parts(gguf: Path, site: Path, module: str, cuts: list[int]) -> list[Path]:
    """Cut a file into parts, each the data of an importable package, and return them."""
    data, parts = gguf.read_bytes(), []
    for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, None], strict=True), start=1):
        folder = site / f"{module}{number}"
        (folder / "data").mkdir(parents=True)
        (folder / "__init__.py").touch()
        parts.append(folder / "data" / f"part{number:02d}.bin")
        parts[-1].write_bytes(data[start:end])
    return parts
