"""The agent f as a sans-IO generator: it yields what it asks of the model and returns what it did.

One episode is one call of `Agent.episode`. It yields a GenerationRequest per model turn, is sent the Completion, and
returns its output as text, so a single answer and a fifteen-step web session replay through the same driver. Memories
are untrusted text: here they are placed where the audited agent placed them, because that is what is being replayed.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, get_type_hints, runtime_checkable

from memory_audit.errors import UsageError
from memory_audit.formats.setting_types import describe_type, fits_type
from memory_audit.generation import Completion, GenerationRequest, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from memory_audit.entry import Entry

__all__ = [
    "AGENTS", "Agent", "FewShotAgent", "TemplateAgent", "build_named", "check_fields", "load_agent", "load_object",
]  # fmt: skip

MAX_TOKENS = 1 << 20
"""Of one answer: more than any model's context."""

MAX_TEMPERATURE = 2.0
"""As servers take it."""

_IMPORT_PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")


@runtime_checkable
class Agent(Protocol):
    """Generation policy f(q, R(q, M)) (paper eq. 3)."""

    name: str
    """Names the policy and its settings: part of the run's configuration digest."""

    def episode(
        self, query: str, memories: Sequence[Entry], seed: int
    ) -> Generator[GenerationRequest, Completion, str]:
        """Answer one query with these memories, best match first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FewShotAgent:
    """A question-answering agent that sees memories as earlier chat turns (MINJA's QA agent).

    The best match stands last, next to the question, as few-shot agents do; leaving one memory out then keeps the
    prompt before it, and with it the server's prefix cache.
    """

    system: str
    max_tokens: int = 160
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    name: str = "few-shot"

    def __post_init__(self) -> None:
        _check_sampling(self.max_tokens, self.temperature, self.stop)

    def episode(
        self, query: str, memories: Sequence[Entry], seed: int
    ) -> Generator[GenerationRequest, Completion, str]:
        """One model turn."""
        messages = [Message(role="system", content=self.system)]
        for entry in reversed(memories):
            messages.append(Message(role="user", content=entry.request))
            messages.append(Message(role="assistant", content=entry.response))
        messages.append(Message(role="user", content=query))
        completion = yield GenerationRequest(
            messages=tuple(messages), max_tokens=self.max_tokens, temperature=self.temperature, seed=seed,
            stop=self.stop,
        )  # fmt: skip
        return completion.text


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateAgent:
    """A chat agent with a memory slot in its system prompt.

    `template` must contain `{memories}` once; each memory fills `item`, which may use `{request}` and `{response}`.
    Braces inside memory text stay as they are: the slots are filled by one pass of replacement, not by `str.format`.
    """

    template: str
    item: str = "- {request} -> {response}\n"
    max_tokens: int = 160
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    name: str = "template"

    def __post_init__(self) -> None:
        _check_sampling(self.max_tokens, self.temperature, self.stop)
        if self.template.count("{memories}") != 1:
            raise UsageError("the agent's template must contain {memories} exactly once")

    def episode(
        self, query: str, memories: Sequence[Entry], seed: int
    ) -> Generator[GenerationRequest, Completion, str]:
        """One model turn."""
        before, after = self.template.split("{memories}")
        slot = "".join(self._fill(entry) for entry in memories)
        completion = yield GenerationRequest(
            messages=(
                Message(role="system", content=before + slot + after),
                Message(role="user", content=query),
            ),
            max_tokens=self.max_tokens, temperature=self.temperature, seed=seed, stop=self.stop,
        )  # fmt: skip
        return completion.text

    def _fill(self, entry: Entry) -> str:
        parts = self.item.split("{request}")
        return entry.request.join(part.replace("{response}", entry.response) for part in parts)


AGENTS: dict[str, type] = {"few-shot": FewShotAgent, "template": TemplateAgent}
"""Built-in agents by kind."""


def _check_sampling(max_tokens: int, temperature: float, stop: tuple[str, ...]) -> None:
    """Refuse what no model can answer under: with no token every answer is empty, and no event is reproduced."""
    if not 1 <= max_tokens <= MAX_TOKENS:
        raise UsageError(f"max_tokens is {max_tokens}, expected 1 to {MAX_TOKENS}")
    if not 0.0 <= temperature <= MAX_TEMPERATURE:  # NaN is not
        raise UsageError(f"temperature is {temperature}, expected 0 to {MAX_TEMPERATURE:g}")
    if not all(stop):
        raise UsageError("stop holds an empty text, before which every answer ends")


def load_object(path: str, what: str) -> object:
    """Import `package.module:attribute`, named by the user's own configuration (never by memory text).

    Raises:
        UsageError: the path is none, or does not import.
    """
    module_name, _, attribute = path.partition(":")
    if not _IMPORT_PATH.fullmatch(path):
        raise UsageError(f"{what} {path!r:.80} is neither a built-in name nor an import path like package.module:name")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{what} {path!r:.80} cannot be imported: {error}") from error


def check_fields(builder: type, fields: Mapping[str, object], what: str) -> None:
    """Check settings against the types that a built-in agent or scorer declares; a list stands for a tuple of texts.

    Raises:
        UsageError: a value of another type. Names that are missing or unknown are left to the builder.
    """
    hints = get_type_hints(builder)
    for name, value in fields.items():
        if name in hints and not fits_type(value, hints[name]):
            raise UsageError(f"{what}: {name} is {value!r:.60}, expected {describe_type(hints[name])}")


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def build_named(builder: Callable[..., object], fields: Mapping[str, object], what: str) -> object:
    """Build an agent or a scorer from its settings.

    Raises:
        UsageError: a field is missing or unknown; names it and the fields there are. What the builder itself refuses is
            named with `what` as well.
    """
    try:
        taken = list(inspect.signature(builder).parameters.values())
    except (TypeError, ValueError):  # some builders in C tell none
        taken = []
    if taken and all(each.kind in _NAMED for each in taken):
        names = [each.name for each in taken]
        wrong = [
            f"{each.name!r:.60} is missing" for each in taken if each.default is each.empty and each.name not in fields
        ]
        wrong += [f"{name!r:.60} is no field of it" for name in fields if name not in names]
        if wrong:
            raise UsageError(f"{what}: {', '.join(wrong)}; its fields are {', '.join(names)}")
    try:
        return builder(**fields)
    except (TypeError, UsageError) as error:
        raise UsageError(f"{what}: {error}") from None


def load_agent(settings: Mapping[str, object]) -> Agent:
    """Build the agent that a configuration names.

    Args:
        settings: `kind` is `few-shot`, `template` or an import path; the rest are its fields.

    Raises:
        UsageError: an unknown kind or field, or an object without an `episode` method.
    """
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    kind = str(fields.pop("kind", "few-shot"))
    builder = AGENTS[kind] if kind in AGENTS else load_object(kind, "agent")
    if not callable(builder):
        raise UsageError(f"agent {kind!r:.80} is not a class or function that builds an agent")
    if kind in AGENTS:
        check_fields(AGENTS[kind], fields, f"agent {kind!r:.80}")
    agent = build_named(builder, fields, f"agent {kind!r:.80}")
    if not isinstance(agent, Agent):
        raise UsageError(f"agent {kind!r:.80} has no name or no episode(query, memories, seed)")
    return agent
