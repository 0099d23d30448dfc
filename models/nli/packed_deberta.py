"""DeBERTa-v3 over pairs that lie packed one behind another: what transformers computes, a few times as fast on a CPU.

He et al., arXiv 2006.03654 (disentangled attention) and 2111.09543 (DeBERTa-v3). What is done otherwise:

1. Linear layers run over the tokens of a whole pack, without padding. Attention runs over pairs of one length at a
   time, without a mask.
2. Keys and queries of all distances are projected once, at loading. Those of a length are a slice of them, and where
   distance i - j stands in their product with n tokens is a skewed view of it: nothing is gathered.
3. After attention the last layer goes on with the first token of each pair alone, all that the classifier reads.

With bfloat16, matrix products and attention are in it; the residual stream, norms and classifier are float32.

A pair's scores do not depend on the rest of its pack: no operation mixes pairs, and oneDNN sums a row of a product in
one order, however many rows there are. Measured: 4e-7, all of it from the classifier's float32.
"""

from __future__ import annotations

import itertools
import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memory_audit.models.libraries.library_noise import without_bars
from memory_audit.models.libraries.telemetry import tell_nobody

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["PackedDeberta", "fits", "length_packs"]

_SETTINGS: Mapping[str, object] = {
    "model_type": "deberta-v2", "relative_attention": True, "share_att_key": True, "norm_rel_ebd": "layer_norm",
    "position_biased_input": False, "type_vocab_size": 0, "conv_kernel_size": 0, "hidden_act": "gelu",
    "pooler_hidden_act": "gelu",
}  # fmt: skip
"""Of the config.json of every DeBERTa-v3. The second version alone adds a convolution."""

_DEFAULTS: Mapping[str, object] = {"conv_kernel_size": 0, "hidden_act": "gelu"}


def fits(config: Mapping[str, Any]) -> bool:
    """Tell from a model's `config.json` whether it is one of these."""
    kinds, buckets = config.get("pos_att_type"), config.get("position_buckets")
    return (
        all((config.get(name, _DEFAULTS.get(name)) or 0) == (meant or 0) for name, meant in _SETTINGS.items())
        and kinds in ("p2c|c2p", "c2p|p2c", ["p2c", "c2p"], ["c2p", "p2c"])
        and isinstance(buckets, int)
        and buckets > 0
        and config.get("embedding_size") in (None, config.get("hidden_size"))
        and "attention_head_size" not in config
    )


class _Layer(NamedTuple):
    """Weights of a layer; a linear layer or norm is (weight, bias)."""

    qkv: tuple[Any, Any]
    out: tuple[Any, Any]
    out_norm: tuple[Any, Any]
    up: tuple[Any, Any]
    down: tuple[Any, Any]
    down_norm: tuple[Any, Any]
    keys: Any
    """Shape (heads, size of a head, 2 x tokens - 1): of distances i - j from tokens - 1 down, over the scale."""

    queries: Any
    """The same, from 1 - tokens up."""


