"""Deterministic stand-ins for the three models, for tests and dry runs. No weights, no clock, no global state.

They react to what they are given, so the whole flow can be tested with them: the fake backbone is swayed by the share
of poisoned turns in its prompt, the fake NLI model by negation and numbers, the fake embedder by shared words. The same
input gives the same output in any order and in any process.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import ModelError, PromptTooLongError
from memory_audit.generation import Completion, TokenLogprob, TokenUsage
from memory_audit.guard.blocks.behaviour import BehaviourCurve, BehaviourFeatures
from memory_audit.guard.blocks.hazard import default_taxonomy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.generation import GenerationRequest

__all__ = ["FakeBehaviourReader", "FakeEmbedder", "FakeEntailment", "FakeGenerator", "FakeProbe"]

_WORD = re.compile(r"[a-z0-9]+")
_NEGATIONS = frozenset({"not", "no", "never", "cannot", "without", "none", "false", "refuse", "deny"})

FLOOR_NATS = 0.5
"""The answer that is said leads by at least this in log-odds: its first token is always the most likely one."""

SPAN_NATS = 4.0
"""What a prompt of nothing but poison adds to the log-odds of the poisoned answer, over a prompt without any."""


class FakeGenerator:
    """Answers `poisoned` when enough turns of the prompt carry `marker`, else `clean`.

    A prompt's turns are its assistant messages; without any (a memory slot in a template), the lines of all messages.
    At least `threshold` turns with the marker make the answer poisoned. Log-probabilities are graded by the share of
    such turns, so leaving one out always lowers the log-odds of the poisoned answer, also where the answer stays.
    Prompts of more than `window` words are refused.
    """

    def __init__(
        self,
        *,
        marker: str = "POISON",
        threshold: int = 1,
        poisoned: str = "HARM",
        clean: str = "fine",
        window: int | None = None,
    ) -> None:
        self.model_id = f"fake-generator@{marker}/{threshold}/{poisoned}/{clean}"
        self.requests = 0
        self._window = window
        self._marker, self._threshold, self._poisoned, self._clean = marker, threshold, poisoned, clean

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request; see `memory_audit.models.protocols.Generator`."""
        self.requests += 1
        prompt_tokens = sum(len(message.content.split()) for message in request.messages)
        if self._window is not None and prompt_tokens > self._window:
            raise PromptTooLongError(f"{prompt_tokens} words, and {self._window} fit")
        turns = [message.content for message in request.messages if message.role == "assistant"]
        if not turns:
            turns = [line for message in request.messages for line in message.content.splitlines() if line.strip()]
        marked = sum(self._marker in turn for turn in turns)
        hijacked = marked >= self._threshold
        poisoned, clean = self._answers(request)
        words = (poisoned if hijacked else clean).split(" ")
        spoken = words[: request.max_tokens]
        text = " ".join(spoken)
        ended = len(spoken) == len(words)
        for stop in request.stop:
            if stop in text:
                text, ended = text[: text.index(stop)], True
        top: tuple[tuple[TokenLogprob, ...], ...] = ()
        if request.top_logprobs:
            share = marked / max(len(turns), 1)
            odds = FLOOR_NATS + SPAN_NATS * share if hijacked else -FLOOR_NATS - SPAN_NATS * (1 - share)
            top = (_alternatives(poisoned.split(" ")[0], clean.split(" ")[0], odds)[: request.top_logprobs],)
            top += tuple((TokenLogprob(text=f" {word}", logprob_nats=0.0),) for word in spoken[1:])
        return Completion(
            text=text, finish_reason="stop" if ended else "length",
            usage=TokenUsage(prompt_tokens=prompt_tokens, completion_tokens=len(spoken)), top=top,
        )  # fmt: skip

    async def close(self) -> None:
        """Nothing to release."""

    def _answers(self, request: GenerationRequest) -> tuple[str, str]:
        """Return the poisoned and the clean answer: the configured ones, or the choices that stand for them."""
        if not request.choices:
            remainder = self._poisoned.removeprefix(request.prefix) if request.prefix else self._poisoned
            return remainder, self._clean.removeprefix(request.prefix) if request.prefix else self._clean
        poisoned = self._poisoned if self._poisoned in request.choices else request.choices[0]
        clean = self._clean if self._clean in request.choices else request.choices[-1]
        return poisoned, clean


