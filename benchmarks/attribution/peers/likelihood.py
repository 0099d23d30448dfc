"""How likely a given answer is after a prompt, teacher-forced: what RAGOrigin and TracLLM ask of a language model.

Weights run in transformers, since vLLM's `prompt_logprobs` bypasses its prefix cache. A pass is prefill alone. One that
was made already is not made again here, but counted as often as a method asks for it.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.attribution.peers.metered import Cost
from memory_audit.errors import UsageError
from memory_audit.generation import TokenUsage
from memory_audit.models.weights.packaged import ensure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_audit.generation import Message

__all__ = ["Likelihood", "TeacherForced", "load_model", "weights_of"]


def weights_of(backbone: str) -> Path:
    """Return a backbone's folder; of a packaged one rounded to int8, which vLLM alone serves, the original's.

    Raises:
        UsageError: it is a server.
    """
    name, _, size = backbone.partition(":")
    if name == "packaged":
        return ensure((size or "1.5b").removesuffix("-int8"))
    if not Path(backbone).is_dir():
        raise UsageError(f"backbone {backbone!r:.80}: its likelihoods need weights in a folder, a server will not do")
    return Path(backbone)


@functools.cache
def load_model(folder: Path) -> tuple[Any, Any]:
    """Load the backbone's weights in transformers, bfloat16 as they are served; returns model and tokenizer."""
    import torch  # noqa: PLC0415 - heavy, and only for these peers
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.bfloat16).to(device).eval()
    return model, AutoTokenizer.from_pretrained(str(folder))


class Likelihood(Protocol):
    """Gives log-probabilities of answers."""

    cost: Cost
    """Of all passes asked for since it was last set. Its seconds are what the time that passed lacks: those of passes
    that were not made again, less what loading took."""

    def token_nats(self, messages: Sequence[Message], answer: str) -> Sequence[float]:
        """Return the log-probability of each token of an answer, in nats, given the messages before it."""
        ...


class TeacherForced:
    """Implements `Likelihood` on a transformers causal language model.

    Args:
        load: Loads the model, and its tokenizer with a chat template; called when they are first needed.
    """

    def __init__(self, load: Callable[[], tuple[Any, Any]]) -> None:
        self._load = load
        self._known: dict[tuple[tuple[int, ...], int], tuple[tuple[float, ...], float]] = {}
        self.cost = Cost(seconds=0.0)

    def token_nats(self, messages: Sequence[Message], answer: str) -> Sequence[float]:
        """See `Likelihood`."""
        model, tokenizer = self._loaded
        chat = [{"role": message.role, "content": message.content} for message in messages]
        prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        before, forced = (tokenizer.encode(text, add_special_tokens=False) for text in (prompt, answer))
        key = (*before, *forced), len(forced)
        self.cost.calls += 1
        self.cost.usage += TokenUsage(prompt_tokens=len(key[0]))
        if key in self._known:
            self.cost.seconds = (self.cost.seconds or 0.0) + self._known[key][1]
        else:
            began = time.perf_counter()
            nats = _pass(model, *key)
            self._known[key] = nats, time.perf_counter() - began
        return self._known[key][0]

    @functools.cached_property
    def _loaded(self) -> tuple[Any, Any]:
        began = time.perf_counter()
        loaded = self._load()
        self.cost.seconds = (self.cost.seconds or 0.0) - (time.perf_counter() - began)
        return loaded


def _pass(model: Any, ids: tuple[int, ...], forced: int) -> tuple[float, ...]:
    """Return the log-probabilities of the last `forced` ids."""
    if not forced:
        return ()
    import torch  # noqa: PLC0415

    with torch.inference_mode():
        shown = torch.tensor([ids], device=model.device)
        output = model(input_ids=shown, attention_mask=torch.ones_like(shown), logits_to_keep=forced + 1)
        of_all = torch.log_softmax(output.logits[0, -forced - 1 : -1].float(), dim=-1)
        nats: list[float] = of_all.gather(1, shown[0, -forced:, None])[:, 0].tolist()
    return tuple(nats)
