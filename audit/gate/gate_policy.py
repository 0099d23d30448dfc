"""The gate policy: which tools are sensitive, which of their parameters, and who may choose their values.

A YAML file (JSON is YAML) that the operator keeps beside the agent, not in the store:

    format: memaudit gate policy v1
    tau_ppm: 200000                 # the share from which an entry is untrusted; 200000 if left out
    max_age_s: 86400                # lineage read from a version published longer ago is stale; no limit if left out
    trust:                          # base labels, see memory_audit.lineage.trust; each may be left out
      sources: [user, agent]
      principals: ["*"]
      except_principals: []
      unattributed: external
      propagation: shares
    trusted_outputs: [get_balance]  # tools whose output no outsider can write to
    names: '[A-Za-z0-9-]+[.]pdf'    # the names by which the user may name a record; see memory_audit.gate.names
    tools:                          # a tool that is not named here is not sensitive
      send_money:
        mode: authority             # or coarse: refuse whenever anything untrusted is in the context
        refusal: repair             # or deny
        intent: [pay, send, transfer]
        parameters:
          recipient: {kind: iban, authority: [user, memory]}
          amount: {kind: number}
        free: [subject]

Rules, on top of those `load_gate_policy` states for each name:

1. In mode `authority` every argument of a sensitive tool is checked unless `free` names it; `"*"` frees all that
   `parameters` does not name. An argument that neither names is checked as text: a forgotten `bcc` is not a hole.
2. `authority` lists what may authorise a value: `user` (the request), `memory` (trusted memories), `tool` (trusted
   outputs); all three if left out. A fourth must be asked for: `named`, an untrusted output whose record the request or
   a trusted output names ("pay the bill bill.txt"): whoever can write there chooses the value. What names a record is
   said in `memory_audit.gate.names`; `names`, a regular expression for whole names, replaces what it asks of a name.
3. `unknown: allow` lets the model compose a value that no text holds (a sum, a date); refused if left out, where
   anything untrusted is in the context. `exclusive: true` refuses a value that an untrusted text has too, unless the
   request has it: for short ids, which a trusted list holds by chance. Kinds `prose`, `words` and `quotes` judge parts
   of a free text, see `memory_audit.gate.parts`.
4. `intent`: a call is repaired only if the user's request has one of these words, and denied otherwise: swapping the
   recipient of a payment that nobody asked for would still be a payment nobody asked for. Left out: no such test.
   With `intent_for: all` such a call is not allowed either, where anything untrusted is in the context.
5. `"*"` stands for all only in `free` and `principals`. As a tool, parameter, trusted output or excepted principal it
   would be a name that nothing has, and gate nothing: it is refused there.
6. A reader MUST reject unknown members, a member twice, aliases, other types, and a file longer than MAX_POLICY_BYTES.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from memory_audit.entry import PARTS_PER_MILLION
from memory_audit.errors import UsageError
from memory_audit.formats import strict_yaml
from memory_audit.formats.outside_file import read_at_most
from memory_audit.gate.parts import PartKind
from memory_audit.gate.values import Kind
from memory_audit.lineage.dag import DEFAULT_TAU_PPM
from memory_audit.lineage.trust import TrustRules, parse_trust_rules

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Authority", "GatePolicy", "ParameterRule", "ToolRule", "load_gate_policy", "parse_gate_policy"]

Authority = Literal["user", "memory", "tool", "named"]
DEFAULT_AUTHORITY: tuple[Authority, ...] = ("user", "memory", "tool")

FORMAT = "memaudit gate policy v1"
MAX_POLICY_BYTES = 1 << 20
MAX_NAMES = 10_000
MAX_AGE_S = 10 * 365 * 86_400
ALL_OTHERS = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRule:
    """Who may choose the value of a sensitive parameter, and what kind of value it is."""

    kind: Kind = "text"
    parts: PartKind | None = None
    """Which parts of a free text are judged, each as kind `text`; None: the value as a whole."""

    authority: tuple[Authority, ...] = DEFAULT_AUTHORITY
    pattern: re.Pattern[str] | None = None
    """Of kind `pattern`."""

    choices: tuple[str, ...] = ()
    """Of kind `choice`."""

    unknown: Literal["refuse", "allow"] = "refuse"
    """What becomes of a value that no text holds."""

    exclusive: bool = False
    """Refused where an untrusted text has the value too and the request has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule:
    """How calls of one sensitive tool are judged."""

    mode: Literal["coarse", "authority"] = "authority"
    refusal: Literal["deny", "repair"] = "deny"
    intent: tuple[str, ...] = ()
    intent_for: Literal["repair", "all"] = "repair"
    """What needs a word of `intent` in the request."""

    parameters: Mapping[str, ParameterRule] = field(default_factory=lambda: MappingProxyType({}))
    free: frozenset[str] = frozenset()
    """Parameters that anyone may choose; `*` for all that `parameters` does not name."""

    def rule(self, parameter: str) -> ParameterRule | None:
        """Rule of a parameter; None where anyone may choose its value."""
        found = self.parameters.get(parameter)
        if found is not None:
            return found
        return None if parameter in self.free or ALL_OTHERS in self.free else _UNNAMED


