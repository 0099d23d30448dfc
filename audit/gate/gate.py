"""The sensitive-action gate: may this tool call be made, given everything that could have justified it?

The order of questions, first answer wins:

1. the tool is not in the policy                                        → allow, not sensitive
2. the lineage is stale, or memories are cited and there is no lineage  → deny: the gate fails closed
3. a cited memory is not in the verified store, or was removed          → deny
4. something untrusted is there, and the policy wants every such action asked for in the request: it is not → deny
5. mode coarse, or no checkable argument: nothing untrusted is there    → allow
6. … something untrusted is there                                       → deny, with its justifying path
7. each argument, by `memory_audit.gate.authority`: all authorised          → allow
8. refusal repair: each unauthorised argument has exactly one authorised value in its place, the user asked for such an
   action, and the repaired call was not made already                   → repair, with the call to make instead
9. otherwise                                                            → deny, with the path of the first such argument

The gate reads no clock and no files, and needs neither Ray nor a model: an agent's process imports it for little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Literal

from memory_audit.entry import PARTS_PER_MILLION, Parent
from memory_audit.gate import values
from memory_audit.gate.authority import Finding, has_values, judge_argument
from memory_audit.gate.context_text import UNTRUSTED, ContextText
from memory_audit.gate.names import named_records
from memory_audit.gate.outputs import output_texts
from memory_audit.gate.repair import repaired_call, substance
from memory_audit.lineage.dag import PATH_STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.entry import Entry
    from memory_audit.gate.call import Context, ToolCall
    from memory_audit.gate.context_text import Origin
    from memory_audit.gate.gate_policy import GatePolicy, ToolRule
    from memory_audit.lineage.dag import PathStep
    from memory_audit.lineage.verified import Standing, VerifiedLineage

__all__ = ["Evidence", "Gate", "GateDecision", "GateReason", "GateVerdict"]

GateVerdict = Literal["allow", "deny", "repair"]
GateReason = Literal[
    "not sensitive",
    "stale lineage",
    "unverified lineage",
    "unknown memory",
    "clean context",
    "tainted context",
    "authorised",
    "repaired",
    "unauthorised argument",
    "not asked for",
    "already done",
]

TEXTS_KEPT = 4_096
"""Memories whose folded text is kept between decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Something untrusted that stood behind a call."""

    where: str
    """In words: `memory m-9`, `output 1 of read_file`."""

    path: tuple[PathStep, ...]
    """Of a memory: from the external ancestor down to it. Empty for a tool's output: it is external itself.

    At most PATH_STEPS, the ancestor and the last ones: the first of these says how many are left out before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """The gate's answer to one call."""

    verdict: GateVerdict
    reason: GateReason
    detail: str
    """One line for people; holds untrusted text."""

    call: ToolCall | None
    """The call to make: as proposed, repaired, or None where it is denied."""

    evidence: tuple[Evidence, ...] = ()
    """What untrusted the context holds (mode coarse), or where the refused arguments came from."""

    findings: tuple[Finding, ...] = ()
    """Every checked argument, in the order of the call."""

    assumptions: tuple[str, ...] = ()
    """What is taken for granted of trusted texts that the context holds, in words: of tools that the policy lists, and
    of whoever recorded what an agent's memories draw on."""