class PackedDeberta:
    """A DeBERTa-v3 sequence classifier.

    Args:
        folder: A Hugging Face folder whose configuration `fits`.
        device: Of torch.
        dtype: Name of torch's type for matrix products.
        max_tokens: Of the longest pair.

    Raises:
        Exception: whatever transformers raises at a folder that it cannot load.
    """

    def __init__(self, folder: Path, *, device: str, dtype: str, max_tokens: int) -> None:
        tell_nobody()
        import torch  # noqa: PLC0415 - takes seconds
        from transformers import AutoModelForSequenceClassification  # noqa: PLC0415

        with warnings.catch_warnings(), without_bars():
            warnings.simplefilter("ignore", DeprecationWarning)  # transformers' DeBERTa still scripts its helpers
            model: Any = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
        config, model = model.config, model.to(device).eval()
        self._device, self._dtype, self._tokens = device, getattr(torch, dtype), max_tokens
        self._heads = config.num_attention_heads
        self._epsilon = config.layer_norm_eps
        self._scale = 1 / math.sqrt(3 * config.hidden_size // self._heads)
        with torch.inference_mode():
            self._words, self._norm = (
                model.deberta.embeddings.word_embeddings.weight,
                _of(model.deberta.embeddings.LayerNorm),
            )
            rows = _rows(torch.arange(1 - max_tokens, max_tokens, device=device), config)
            distances = model.deberta.encoder.get_rel_embedding()[rows]
            self._layers = [self._layer(layer, distances) for layer in model.deberta.encoder.layer]
            self._pooler, self._classifier = _of(model.pooler.dense), _of(model.classifier)

    def _layer(self, layer: Any, distances: Any) -> _Layer:
        import torch  # noqa: PLC0415

        given, dtype = layer.attention.self, self._dtype
        parts = [_of(part) for part in (given.query_proj, given.key_proj, given.value_proj)]
        queries, keys = (
            (torch.nn.functional.linear(distances, *part) * self._scale)
            .view(len(distances), self._heads, -1).permute(1, 2, 0)
            for part in parts[:2]
        )  # fmt: skip
        weights, biases = zip(*parts, strict=True)
        return _Layer(
            qkv=(torch.cat(weights).to(dtype), torch.cat(biases).to(dtype)),
            out=_of(layer.attention.output.dense, dtype), out_norm=_of(layer.attention.output.LayerNorm),
            up=_of(layer.intermediate.dense, dtype),
            down=_of(layer.output.dense, dtype), down_norm=_of(layer.output.LayerNorm),
            keys=keys.flip(2).to(dtype).contiguous(), queries=queries.to(dtype).contiguous(),
        )  # fmt: skip

    def logits(self, pack: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return the model's own logits of a pack, shape (pairs, labels).

        Args:
            pack: Tokens of each pair, at most `max_tokens`; those of one length lie together.
        """
        import torch  # noqa: PLC0415
        from torch.nn.functional import gelu, layer_norm, linear  # noqa: PLC0415

        lengths = [len(tokens) for tokens in pack]
        groups = [(len(list(same)), length) for length, same in itertools.groupby(lengths)]
        with torch.inference_mode():
            tokens = torch.tensor(list(itertools.chain.from_iterable(pack)), device=self._device)
            first = torch.tensor([0, *itertools.accumulate(lengths[:-1])], device=self._device)
            width = self._words.shape[1:]
            hidden = layer_norm(self._words[tokens], width, *self._norm, self._epsilon)
            for layer in self._layers:
                seen = self._attention(linear(hidden.to(self._dtype), *layer.qkv), layer, groups)
                if layer is self._layers[-1]:
                    hidden, seen = hidden[first], seen[first]
                hidden = layer_norm(hidden + linear(seen, *layer.out), width, *layer.out_norm, self._epsilon)
                inner = gelu(linear(hidden.to(self._dtype), *layer.up))
                hidden = layer_norm(hidden + linear(inner, *layer.down), width, *layer.down_norm, self._epsilon)
            logits = linear(gelu(linear(hidden, *self._pooler)), *self._classifier)
            return np.asarray(logits.cpu().numpy(), np.float32)

    def _attention(self, projected: Any, layer: _Layer, groups: Sequence[tuple[int, int]]) -> Any:
        """Return what each token sees of its own pair, shape (tokens, width).

        Args:
            projected: Queries, keys and values, shape (tokens, 3 x width).
            layer: Whose distances count.
            groups: (pairs, tokens of each), in the order of `projected`.
        """
        import torch  # noqa: PLC0415

        heads, seen = self._heads, []
        for part, (pairs, n) in zip(projected.split([pairs * n for pairs, n in groups]), groups, strict=True):
            size = part.shape[1] // (3 * heads)
            split = part.view(pairs * n, 3 * heads, size).transpose(0, 1).contiguous()
            queries, keys, values = split.view(3, heads * pairs, n, size)
            span, of_length = 2 * n - 1, slice(self._tokens - n, self._tokens + n - 1)
            # Row i of the first product has i - j in column n - 1 - i + j, row j of the second in column n - 1 + i - j.
            to_distance = torch.bmm(split[:heads], layer.keys[:, :, of_length])
            from_distance = torch.bmm(split[heads : 2 * heads], layer.queries[:, :, of_length])
            shape = (heads * pairs, n, n)
            bias = from_distance.as_strided(
                shape, (n * span, 1, span - 1), n - 1
            ).contiguous()  # copied, it adds faster
            bias += to_distance.as_strided(shape, (n * span, span - 1, 1), n - 1)
            scores = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=self._scale)
            shares = scores.softmax(-1, dtype=torch.float32).to(self._dtype)
            seen.append(torch.bmm(shares, values).view(heads, pairs * n, size).transpose(0, 1).reshape(pairs * n, -1))
        return torch.cat(seen)


def length_packs(lengths: Sequence[int], pack_tokens: int) -> list[list[int]]:
    """Group indices by length so that no pack has more than `pack_tokens` tokens (one pair always fits).

    Longest first: memory peaks in the first pack, not hours into a run.
    """
    packs: list[list[int]] = []
    left = 0
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if lengths[index] > left or not packs:
            packs.append([])
            left = pack_tokens
        packs[-1].append(index)
        left -= lengths[index]
    return packs


def _of(part: Any, dtype: Any = None) -> tuple[Any, Any]:
    """Return the weight and the bias of a linear layer or a norm."""
    return part.weight.to(dtype), part.bias.to(dtype)


def _rows(distances: Any, config: Any) -> Any:
    """Return the row of the relative embeddings of each distance: near ones have their own, far ones share."""
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position  # noqa: PLC0415

    size = config.position_buckets
    farthest = config.max_relative_positions if config.max_relative_positions > 0 else config.max_position_embeddings
    return (make_log_bucket_position(distances, size, farthest).long() + size).clamp(0, 2 * size - 1)