_UNNAMED = ParameterRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """A whole gate policy."""

    tools: Mapping[str, ToolRule]
    trust: TrustRules = field(default_factory=TrustRules)
    tau_ppm: int = DEFAULT_TAU_PPM
    max_age_s: int | None = None
    trusted_outputs: frozenset[str] = frozenset()
    names: re.Pattern[str] | None = None
    """What a record's name must match, as a whole, to name it; None: see `memory_audit.gate.names`."""


def load_gate_policy(path: Path) -> GatePolicy:
    """Read a gate policy file.

    Raises:
        UsageError: one line with the file, the place and the rule broken.
    """
    return parse_gate_policy(read_at_most(path, MAX_POLICY_BYTES), str(path))


def parse_gate_policy(data: bytes, where: str) -> GatePolicy:
    """Read a gate policy from bytes. Raises UsageError like `load_gate_policy`."""
    members = _Members(strict_yaml.decode(data, max_bytes=MAX_POLICY_BYTES, where=where), where)
    if members.take("format") != FORMAT:
        raise UsageError(f"{where}: not a gate policy: expected format: {FORMAT}")
    trust = parse_trust_rules(members.take("trust", {}), f"{where}: trust")
    tools = members.take("tools")
    if not isinstance(tools, dict) or not tools or len(tools) > MAX_NAMES:
        raise UsageError(f"{where}: tools must name 1 to {MAX_NAMES} sensitive tools")
    age = members.take("max_age_s", None)
    policy = GatePolicy(
        tools=MappingProxyType({
            _own_name(name, f"{where}: tools"): _tool(_Members(rule, f"{where}: tools: {name!s:.80}"))
            for name, rule in tools.items()
        }),
        trust=trust,
        tau_ppm=members.whole("tau_ppm", DEFAULT_TAU_PPM, PARTS_PER_MILLION),
        max_age_s=None if age is None else _whole(age, f"{where}: max_age_s", MAX_AGE_S),
        trusted_outputs=frozenset(
            _own_name(name, f"{where}: trusted_outputs") for name in members.names("trusted_outputs", ())
        ),
        names=members.expression("names") if "names" in members else None,
    )  # fmt: skip
    members.done()
    return policy


def _tool(members: _Members) -> ToolRule:
    mode = members.one_of("mode", ("coarse", "authority"), "authority")
    refusal = members.one_of("refusal", ("deny", "repair"), "deny")
    intent = members.names("intent", ())
    intent_for = members.one_of("intent_for", ("repair", "all"), "repair")
    parameters = members.take("parameters", {})
    if not isinstance(parameters, dict) or len(parameters) > MAX_NAMES:
        raise UsageError(f"{members.where}: parameters must map names to rules")
    rules = {
        _own_name(name, f"{members.where}: parameters"): _parameter(_Members(rule, f"{members.where}: {name!s:.80}"))
        for name, rule in parameters.items()
    }
    free = frozenset(members.names("free", ()))
    both = sorted(free & set(rules))
    if both:
        raise UsageError(f"{members.where}: parameter {both[0]!r:.60} is both sensitive and free")
    if mode == "coarse" and (rules or free or refusal == "repair" or intent):
        raise UsageError(f"{members.where}: mode coarse looks at no parameter and repairs nothing: name only the mode")
    if intent_for == "all" and not intent:
        raise UsageError(f"{members.where}: intent_for all needs the words of intent")
    members.done()
    return ToolRule(
        mode=mode, refusal=refusal, intent=intent, intent_for=intent_for, parameters=MappingProxyType(rules), free=free
    )


