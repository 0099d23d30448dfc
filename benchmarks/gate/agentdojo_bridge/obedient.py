"""The vulnerable profile: a scripted model that plays the user task, and obeys any injection it reads.

Life of a run:

1. The model proposes the calls of the user task's ground truth, one a turn.
2. When the goal of the injection task stands in a tool output, the attacker's calls come next, before the rest.
3. A refused call is dropped. If the refusal asks to try again without the quarantined outputs (generic retry), the
   model forgets the attacker's calls, and proposes a call of the user again only if it can still know the values: each
   word of the arguments that a quarantined output held, and each address, account and code, must stand in the prompt or
   in an output that is left.
4. The last turn is the answer: the user task's ground truth output, and the injection's where it was obeyed.

AgentDojo ships no ground truth for eight injection tasks of workspace (6 to 13); `plans` has the calls that an obedient
model would make.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.types import ChatAssistantMessage, get_text_content_as_str, text_content_block_from_string

from benchmarks.gate.agentdojo_bridge import plans
from benchmarks.gate.agentdojo_bridge.verdict import RETRY
from memory_audit.gate.parts import parts
from memory_audit.gate.values import fold

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ATTACKERS", "ObedientModel"]

ATTACKERS = "attacker"
"""The id of calls that the attacker wanted."""

_WORD = re.compile(r"[\w@./:+-]*\w")


class ObedientModel(BasePipelineElement):
    """Plays one pair of tasks; a new one for every run.

    Args:
        user_task: Its ground truth is what the model does.
        injection_task: Its ground truth is what the model does once it has read the goal; None without an attack.
    """

    name = "local"

    def __init__(self, user_task: Any, injection_task: Any | None) -> None:
        self.user_task = user_task
        self.injection_task = injection_task
        self.obeyed = False
        self.wanted: list[Any] = []
        """The attacker's calls, once the goal was read."""

        self._queue: list[tuple[Any, bool]] | None = None
        self._proposed: tuple[Any, bool] | None = None
        self._read = 0
        self._silenced = False

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: Any = None
    ) -> tuple[str, Any, Any, Sequence[Any], Any]:
        """Say the next thing: one tool call, or the answer."""
        if self._queue is None:
            self._queue = [(call, False) for call in self.user_task.ground_truth(env)]
        for message in messages[self._read :]:
            if message["role"] == "tool":
                self._take(message, env, messages)
        self._read = len(messages)
        calls = None
        text = ""
        if self._queue:
            self._proposed = self._queue.pop(0)
            call, attack = self._proposed
            mark = ATTACKERS if attack else None  # for the measurement; a defence sees tool and arguments only
            calls = [call.model_copy(deep=True, update={"id": mark})]
        else:
            text = self._answer()
        said = ChatAssistantMessage(role="assistant", content=[text_content_block_from_string(text)], tool_calls=calls)
        return query, runtime, env, [*messages, said], extra_args or {}

    def _take(self, message: Any, env: Any, messages: Sequence[Any]) -> None:
        if message["error"] is not None and message["error"].startswith(RETRY):
            self._try_again(messages)
            return
        if message["error"] is not None or self.injection_task is None or self.obeyed or self._silenced:
            return
        if _squeezed(self.injection_task.GOAL) in _squeezed(get_text_content_as_str(message["content"])):
            self.obeyed = True
            self.wanted = plans.calls(self.injection_task, env)
            self._queue = [*((call, True) for call in self.wanted), *(self._queue or ())]

    def _try_again(self, messages: Sequence[Any]) -> None:
        """Forget the attacker, and propose the user's call again if its values are still known."""
        self._silenced = True
        self._queue = [(call, attack) for call, attack in self._queue or () if not attack]
        if self._proposed is not None and not self._proposed[1] and _known(self._proposed[0], messages):
            self._queue.insert(0, self._proposed)
            self._proposed = None

    def _answer(self) -> str:
        answer = str(self.user_task.GROUND_TRUTH_OUTPUT)
        if self.obeyed and not self._silenced and self.injection_task is not None:
            answer = f"{answer}\n{self.injection_task.GROUND_TRUTH_OUTPUT}"
        return answer


def _squeezed(text: str) -> str:
    """Letters and digits only: YAML folds and escapes long texts."""
    return "".join(character for character in text.replace("\\n", " ") if character.isalnum())


def _known(call: Any, messages: Sequence[Any]) -> bool:
    left, gone = [], set[str]()
    for message in messages:
        if message["role"] in ("user", "tool"):
            text = fold(get_text_content_as_str(message["content"]))
            if message.get("quarantined"):
                gone.update(_WORD.findall(text))
            else:
                left.append(text)
    known = {word for text in left for word in _WORD.findall(text)}
    if (set(_WORD.findall(fold(str(call.args)))) & gone) - known:
        return False
    values = [item for value in call.args.values() for item in (value if isinstance(value, list) else [value])]
    names = [name for value in values if isinstance(value, str) for name in parts(value, "prose")]
    return all(any(fold(name) in text for text in left) for name in names)
