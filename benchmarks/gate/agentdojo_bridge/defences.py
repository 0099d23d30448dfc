"""The rows of the benchmark.

    none        every call is executed
    signature   every tool output is signed by the tool's runner and verified; what verifies is believed
    deny        the gate, coarse: a sensitive call is refused once anything external is in the context
    retry       the same, and the agent may try again without the external outputs
    authority   the gate, parameter-level authority; a call with an unauthorised argument is refused
    repair      the same, and where the policy says so the user's own value takes the place of the unauthorised one

All four gates are `memory_audit.gate.gate.Gate` with the policy of the suite; the coarse ones take from it only which
tools are sensitive. `answer` is a tool of the policy for the text that the user is told.
"""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import structs

from benchmarks.gate.agentdojo_bridge.outputs import EXTERNAL, POLICY, load_layout, sources
from benchmarks.gate.agentdojo_bridge.verdict import RETRY, Verdict
from memory_audit.gate.call import Context, ToolCall, ToolOutput
from memory_audit.gate.gate import Gate, GateDecision
from memory_audit.gate.gate_policy import GatePolicy, ToolRule, load_gate_policy
from memory_audit.provenance.ed25519 import PrivateKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.gate.agentdojo_bridge.verdict import Defence, Returned

__all__ = ["DEFENCES", "Gated", "NoDefence", "SignatureOnly", "SuiteDefences"]

DEFENCES = ("none", "signature", "deny", "retry", "authority", "repair")
ANSWER = "answer"


class NoDefence:
    """Executes everything."""

    def judge(self, request: str, tool: str, arguments: dict[str, Any], returned: Sequence[Returned]) -> Verdict:  # noqa: ARG002
        """Allow."""
        return Verdict(arguments=arguments)

    def judge_answer(self, request: str, text: str, returned: Sequence[Returned]) -> str:  # noqa: ARG002
        """Allow."""
        return text


class SignatureOnly(NoDefence):
    """Signs what tools return at the runner's side, verifies it at the agent's, and believes what verifies."""

    def __init__(self, key: PrivateKey) -> None:
        self._key, self._public = key, key.public()
        self._signed: list[tuple[bytes, bytes]] = []

    def judge(self, request: str, tool: str, arguments: dict[str, Any], returned: Sequence[Returned]) -> Verdict:  # noqa: ARG002
        """Refuse only where a tool output does not verify."""
        for output in returned[len(self._signed) :]:
            message = f"{output.tool}\n{output.text}".encode()
            self._signed.append((self._key.sign(message), message))
        if all(self._public.verifies(signature, message) for signature, message in self._signed):
            return Verdict(arguments=arguments)
        return Verdict(arguments=None, reason="Refused: a tool output does not verify.")


class Gated:
    """The gate of `memory_audit.lineage`, fed with the request and what the tools returned.

    Args:
        gate: With the row's policy.
        layout: Who can write what in the tools' outputs.
        retry: Whether a refused agent may try again without the external outputs.
    """

    def __init__(self, gate: Gate, layout: Mapping[str, Mapping[str, Any]], *, retry: bool = False) -> None:
        self.gate = gate
        self.layout = layout
        self.retry = retry
        self._split: dict[tuple[str, str, str], tuple[ToolOutput, ...]] = {}
        self._executed: list[ToolCall] = []

    def judge(self, request: str, tool: str, arguments: dict[str, Any], returned: Sequence[Returned]) -> Verdict:
        """Ask the gate."""
        decision = self._decide(tool, arguments, request, returned)
        if decision.call is None:
            if self.retry:
                external = frozenset(
                    number
                    for number, output in enumerate(returned)
                    if any(source.tool.endswith(EXTERNAL) for source in self._sources(output))
                )
                return Verdict(arguments=None, reason=f"{RETRY} what outsiders wrote.", quarantine=external)
            return Verdict(arguments=None, reason=f"Refused: {decision.detail:.300}")
        self._executed.append(decision.call)
        return Verdict(arguments=dict(decision.call.arguments), repaired=decision.verdict == "repair")

    def judge_answer(self, request: str, text: str, returned: Sequence[Returned]) -> str:
        """Ask the gate line by line: a refused line is left out, and a coarse refusal leaves nothing."""
        lines = text.split("\n")
        allowed = [line for line in lines if self._decide(ANSWER, {"text": line}, request, returned).call is not None]
        return text if len(allowed) == len(lines) else "\n".join(allowed)

    def _decide(self, tool: str, arguments: dict[str, Any], request: str, returned: Sequence[Returned]) -> GateDecision:
        outputs = tuple(source for output in returned for source in self._sources(output))
        context = Context(request=request, outputs=outputs, executed=tuple(self._executed))
        return self.gate.decide(ToolCall(tool=tool, arguments=arguments), context, now_ms=0)

    def _sources(self, output: Returned) -> tuple[ToolOutput, ...]:
        key = output.tool, repr(output.arguments), output.text
        if key not in self._split:
            self._split[key] = sources(output, self.layout)
        return self._split[key]


class SuiteDefences:
    """Policies of one suite, read once; makes a fresh defence for every run."""

    def __init__(self, suite: str) -> None:
        self.policy = load_gate_policy(POLICY / f"{suite}.yaml")
        self.layout = load_layout(suite)
        self._key = PrivateKey.generate("tools.example/runner")

    @property
    def sensitive(self) -> frozenset[str]:
        """Tools that the policy names."""
        return frozenset(self.policy.tools)

    def make(self, name: str) -> Defence:
        """Return a new defence of a row."""
        if name == "none":
            return NoDefence()
        if name == "signature":
            return SignatureOnly(self._key)
        return Gated(self._gates[name], self.layout, retry=name == "retry")

    @cached_property
    def _gates(self) -> dict[str, Gate]:
        coarse = Gate(_with(self.policy, {tool: ToolRule(mode="coarse") for tool in self.policy.tools}))
        refusing = {tool: structs.replace(rule, refusal="deny") for tool, rule in self.policy.tools.items()}
        return {
            "deny": coarse,
            "retry": coarse,
            "authority": Gate(_with(self.policy, refusing)),
            "repair": Gate(self.policy),
        }


def _with(policy: GatePolicy, tools: dict[str, ToolRule]) -> GatePolicy:
    return structs.replace(policy, tools=MappingProxyType(tools))
