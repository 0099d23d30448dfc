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
    trusted_outputs:                # what no outsider can write to, see memory_audit.gate.outputs
      - get_balance                                       # all that the tool returns
      - {tool: search_contacts, fields: [email, name]}    # these fields of its JSON alone
      - {tool: read_page, domains: [bank.example]}        # what it returns from there alone
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
6. A trusted output without limits is its tool's name, and nothing else; one with limits has `fields`, `domains` or
   both, which it must then meet. A tool is listed once.
7. A reader MUST reject unknown members, a member twice or without a value, aliases, other types, and a file longer than
   MAX_POLICY_BYTES.
"""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

import msgspec

from memory_audit.entry import PARTS_PER_MILLION
from memory_audit.errors import UsageError
from memory_audit.formats import strict_yaml
from memory_audit.formats.members import MAX_NAMES, Name, as_members
from memory_audit.formats.outside_file import read_at_most
from memory_audit.formats.records import convert
from memory_audit.gate.parts import PartKind
from memory_audit.gate.values import Kind  # noqa: TC001 - as above
from memory_audit.lineage.trust import DEFAULT_TAU_PPM, TrustRules, parse_trust_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = [
    "Authority", "GatePolicy", "ParameterRule", "ToolRule", "TrustedOutput", "load_gate_policy", "parse_gate_policy",
]  # fmt: skip

Authority = Literal["user", "memory", "tool", "named"]
DEFAULT_AUTHORITY: tuple[Authority, ...] = ("user", "memory", "tool")

FORMAT = "memaudit gate policy v1"
MAX_POLICY_BYTES = 1 << 20
MAX_AGE_S = 10 * 365 * 86_400
ALL_OTHERS = "*"

Rule = TypeVar("Rule", bound=msgspec.Struct)


class ParameterRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may choose the value of a sensitive parameter, and what kind of value it is."""

    kind: Kind | PartKind = "text"
    authority: tuple[Authority, ...] = DEFAULT_AUTHORITY
    pattern: re.Pattern[str] | None = None
    """Of kind `pattern`."""

    choices: tuple[Name, ...] = ()
    """Of kind `choice`."""

    unknown: Literal["refuse", "allow"] | None = None
    """What becomes of a value that no text holds; None: allowed of kind `quotes` alone."""

    exclusive: bool = False
    """Refused where an untrusted text has the value too and the request has not."""

    def __post_init__(self) -> None:
        if not self.authority:
            raise UsageError(f"authority must be some of {', '.join(get_args(Authority))}")
        if (self.kind == "pattern") != (self.pattern is not None):
            raise UsageError("a pattern belongs to kind pattern, which needs one")
        if (self.kind == "choice") != bool(self.choices):
            raise UsageError("choices belong to kind choice, which needs some")

    @property
    def parts(self) -> PartKind | None:
        """Which parts of a free text are judged, each as kind `text`; None: the value as a whole."""
        return self.kind if self.kind in _PART_KINDS else None  # type: ignore[return-value]

    @property
    def value_kind(self) -> Kind:
        """What each judged value is."""
        return "text" if self.kind in _PART_KINDS else self.kind  # type: ignore[return-value]

    @property
    def composes(self) -> bool:
        """Whether the model may compose a value that no text holds."""
        return self.unknown == "allow" or (self.unknown is None and self.kind == "quotes")


_PART_KINDS = frozenset(get_args(PartKind))


class ToolRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How calls of one sensitive tool are judged."""

    mode: Literal["coarse", "authority"] = "authority"
    refusal: Literal["deny", "repair"] = "deny"
    intent: tuple[Name, ...] = ()
    intent_for: Literal["repair", "all"] = "repair"
    """What needs a word of `intent` in the request."""

    parameters: Mapping[str, ParameterRule] = {}
    free: frozenset[Name] = frozenset()
    """Parameters that anyone may choose; `*` for all that `parameters` does not name."""

    def __post_init__(self) -> None:
        both = sorted(self.free & set(self.parameters))
        if both:
            raise UsageError(f"parameter {both[0]!r:.60} is both sensitive and free")
        if self.mode == "coarse" and (self.parameters or self.free or self.refusal == "repair" or self.intent):
            raise UsageError("mode coarse looks at no parameter and repairs nothing: name only the mode")
        if self.intent_for == "all" and not self.intent:
            raise UsageError("intent_for all needs the words of intent")

    def rule(self, parameter: str) -> ParameterRule | None:
        """Rule of a parameter; None where anyone may choose its value."""
        found = self.parameters.get(parameter)
        if found is not None:
            return found
        return None if parameter in self.free or ALL_OTHERS in self.free else _UNNAMED


_UNNAMED = ParameterRule()


Some = Annotated[frozenset[Name], msgspec.Meta(min_length=1)]

_HOST = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+")


class TrustedOutput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool of whose output outsiders can write to a part."""

    tool: Name
    fields: Some | None = None
    """Members of its JSON that they cannot write to; None is all of it."""

    domains: Some | None = None
    """Hosts whose pages they cannot write to; None is wherever it is from."""

    def __post_init__(self) -> None:
        if not self.fields and not self.domains:
            raise UsageError(f"{self.tool!r:.60} has neither fields nor domains: list its name alone")
        for field in self.fields or ():
            if any(step != step.strip() or step in {"", ALL_OTHERS} for step in field.split(".")):
                raise UsageError(f"fields: {field!r:.60} names no member of an object")
        for domain in self.domains or ():
            if not _HOST.fullmatch(domain):
                raise UsageError(f"domains: {domain!r:.60} is no host name in lower case, such as bank.example")


class GatePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole gate policy."""

    tools: Mapping[str, ToolRule]
    trust: TrustRules = TrustRules()
    tau_ppm: Annotated[int, msgspec.Meta(ge=0, le=PARTS_PER_MILLION)] = DEFAULT_TAU_PPM
    max_age_s: Annotated[int, msgspec.Meta(ge=0, le=MAX_AGE_S)] | None = None
    trusted_outputs: frozenset[Name | TrustedOutput] = frozenset()
    names: re.Pattern[str] | None = None
    """What a record's name must match, as a whole, to name it; None: see `memory_audit.gate.names`."""

    def __post_init__(self) -> None:
        if len(self.outputs_by_tool()) != len(self.trusted_outputs):
            raise UsageError("trusted_outputs: a tool is listed twice")

    def outputs_by_tool(self) -> dict[str, str | TrustedOutput]:
        """Return the items of `trusted_outputs` by the names of their tools."""
        return {item if isinstance(item, str) else item.tool: item for item in self.trusted_outputs}


def load_gate_policy(path: Path) -> GatePolicy:
    """Read a gate policy file.

    Raises:
        UsageError: one line with the file, the place and the rule broken.
    """
    return parse_gate_policy(read_at_most(path, MAX_POLICY_BYTES), str(path))


def parse_gate_policy(data: bytes, where: str) -> GatePolicy:
    """Read a gate policy from bytes. Raises UsageError like `load_gate_policy`."""
    members = as_members(strict_yaml.decode(data, max_bytes=MAX_POLICY_BYTES, where=where), where)
    if members.pop("format", None) != FORMAT:
        raise UsageError(f"{where}: not a gate policy: expected format: {FORMAT}")
    trust = parse_trust_rules(members.pop("trust", {}), f"{where}: trust")
    tools = _rules(members.pop("tools", {}), f"{where}: tools", _tool)
    if not tools:
        raise UsageError(f"{where}: tools must name 1 to {MAX_NAMES} sensitive tools")
    if "names" in members:
        members["names"] = _expression(members["names"], f"{where}: names")
    place = f"{where}: trusted_outputs"
    if isinstance(outputs := members.get("trusted_outputs"), list):
        members["trusted_outputs"] = [_output(item, place) for item in outputs]
    policy = convert({**members, "tools": tools}, GatePolicy, where)
    _check_own(policy.outputs_by_tool(), place)
    return msgspec.structs.replace(policy, trust=trust)


def _output(value: Any, where: str) -> Any:
    return convert(as_members(value, where), TrustedOutput, where) if isinstance(value, dict) else value


def _tool(value: Any, where: str) -> ToolRule:
    members = as_members(value, where)
    parameters = _rules(members.pop("parameters", {}), f"{where}: parameters", _parameter)
    return convert({**members, "parameters": parameters}, ToolRule, where)


def _parameter(value: Any, where: str) -> ParameterRule:
    members = as_members(value, where)
    if "pattern" in members:
        members["pattern"] = _expression(members["pattern"], f"{where}: pattern")
    return convert(members, ParameterRule, where)


def _rules(value: Any, where: str, read: Callable[[Any, str], Rule]) -> dict[str, Rule]:
    rules = as_members(value, where)
    _check_own(rules, where)
    return {name: read(rule, f"{where}: {name!s:.80}") for name, rule in rules.items()}


def _expression(text: Any, where: str) -> re.Pattern[str]:
    if text == "":
        raise UsageError(f"{where} is empty, and every text has that")
    try:
        return re.compile(text)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{where} {text!r:.80} is not a regular expression: {error}") from None


def _check_own(names: Iterable[Any], where: str) -> None:
    """Check names of tools and parameters; one that none can have would gate nothing."""
    for name in names:
        if not isinstance(name, str) or not name:
            raise UsageError(f"{where}: {name!r:.60} must be text and not empty (quote it)")
        if name == ALL_OTHERS:
            raise UsageError(f"{where}: '*' stands for all only in free and principals: name each one")
        if name != name.strip():
            raise UsageError(f"{where}: {name!r:.60} begins or ends with a blank")
