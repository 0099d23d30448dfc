"""The pipeline elements: a defence between the model and AgentDojo's own `ToolsExecutor`, and one before the answer.

What a defence sees is what a deployment sees: the user's request, the proposed call, and what tools have returned so
far. It never sees the ground truth, which task is played, or which call is the attacker's. A refused call leaves the
transcript (AgentDojo counts calls in it) and is answered to the model as a tool error; what is executed is what stands
in the transcript, so a repaired call stands there as repaired.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from agentdojo.agent_pipeline import AgentPipeline, InitQuery, ToolsExecutionLoop, ToolsExecutor
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.types import (
    ChatAssistantMessage,
    ChatToolResultMessage,
    get_text_content_as_str,
    text_content_block_from_string,
)

from benchmarks.gate.agentdojo_bridge.verdict import Returned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gate.agentdojo_bridge.verdict import Defence

__all__ = ["MAX_TURNS", "AnswerGate", "CallGate", "executed", "pipeline"]

MAX_TURNS = 60
"""Turns of one task: 18 of the longest ground truth, 15 of the longest attack, and as many again for retries."""


def _represent_enum(dumper: Any, value: Enum) -> Any:
    return dumper.represent_str(str(value.value))


class SafeDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """What `yaml.safe_dump` writes, in C, with the enumerations that AgentDojo teaches `yaml.SafeDumper`."""

    yaml_multi_representers: ClassVar[dict[type, Any]] = {Enum: _represent_enum}


class CallGate(BasePipelineElement):
    """Asks the defence about each proposed call, and counts what it says."""

    def __init__(self, defence: Defence) -> None:
        self.defence = defence
        self.denied = 0
        self.repaired = 0

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: Any = None
    ) -> tuple[str, Any, Any, Sequence[Any], Any]:
        """Replace the model's last turn by what may be executed, with refusals before it."""
        last = messages[-1]
        if last["role"] != "assistant" or not last["tool_calls"]:
            return query, runtime, env, messages, extra_args or {}
        before = list(messages[:-1])
        kept: list[Any] = []
        refused: list[Any] = []
        for call in last["tool_calls"]:
            positions, returned = executed(before)
            verdict = self.defence.judge(query, call.function, dict(call.args), returned)
            if verdict.arguments is None:
                self.denied += 1
                refused.append(_refusal(call, verdict.reason))
                for number in verdict.quarantine:
                    before[positions[number]] = {**before[positions[number]], "quarantined": True}
            else:
                self.repaired += verdict.repaired
                kept.append(call.model_copy(update={"args": verdict.arguments}) if verdict.repaired else call)
        after: list[Any] = []
        if refused:
            after += [ChatAssistantMessage(role="assistant", content=last["content"], tool_calls=[]), *refused]
        if kept:
            after.append(ChatAssistantMessage(role="assistant", content=last["content"], tool_calls=kept))
        return query, runtime, env, [*before, *after], extra_args or {}


class AnswerGate(BasePipelineElement):
    """Asks the defence about the answer to the user."""

    def __init__(self, defence: Defence) -> None:
        self.defence = defence
        self.messages: Sequence[Any] = ()
        """The transcript of the run, for the measurement."""

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: Any = None
    ) -> tuple[str, Any, Any, Sequence[Any], Any]:
        """Replace the answer by what may be said."""
        last = messages[-1]
        if last["role"] == "assistant" and not last["tool_calls"]:
            said = get_text_content_as_str(last["content"] or [])
            text = self.defence.judge_answer(query, said, executed(messages)[1])
            if text != said:
                content = [text_content_block_from_string(text)]
                messages = [*messages[:-1], ChatAssistantMessage(role="assistant", content=content, tool_calls=None)]
        self.messages = messages
        return query, runtime, env, messages, extra_args or {}


def executed(messages: Sequence[Any]) -> tuple[list[int], list[Returned]]:
    """Positions and contents of what tools returned without error and nobody quarantined."""
    positions = [
        number
        for number, message in enumerate(messages)
        if message["role"] == "tool" and message["error"] is None and not message.get("quarantined")
    ]
    return positions, [
        Returned(
            tool=messages[number]["tool_call"].function,
            arguments=dict(messages[number]["tool_call"].args),
            text=get_text_content_as_str(messages[number]["content"]),
        )
        for number in positions
    ]


def pipeline(model: BasePipelineElement, defence: Defence) -> tuple[AgentPipeline, CallGate, AnswerGate]:
    """Model, gate and AgentDojo's executor in AgentDojo's own loop."""
    gate, answer = CallGate(defence), AnswerGate(defence)
    executor = ToolsExecutor(partial(tool_result_to_str, dump_fn=partial(yaml.dump, Dumper=SafeDumper)))
    loop = ToolsExecutionLoop([gate, executor, model], max_iters=MAX_TURNS)
    return AgentPipeline([InitQuery(), model, loop, answer]), gate, answer


def _refusal(call: Any, reason: str) -> Any:
    return ChatToolResultMessage(
        role="tool", content=[text_content_block_from_string("")], tool_call=call, tool_call_id=call.id, error=reason
    )
