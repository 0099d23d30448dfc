"""The backbone in vLLM, in this process: continuous batching, prefix cache, the model's own chat template.

A forced prefix is appended as tokens right after the generation prompt, so the cached prompt before it stays valid.
`prompt_logprobs` is never used: it bypasses vLLM's prefix cache. Log-probabilities are the model's own, before
temperature; under guided decoding they are normalised over what the guide allows, and what it forbids is left out.

One instance belongs to one event loop: the one in which its first request runs.
"""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from memory_audit.errors import AnswerError, ModelError, ModelLostError, PromptTooLongError
from memory_audit.generation import Completion, TokenLogprob, TokenUsage
from memory_audit.models.backbone.interruption import interruptible
from memory_audit.models.backbone.vllm_plugin import marked_as_ours
from memory_audit.models.libraries.library_noise import quiet_vllm
from memory_audit.models.libraries.telemetry import tell_nobody
from memory_audit.models.weights.cache import folder_id

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.generation import GenerationRequest

__all__ = ["SHARED_GPU", "VllmGenerator", "VllmSettings"]

ANSWER_SHARE = 0.25
"""Of the context that a prompt must leave to its answer, where the answer may be so long: in a prompt that nearly fills
the context any harm is cut off after a word or two."""

SHARED_GPU = 0.8
"""Share of a GPU's memory for a backbone that has the NLI model and the embedder beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """How vLLM serves; `benchmarks/systems/serving_settings.py` measures what each setting does on a CPU."""

    max_model_len: int = 8_192
    """Prompt and answer together, in tokens."""

    max_num_seqs: int = 32
    """Requests decoded together."""

    max_num_batched_tokens: int = 4_096
    """Tokens computed in one step; on a CPU at least `max_model_len`, since prompts are not split there."""

    kv_cache_gib: int = 4
    """Memory of the prefix cache on CPU; on GPU vLLM takes what is left of its share."""

    gpu_memory_share: float | None = None
    """Of a GPU's memory; None is vLLM's own default, which leaves nothing for a second model. vLLM does not start where
    its share is not free."""

    block_size: int | None = None
    """Tokens in one block of the prefix cache; None leaves the choice to vLLM."""

    enforce_eager: bool | None = None
    """Skip compilation. None: skip it on CPU, where it costs minutes at each start, and compile on a GPU."""

    reserved_cores: int = 0
    """Cores vLLM leaves free on CPU. Its own default of 1 halves a machine of two."""

    dtype: str = "bfloat16"


class VllmGenerator:
    """Implements `memory_audit.models.protocols.Generator` over vLLM's AsyncLLM.

    Raises:
        ModelError: the folder cannot be served.
    """

    def __init__(self, folder: Path, settings: VllmSettings | None = None) -> None:
        settings = settings or VllmSettings()
        _set_environment(settings)
        quiet_vllm()
        from vllm import AsyncEngineArgs  # noqa: PLC0415 - reads the environment set above, and takes seconds
        from vllm.platforms import current_platform  # noqa: PLC0415
        from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

        self.model_id = folder_id(folder)
        self._settings = settings
        self._numbers = itertools.count()
        eager = settings.enforce_eager
        optional: dict[str, Any] = {} if settings.block_size is None else {"block_size": settings.block_size}
        step_tokens = settings.max_num_batched_tokens
        if current_platform.is_cpu():
            # A prompt that is split over two steps and has a sampling seed ends vLLM's engine on a CPU: it rewinds the
            # seed's generator by an offset, which CPU generators do not have. Unsplit prompts must fit into one step.
            optional["enable_chunked_prefill"] = False
            step_tokens = max(step_tokens, settings.max_model_len)
        elif settings.gpu_memory_share is not None:
            optional["gpu_memory_utilization"] = settings.gpu_memory_share
        try:
            with interruptible(), marked_as_ours():
                self._engine: Any = AsyncLLM.from_engine_args(
                    AsyncEngineArgs(
                        model=str(folder),
                        dtype=settings.dtype,
                        max_model_len=settings.max_model_len,
                        max_num_seqs=settings.max_num_seqs,
                        max_num_batched_tokens=step_tokens,
                        enforce_eager=current_platform.is_cpu() if eager is None else eager,
                        enable_prefix_caching=True,
                        disable_log_stats=True,
                        use_tqdm_on_load=False,
                        **optional,
                    )
                )
        except Exception as error:  # vLLM raises a dozen kinds here, and all mean the same to a user
            raise ModelError(f"vLLM cannot serve {folder}: {_first_line(error)}") from error
        self._tokenizer: Any = self._engine.get_tokenizer()

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request; see `memory_audit.models.protocols.Generator`.

        Raises:
            PromptTooLongError: prompt and answer do not fit into `max_model_len`.
            ModelLostError: the engine is dead, whatever was asked.
        """
        from vllm import SamplingParams  # noqa: PLC0415
        from vllm.exceptions import VLLMError  # noqa: PLC0415

        engine, final = self._engine, None  # which may be closed while this one waits
        try:
            sampling = SamplingParams(
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                seed=request.seed if request.temperature > 0 else None,
                stop=list(request.stop) or None,
                logprobs=request.top_logprobs or None,
                structured_outputs=_structured(request),
            )
            prompt = {"prompt_token_ids": self._fitting_ids(request)}
            async for output in engine.generate(prompt, sampling, f"replay-{next(self._numbers)}"):
                final = output
        except (VLLMError, ValueError, TypeError, TemplateError) as error:  # vLLM's own are no ValueErrors
            if engine.errored:
                raise ModelLostError(f"vLLM died while serving {self.model_id} ({_first_line(error)})") from error
            # Of an engine that lives, what was asked is at fault: its text, a limit, a grammar, a chat template's rule.
            told = error if str(error) else error.__cause__ or error  # what vLLM did not expect it wraps in a blank
            raise AnswerError(f"vLLM refused a request to {self.model_id}: {_first_line(told)}") from error
        if final is None or not final.finished:
            raise AnswerError(f"vLLM ended a request to {self.model_id} without an answer")
        return _completion(final)

    async def reset_prefix_cache(self) -> None:
        """Forget all cached prompts; for measurements. No request may be running."""
        await self._engine.reset_prefix_cache()

    async def close(self) -> None:
        """Stop the engine and give its memory back. Idempotent."""
        # Given up here: collected at the interpreter's exit, the engine prints an error of its own.
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown()

    def _fitting_ids(self, request: GenerationRequest) -> list[int]:
        ids, window = self._prompt_ids(request), self._settings.max_model_len
        room = min(request.max_tokens, max(1, int(ANSWER_SHARE * window)))
        if len(ids) + room > window:
            raise PromptTooLongError(
                f"a prompt of {len(ids)} tokens and an answer of {room} do not fit into the {window} of {self.model_id}"
            )
        return ids

    def _prompt_ids(self, request: GenerationRequest) -> list[int]:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        ids: list[int] = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        if request.prefix:
            ids = ids + self._tokenizer.encode(request.prefix, add_special_tokens=False)
        return ids


