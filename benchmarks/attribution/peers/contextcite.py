"""ContextCite (PyPI context-cite 0.0.4), its own code, on the agent's own prompts and the same weights in transformers.

Sources are memories, so one method is overridden: the prompt of a mask is the agent's chat with those memories left in.
The response is the observed one. Masks, forward passes, logits and the LASSO are the package's, with its defaults (64
ablations, half kept). With k memories there are at most 2^k different masks; a forward pass that was made already is
not made again here, but counted, and its seconds counted, as often as the package asks for it.

The package imports NLTK and spaCy to split sentences and words, and downloads NLTK data at import. Neither is used
where sources are memories, so empty modules stand in for them and nothing is downloaded; it needs `datasets` for real.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarks.attribution.peers.metered import Cost
from benchmarks.attribution.peers.verdicts import Attribution
from memory_audit.attribution.replays.agents import load_agent
from memory_audit.generation import TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.attribution.peers.methods import Trial
    from memory_audit.entry import Entry
    from memory_audit.events import Event

__all__ = ["ABLATIONS", "ForwardPasses", "attribute", "installed"]

ABLATIONS = 64
"""The package's default."""

STAND_INS = ("nltk", "spacy", "spacy.lang", "spacy.lang.en")


def installed() -> bool:
    """Tell whether the package and what it needs for real are here."""
    return all(importlib.util.find_spec(name) is not None for name in ("context_cite", "datasets"))


