"""Chat completions as OpenAI-compatible servers spell them: what is sent, and what may come back.

Beyond the common fields a request has, only where it asks for them, vLLM's `continue_final_message` (forced prefix) and
`structured_outputs` (choices, regular expression), and `response_format` for a JSON Schema. Answers are checked: a
server that ignores a guide is an error, not a silent difference.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from memory_audit.errors import AnswerError
from memory_audit.generation import Completion, TokenLogprob, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.generation import GenerationRequest

__all__ = ["body_of", "check_guides", "read_completion"]

MAX_TOKENS = 1 << 40
ROUNDING_NATS = 1e-3
"""A probability of 1 may come out a little above it."""


def body_of(model: str, request: GenerationRequest) -> dict[str, object]:
    """Return what is sent for a request."""
    messages = [{"role": message.role, "content": message.content} for message in request.messages]
    body: dict[str, object] = {
        "model": model,
        "messages": messages,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
    }
    if request.temperature > 0:
        body["seed"] = request.seed
    if request.stop:
        body["stop"] = list(request.stop)
    if request.top_logprobs:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.prefix:
        messages.append({"role": "assistant", "content": request.prefix})
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    if request.choices:
        body["structured_outputs"] = {"choice": list(request.choices)}
    elif request.regex is not None:
        body["structured_outputs"] = {"regex": request.regex}
    elif request.json_schema is not None:
        schema = {"name": "answer", "schema": json.loads(request.json_schema), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def read_completion(answer: Mapping[str, Any], request: GenerationRequest) -> Completion:
    """Read a chat completion as any server may spell it.

    Raises:
        AnswerError: not one: a member missing or of another type, a count or a log-probability that none can be.
    """
    try:
        choice = answer["choices"][0]
        usage = answer.get("usage") or {}
        finish_reason = _finish_reason(choice["finish_reason"])
        positions = ((choice.get("logprobs") or {}).get("content") or []) if request.top_logprobs else []
        return Completion(
            text=_content(choice["message"]["content"], finish_reason),
            finish_reason=finish_reason,
            usage=TokenUsage(
                prompt_tokens=_count(usage.get("prompt_tokens", 0)),
                cached_tokens=_count((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
                completion_tokens=_count(usage.get("completion_tokens", 0)),
            ),
            top=tuple(
                tuple(
                    TokenLogprob(text=_whole_text(item["token"]), logprob_nats=_nats(item["logprob"]))
                    for item in sorted(position["top_logprobs"], key=lambda item: -_nats(item["logprob"]))
                )
                for position in positions
            ),
        )
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise AnswerError(
            f"the server's answer is not a chat completion ({type(error).__name__}: {error!s:.80})"
        ) from None


def _content(value: object, finish_reason: str) -> str:
    """Return an answer's text: null is an empty one where the model ended it itself, and else one that is not known."""
    if value is None and finish_reason == "stop":
        return ""
    if value is None:
        raise AnswerError(f"the server ended an answer with {finish_reason!r} before any text: it needs more tokens")
    return _whole_text(value)


def _whole_text(value: object) -> str:
    """Return text that UTF-8 can hold: JSON can spell half a surrogate pair, and an answer is written to files."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} where text belongs")
    return value.encode(errors="replace").decode()


def _count(value: Any) -> int:
    count = int(value)
    if not 0 <= count <= MAX_TOKENS:
        raise ValueError(f"a count of tokens is {value!r:.40}")
    return count


def _nats(value: Any) -> float:
    """Return a log-probability: NaN would make every comparison false, and so a hazard harmless."""
    nats = float(value)
    if not nats <= ROUNDING_NATS:
        raise ValueError(f"a log-probability is {value!r:.40}")
    return nats


def _finish_reason(value: object) -> Any:
    if value not in ("stop", "length"):
        raise AnswerError(f"the server ended an answer with {value!r:.40}, expected stop or length")
    return value


def check_guides(text: str, request: GenerationRequest, model_id: str) -> None:
    """Raise AnswerError where an answer is none that the request's guide allows."""
    outside = (request.choices and text not in request.choices) or (
        request.regex is not None and re.fullmatch(request.regex, text, re.DOTALL) is None
    )
    if outside:
        raise AnswerError(
            f"{model_id}: answered {text!r:.80}, which the guide of the request does not allow; "
            "the server does not support structured_outputs"
        )