class Gate:
    """Judges tool calls under one policy.

    Args:
        policy: Sensitive tools and their rules.
        lineage: Of the tenant the agent serves; None for an agent without memory, whose contexts may cite none.
    """

    def __init__(self, policy: GatePolicy, lineage: VerifiedLineage | None = None) -> None:
        self.policy = policy
        self.lineage = lineage
        self._listed = policy.outputs_by_tool()
        self._texts: dict[str, ContextText] = {}
        self._texts_of: Standing | None = None

    def decide(
        self, call: ToolCall, context: Context, *, now_ms: int, newest_version: int | None = None
    ) -> GateDecision:
        """Judge one call.

        Args:
            call: As the model proposes it.
            context: What the model had in front of it.
            now_ms: Clock, Unix milliseconds.
            newest_version: Of the store, where the caller knows it: a lineage read from an older one is stale.
        """
        rule = self.policy.tools.get(call.tool)
        if rule is None:
            return _allow(call, "not sensitive", f"tool {call.tool} is not in the gate policy")
        memories = self._memories(context, now_ms, newest_version)
        if isinstance(memories, GateDecision):
            return memories
        texts = self._context_texts(context, memories)
        decision = self._judged(rule, call, context, texts)
        return replace(decision, assumptions=tuple(dict.fromkeys(text.assumes for text in texts if text.assumes)))

    def stamp(self, entry: Entry, context: Context) -> Entry:
        """Return what an agent wrote with its origin as the runtime knows it, whatever the entry says of itself.

        Every memory of the context becomes a parent of weight 1: any of them may be all that it draws on. A tool's
        output can be no parent, so where the context has one that outsiders can write to, its source is `external`.

        Args:
            entry: To be stored, under the principal of the runtime. `trust.principals` names that one, and not one
                under which the agent itself can write.
            context: All that the agent had in front of it in this session, also what it has forgotten since.

        Raises:
            EntryError: there were more memories than an entry can have parents, or the entry itself was one.
        """
        outputs = chain.from_iterable(self._output_texts(context))
        source = "external" if any(text.origin in UNTRUSTED for text in outputs) else entry.source
        memories = dict.fromkeys(context.memories)
        parents = tuple(Parent(entry_id=name, weight_ppm=PARTS_PER_MILLION) for name in memories)
        return replace(entry, source=source, parents=parents)

    def _judged(self, rule: ToolRule, call: ToolCall, context: Context, texts: list[ContextText]) -> GateDecision:
        """Answer the questions from the fourth on."""
        tainted = [text for text in texts if text.origin in UNTRUSTED]
        if tainted and rule.intent_for == "all" and not _asked_for(rule, texts):
            return self._deny("not asked for", _not_asked_for(rule), tainted)
        checked = {
            name: parameter
            for name, value in call.arguments.items()
            if rule.mode == "authority" and has_values(value) and (parameter := rule.rule(name)) is not None
        }
        if not checked:
            if not tainted:
                return _allow(call, "clean context", "nothing untrusted is in the context")
            detail = f"{tainted[0].where} is untrusted and in the context of {call.tool}"
            return self._deny("tainted context", detail, tainted)
        judged = {
            name: judge_argument(name, call.arguments[name], parameter, texts) for name, parameter in checked.items()
        }
        findings = tuple(chain.from_iterable(judged.values()))
        refused = [finding for finding in findings if not finding.authorised]
        if not refused:
            return _allow(call, "authorised", "every checked argument is authorised", findings)
        sources = _sources(refused, texts)
        if rule.refusal == "deny":
            return self._deny("unauthorised argument", _why(refused[0]), sources, findings)
        if rule.intent and not _asked_for(rule, texts):
            return self._deny("not asked for", _not_asked_for(rule), sources, findings)
        repaired = repaired_call(call, checked, judged, texts)
        if repaired is None:
            return self._deny("unauthorised argument", _why(refused[0]), sources, findings)
        instead, changes = repaired
        if context.executed and substance(instead, rule) in {substance(done, rule) for done in context.executed}:
            detail = f"repaired, the call to {call.tool} was made already"
            return self._deny("already done", detail, sources, findings)
        return GateDecision(
            verdict="repair", reason="repaired", detail=changes, call=instead,
            evidence=self._evidence(sources), findings=findings,
        )  # fmt: skip

    def _memories(self, context: Context, now_ms: int, newest_version: int | None) -> list[ContextText] | GateDecision:
        """Return the cited memories, or a denial where the lineage cannot be relied on for this context."""
        lineage = self.lineage
        if lineage is None:
            if not context.memories:
                return []
            return self._deny("unverified lineage", "memories are cited and no verified lineage is at hand")
        version = lineage.standing.version
        stale = lineage.standing.stale(now_ms=now_ms, max_age_s=self.policy.max_age_s, newest_version=newest_version)
        if stale is not None:
            return self._deny("stale lineage", stale)
        if self._texts_of is not lineage.standing or len(self._texts) > TEXTS_KEPT:
            self._texts = {}  # a later version may have changed labels, and removed entries
            self._texts_of = lineage.standing
        found = []
        for entry_id in context.memories:
            text = self._texts.get(entry_id)
            if text is None:
                entry = lineage.entry(entry_id)
                if entry is None:
                    how = "was removed from" if entry_id in lineage.dag else "is not in"
                    return self._deny("unknown memory", f"memory {entry_id!r:.80} {how} version {version}")
                origin: Origin = "memory" if lineage.dag.label(entry_id) == "trusted" else "external"
                metadata = "\0".join(item for pair in entry.metadata.items() for item in pair)
                recorded = origin == "memory" and entry.source == "agent"
                assumes = f"{entry.principal} records all that its memories draw on" if recorded else ""
                text = ContextText(entry.text, origin, f"memory {entry_id}", entry_id, metadata, assumes)
                self._texts[entry_id] = text
            found.append(text)
        return found

    def _context_texts(self, context: Context, memories: list[ContextText]) -> list[ContextText]:
        """Return the context's texts: the request, the memories, the outputs."""
        texts = [ContextText(context.request, "user", "the user's request")] if context.request else []
        naming = texts.copy()
        texts += memories
        outputs = self._output_texts(context)
        if any(output.names for output in context.outputs):
            naming += [text for text in chain.from_iterable(outputs) if text.origin == "tool"]
            for place in named_records(context.outputs, [text.folded for text in naming], self.policy.names):
                for text in outputs[place]:
                    if text.origin == "external":
                        text.origin = "named"
        return [*texts, *chain.from_iterable(outputs)]

    def _output_texts(self, context: Context) -> list[list[ContextText]]:
        """Return the texts of each output."""
        return [
            output_texts(output, number, self._listed.get(output.tool))
            for number, output in enumerate(context.outputs, start=1)
        ]

    def _deny(
        self, reason: GateReason, detail: str, sources: Sequence[ContextText] = (), findings: tuple[Finding, ...] = ()
    ) -> GateDecision:
        evidence = self._evidence(sources)
        return GateDecision(
            verdict="deny", reason=reason, detail=detail, call=None, evidence=evidence, findings=findings
        )

    def _evidence(self, texts: Sequence[ContextText]) -> tuple[Evidence, ...]:
        dag = None if self.lineage is None else self.lineage.dag
        return tuple(
            Evidence(
                where=text.where,
                path=() if dag is None or text.memory is None else dag.path(text.memory, PATH_STEPS),
            )
            for text in texts
        )