def _parameter(members: _Members) -> ParameterRule:
    named_kind = members.one_of("kind", (*get_args(Kind), *get_args(PartKind)), "text")
    part_kind: PartKind | None = named_kind if named_kind in get_args(PartKind) else None
    kind: Kind = named_kind if part_kind is None else "text"
    authority = members.names("authority", DEFAULT_AUTHORITY)
    unknown = sorted(set(authority) - set(get_args(Authority)))
    if unknown or not authority:
        raise UsageError(f"{members.where}: authority must be some of {', '.join(get_args(Authority))}")
    pattern = members.expression("pattern") if kind == "pattern" else None
    choices = members.names("choices", ()) if kind == "choice" else ()
    if kind == "choice" and not choices:
        raise UsageError(f"{members.where}: kind choice needs choices")
    unknown = members.one_of("unknown", ("refuse", "allow"), "allow" if part_kind == "quotes" else "refuse")
    exclusive = members.take("exclusive", False)
    if not isinstance(exclusive, bool):
        raise UsageError(f"{members.where}: exclusive is {exclusive!r:.60}, expected true or false")
    members.done()
    return ParameterRule(
        kind=kind, parts=part_kind, authority=authority, pattern=pattern, choices=choices,  # type: ignore[arg-type]
        unknown=unknown, exclusive=exclusive,
    )  # fmt: skip


_REQUIRED = object()


class _Members:
    """Members of one mapping, each taken once; `done` refuses the rest."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise UsageError(f"{where}: expected a mapping of names to values")
        self._left = dict(value)
        self.where = where

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, default: Any = _REQUIRED) -> Any:
        if name not in self._left and default is _REQUIRED:
            raise UsageError(f"{self.where}: {name} is missing")
        return self._left.pop(name, default)

    def whole(self, name: str, default: int, maximum: int) -> int:
        return _whole(self.take(name, default), f"{self.where}: {name}", maximum)

    def one_of(self, name: str, known: tuple[str, ...], default: str) -> Any:
        value = self.take(name, default)
        if value not in known:
            raise UsageError(f"{self.where}: {name} is {value!r:.60}, expected one of {', '.join(known)}")
        return value

    def expression(self, name: str) -> re.Pattern[str]:
        text = self.take(name)
        if text == "":
            raise UsageError(f"{self.where}: {name} is empty, and every text has that")
        try:
            return re.compile(text)
        except (re.error, TypeError, OverflowError, RecursionError) as error:
            raise UsageError(f"{self.where}: {name} {text!r:.80} is not a regular expression: {error}") from None

    def names(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self.take(name, list(default))
        if not isinstance(value, list) or len(value) > MAX_NAMES or len(set(map(str, value))) != len(value):
            raise UsageError(f"{self.where}: {name} must be a list of at most {MAX_NAMES} different texts")
        return tuple(_name(item, f"{self.where}: {name}") for item in value)

    def done(self) -> None:
        if self._left:
            raise UsageError(f"{self.where}: unknown member {next(iter(self._left))!r:.60}")


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}: {value!r:.60} must be text and not empty (quote it)")
    return value


def _own_name(value: Any, where: str) -> str:
    """Return the name of a tool or parameter; one that none can have would gate nothing."""
    name = _name(value, where)
    if name == ALL_OTHERS:
        raise UsageError(f"{where}: '*' stands for all only in free and principals: name each one")
    if name != name.strip():
        raise UsageError(f"{where}: {name!r:.60} begins or ends with a blank")
    return name


def _whole(value: Any, where: str, maximum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise UsageError(f"{where} is {value!r:.60}, expected a whole number from 0 to {maximum}")
    return value