def _set_environment(settings: VllmSettings) -> None:
    """Set what vLLM takes only from the environment; what the user has set wins."""
    tell_nobody()
    for name, value in {
        "VLLM_CPU_NUM_OF_RESERVED_CPU": str(settings.reserved_cores),
        "VLLM_CPU_KVCACHE_SPACE": str(settings.kv_cache_gib),
        "VLLM_LOGGING_LEVEL": "ERROR",
    }.items():
        os.environ.setdefault(name, value)


def _structured(request: GenerationRequest) -> Any:
    from vllm.sampling_params import StructuredOutputsParams  # noqa: PLC0415

    if request.choices:
        return StructuredOutputsParams(choice=list(request.choices))
    if request.regex is not None:
        return StructuredOutputsParams(regex=request.regex)
    if request.json_schema is not None:
        return StructuredOutputsParams(json=request.json_schema)
    return None


def _completion(final: Any) -> Completion:
    answer = final.outputs[0]
    if answer.finish_reason not in ("stop", "length"):
        raise AnswerError(f"vLLM ended a request with {answer.finish_reason!r}, expected stop or length")
    top = tuple(
        tuple(
            TokenLogprob(text=item.decoded_token or "", logprob_nats=float(item.logprob))
            for item in sorted(position.values(), key=lambda item: -item.logprob)
            if math.isfinite(item.logprob)
        )
        for position in answer.logprobs or ()
    )
    return Completion(
        text=answer.text,
        finish_reason=answer.finish_reason,
        usage=TokenUsage(
            prompt_tokens=len(final.prompt_token_ids),
            cached_tokens=final.num_cached_tokens or 0,
            completion_tokens=len(answer.token_ids),
        ),
        top=top,
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]