def _allow(call: ToolCall, reason: GateReason, detail: str, findings: tuple[Finding, ...] = ()) -> GateDecision:
    return GateDecision(verdict="allow", reason=reason, detail=detail, call=call, findings=findings)


def _asked_for(rule: ToolRule, texts: list[ContextText]) -> bool:
    if not texts or texts[0].origin != "user":  # an empty request is no text
        return False
    request = texts[0].folded
    return any(values.occurs(word, request) for word in _folded(rule.intent))


@lru_cache(maxsize=1_024)
def _folded(words: tuple[str, ...]) -> tuple[str, ...]:
    """The policy's words are few and the operator's own: folded once, not at each call."""
    return tuple(values.fold(word) for word in words)


def _not_asked_for(rule: ToolRule) -> str:
    return f"the user's request asks for none of: {', '.join(rule.intent)}"


def _sources(refused: Sequence[Finding], texts: Sequence[ContextText]) -> list[ContextText]:
    """Return where refused values came from; behind one that no text holds may be any untrusted text."""
    named = {finding.where for finding in refused}
    unknown = any(finding.origin == "unknown" for finding in refused)
    return [text for text in texts if text.where in named or (unknown and text.origin in UNTRUSTED)]


def _why(finding: Finding) -> str:
    came = f"comes from {finding.where}" if finding.where else "is in no text that may authorise it"
    return f"{finding.parameter} is {finding.value!r:.80}, which {finding.unread or came}"
