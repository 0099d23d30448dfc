"""What an agent asks of a language model, and what it gets back. Values only: `models` executes them.

A request is complete: the same request to the same model is the same replay, so its digest is the memo key.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal

from memory_audit.errors import UsageError

__all__ = ["Completion", "GenerationRequest", "Message", "TokenLogprob", "TokenUsage"]

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One chat turn, rendered by the served model's own chat template."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One call of the backbone.

    Raises:
        UsageError: no token may be generated: an empty answer would be no replay.
    """

    messages: tuple[Message, ...]
    """The conversation so far; the model speaks next."""

    max_tokens: int
    """Upper bound on generated tokens."""

    temperature: float = 0.0
    """0 is greedy decoding."""

    seed: int = 0
    """Sampling seed, used when `temperature` > 0."""

    stop: tuple[str, ...] = ()
    """Generation ends before the first of these strings."""

    prefix: str = ""
    """Assistant text forced before the first generated token (the model continues it); not part of the answer."""

    top_logprobs: int = 0
    """How many alternatives to return with each generated token; 0 returns none."""

    choices: tuple[str, ...] = ()
    """When not empty, guided decoding: the answer is one of these strings."""

    regex: str | None = None
    """When set, guided decoding: the answer matches this regular expression."""

    json_schema: str | None = None
    """When set, guided decoding: the answer is JSON that satisfies this JSON Schema (as JSON text)."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UsageError(f"an agent asks for an answer of {self.max_tokens} tokens, expected 1 or more")

    def digest(self) -> str:
        """SHA-256 (hex) over the canonical JSON of the request: the memo key of a replay."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        # A server's JSON can spell half a surrogate pair: odd text is still one text.
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """One alternative at one generated position."""

    text: str
    """The token as text, leading space included."""

    logprob_nats: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """What requests cost; zeros where nothing was computed, or the server does not tell."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that the server found in its prefix cache."""

    completion_tokens: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The answer to one request."""

    text: str
    """Generated text, without the forced prefix and without the stop string."""

    finish_reason: Literal["stop", "length"]
    usage: TokenUsage = TokenUsage()
    top: tuple[tuple[TokenLogprob, ...], ...] = ()
    """Per generated position the alternatives, most likely first; empty unless asked for."""