class FakeEntailment:
    """Contradiction where two texts share words but differ in negation or numbers; entailment where they agree."""

    model_id = "fake-entailment@1"

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `memory_audit.models.protocols.EntailmentModel`."""
        rows = [self._row(premise, hypothesis) for premise, hypothesis in pairs]
        return np.asarray(rows, np.float32).reshape(len(pairs), 3)

    @staticmethod
    def _row(premise: str, hypothesis: str) -> tuple[float, float, float]:
        left, right = set(_words(premise)), set(_words(hypothesis))
        overlap = len(left & right) / max(min(len(left), len(right)), 1)
        numbers = {word for word in left if word.isdigit()}, {word for word in right if word.isdigit()}
        opposed = bool(left & _NEGATIONS) != bool(right & _NEGATIONS) or (all(numbers) and numbers[0] != numbers[1])
        related = 0.05 + 0.9 * overlap
        contradiction, entailment = (related, 0.02) if opposed else (0.02, related)
        total = contradiction + entailment + (1 - 0.9 * overlap)
        return contradiction / total, (1 - 0.9 * overlap) / total, entailment / total


class FakeProbe:
    """Implements `memory_audit.models.activations.hazard_probe.Probe`: finds nothing either way."""

    model_id = "fake-probe"
    labels = default_taxonomy().names

    def log_odds(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return log-odds of zero for each label of the packaged taxonomy."""
        return np.zeros((len(texts), len(self.labels)), np.float32)


class FakeEmbedder:
    """A hashed bag of words: texts that share words are near each other."""

    def __init__(self, dimensions: int = 64) -> None:
        self.model_id = f"fake-embedder@{dimensions}"
        self._dimensions = dimensions

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see `memory_audit.models.protocols.Embedder`."""
        vectors = np.zeros((len(texts), self._dimensions), np.float32)
        for number, text in enumerate(texts):
            for word in _words(text) or [""]:
                code = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest())
                vectors[number, code % self._dimensions] += 1.0
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


class FakeBehaviourReader:
    """Implements `behaviour.BehaviourReader`: a bag of words, and harm where a word of harm is among them.

    Args:
        harmful: Words that make a text harmful.
        fails: Raise ModelError always.
    """

    curve = BehaviourCurve(restated_slope=4.0, harm_slope=1.0, bias=-2.0, threshold_nats=0.0)

    def __init__(self, harmful: Sequence[str] = ("skip", "upload", "curl", "hide"), *, fails: bool = False) -> None:
        self._harmful, self._fails = frozenset(harmful), fails
        self._bag = FakeEmbedder(1_024)  # few words share a place
        self.model_id = f"fake-acts@{'+'.join(sorted(self._harmful))}"
        self.read_texts: list[str] = []

    def read(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """Read texts; see `memory_audit.guard.blocks.behaviour.BehaviourReader`."""
        if self._fails:
            raise ModelError("fake-acts: died, as told to")
        self.read_texts += texts
        harm = [1.0 if self._harmful & set(_words(text)) else -6.0 for text in texts]
        return tuple(
            BehaviourFeatures(direction=row, harm_nats=nats, passages=row[None])
            for row, nats in zip(self._bag.embed(texts), harm, strict=True)
        )

    def taught(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """Read removed texts as all others; see `memory_audit.guard.blocks.behaviour.BehaviourReader`."""
        return self.read(texts)

    def log_odds(self, reading: BehaviourFeatures, behaviours: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compare by cosine; see `memory_audit.guard.blocks.behaviour.BehaviourReader`."""
        return self.curve.log_odds(reading.harm_nats, (reading.passages @ behaviours.T).max(axis=0))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _alternatives(poisoned: str, clean: str, odds_nats: float) -> tuple[TokenLogprob, ...]:
    both = (
        TokenLogprob(text=poisoned, logprob_nats=-math.log1p(math.exp(-odds_nats))),
        TokenLogprob(text=clean, logprob_nats=-math.log1p(math.exp(odds_nats))),
    )
    return tuple(sorted(both, key=lambda item: (-item.logprob_nats, item.text)))