class ForwardPasses:
    """The model as ContextCite calls it: the same logits, each different prompt computed once, all counted.

    Only the logits that ContextCite reads, those of the response, are computed and kept, in float32.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.device = model.device
        self.response_tokens = 0
        """Of the response being attributed; set before the package is asked."""

        self.cost = Cost(seconds=0.0)
        self.computed = Cost(seconds=0.0)
        """What was really computed."""

        self._known: dict[tuple[int, ...], tuple[Any, float]] = {}

    def __call__(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
        """Return an object with `logits`, shape (1, response_tokens + 1, vocabulary)."""
        key = tuple(input_ids[0].tolist())
        known = self._known.get(key)
        if known is None:
            began = time.perf_counter()
            output = self._model(
                input_ids=input_ids, attention_mask=attention_mask, logits_to_keep=self.response_tokens + 1
            )
            known = self._known[key] = (output.logits.float(), time.perf_counter() - began)
            _count(self.computed, len(key), known[1])
        logits, seconds = known
        _count(self.cost, len(key), seconds)
        return SimpleNamespace(logits=logits)

    def forget(self) -> None:
        """Drop the logits of an event that is done."""
        self._known.clear()


def attribute(
    trial: Trial, model: Any, tokenizer: Any, part: Callable[[str], tuple[int, int] | None] | None = None
) -> tuple[Attribution, Attribution | None]:
    """Attribute each event's output to the memories that it retrieved.

    Args:
        trial: Its agent makes the prompts, in one turn.
        model: A transformers causal language model.
        tokenizer: Its tokenizer.
        part: From an output to the character range that the user would select; None attributes whole outputs only.

    Returns:
        The attribution of whole outputs, and that of the selected parts. Its own rule: sources that LASSO keeps with a
        positive weight.
    """
    passes = ForwardPasses(model)
    agent = load_agent(trial.config.agent)
    package = _package()
    whole: dict[str, dict[str, float]] = {}
    parts: dict[str, dict[str, float]] = {}
    with trial.reporter.stage("context-cite", len(trial.events)) as progress:
        for event in trial.events:
            entries = trial.memory.retrieve(event.query)
            ids = [entry.entry_id for entry in entries]

            def prompt(kept: Sequence[Entry], query: str = event.query) -> list[dict[str, str]]:
                request = next(agent.episode(query, kept, trial.config.seed))
                return [{"role": message.role, "content": message.content} for message in request.messages]

            citer = _citer(package, prompt, event, entries, tokenizer, passes=passes)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the package asks for CUDA autocast also where there is no CUDA
                whole[event.event_id] = _named(ids, citer.get_attributions(verbose=False))
                selected = None if part is None else part(event.output)
                if selected is not None:
                    parts[event.event_id] = _named(ids, citer.get_attributions(*selected, verbose=False))
            passes.forget()
            progress.advance()
    more = {
        "forward_passes_computed": passes.computed.calls,
        "tokens_computed_once": passes.computed.usage.prompt_tokens,
        "seconds_computed_once": round(passes.computed.seconds or 0.0, 1),
    }
    return (
        Attribution(scores=whole, chosen=_positive(whole), cost=passes.cost, more=more),
        Attribution(scores=parts, chosen=_positive(parts), cost=passes.cost, more=more) if parts else None,
    )


def _package() -> tuple[Any, Any]:
    missing = [name for name in STAND_INS if name not in sys.modules]
    for name in missing:
        sys.modules[name] = ModuleType(name)
    try:
        if "nltk" in missing:
            sys.modules["nltk"].download = lambda *_: True  # type: ignore[attr-defined]
        if "spacy.lang.en" in missing:
            sys.modules["spacy.lang.en"].English = None  # type: ignore[attr-defined]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from context_cite.context_citer import ContextCiter  # noqa: PLC0415 - a peer, not a dependency
            from context_cite.context_partitioner import BaseContextPartitioner  # noqa: PLC0415
    finally:
        for name in missing:
            del sys.modules[name]
    return ContextCiter, BaseContextPartitioner


def _citer(
    package: tuple[Any, Any],
    chat: Callable[[Sequence[Entry]], list[dict[str, str]]],
    event: Event,
    entries: Sequence[Entry],
    tokenizer: Any,
    *,
    passes: ForwardPasses,
) -> Any:
    """Make a ContextCiter whose sources are memories and whose prompt is the agent's."""
    citer_class, partitioner_class = package

    class Memories(partitioner_class):  # type: ignore[misc, valid-type]
        @property
        def num_sources(self) -> int:
            return len(entries)

        def split_context(self) -> None:
            """Memories are split as they come."""

        def get_source(self, index: int) -> str:
            return entries[index].text

        def get_context(self, mask: Any = None) -> str:
            return "\n\n".join(entry.text for entry in _masked(entries, mask))

    class AgentCiter(citer_class):  # type: ignore[misc, valid-type]
        def _get_prompt_ids(self, mask: Any = None, return_prompt: bool = False) -> Any:  # noqa: FBT001, FBT002
            prompt = self.tokenizer.apply_chat_template(
                chat(_masked(entries, mask)), tokenize=False, add_generation_prompt=True
            )
            ids = self.tokenizer.encode(prompt, add_special_tokens=False)
            return (ids, prompt) if return_prompt else ids

    partitioner = Memories("\n\n".join(entry.text for entry in entries))
    citer = AgentCiter(
        passes, tokenizer, partitioner.context, event.query, num_ablations=ABLATIONS, partitioner=partitioner
    )
    _, prompt = citer._get_prompt_ids(return_prompt=True)  # noqa: SLF001 - where the package keeps the response
    citer._cache["output"] = prompt + event.output  # noqa: SLF001
    passes.response_tokens = len(citer._response_ids)  # noqa: SLF001
    return citer


def _masked(entries: Sequence[Entry], mask: Any) -> list[Entry]:
    return [entry for number, entry in enumerate(entries) if mask is None or mask[number]]


def _named(ids: Sequence[str], weights: Any) -> dict[str, float]:
    return {name: float(weight) for name, weight in zip(ids, weights, strict=True)}


def _positive(scores: dict[str, dict[str, float]]) -> frozenset[str]:
    return frozenset(name for found in scores.values() for name, weight in found.items() if weight > 0)


def _count(cost: Cost, tokens: int, seconds: float) -> None:
    cost.calls += 1
    cost.usage += TokenUsage(prompt_tokens=tokens)
    cost.seconds = (cost.seconds or 0.0) + seconds
