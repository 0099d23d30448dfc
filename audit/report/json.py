"""AuditResult to JSON and back: the file `RUN/result.json`.

Example (shortened):

    {"format": "memaudit-result", "version": 1, "run_id": "…", "tenants": [{"tenant": "acme", "scores": [ … ]}], …}

Rules: the field names are those of `memory_audit.result`; every field is there, but `lineage` only where a tenant has
one; ASCII only (other characters escaped), so that no viewer is steered by the text inside. Derivation paths are
bounded as `memory_audit.result` says. A reader MUST reject more than MAX_BYTES, another format or version, an unknown,
missing or repeated field, a value of another type, numbers that are not finite or beyond MAX_NUMBER, a descendant
without a path, a lineage that lacks an entry to remove, and a removal that names an entry twice, or one without a
score, or other descendants than the lineage. Nothing here reads or writes files.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from memory_audit.errors import UsageError
from memory_audit.result import AuditResult, TenantResult

__all__ = ["FORMAT", "MAX_BYTES", "VERSION", "from_json", "to_json"]

FORMAT = "memaudit-result"
VERSION = 1

OPTIONAL = frozenset({"lineage"})
"""Fields that are left out where they are None."""

MAX_BYTES = 1 << 30
"""A result larger than this is not a report any more: a million entries take about 300 MB."""

MAX_NUMBER = 10**15
"""Of either sign: scores are sums of nats, times are milliseconds, and far beyond this drawings leave a float."""


def to_json(result: AuditResult) -> str:
    """Return the result as JSON text.

    Raises:
        UsageError: a score is not a finite number, or the text is more than a reader takes.
    """
    record = {"format": FORMAT, "version": VERSION, **asdict(result)}
    for tenant in record["tenants"]:
        if tenant["lineage"] is None:
            del tenant["lineage"]
    try:
        text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    except ValueError as error:
        raise UsageError(f"result {result.run_id!r:.80} cannot be written as JSON: {error}") from None
    if len(text) > MAX_BYTES:
        raise UsageError(
            f"result {result.run_id!r:.80} takes {len(text):,} bytes, at most {MAX_BYTES:,} are allowed in one: audit "
            "fewer tenants or events at a time"
        )
    return text


def from_json(text: str | bytes, source: str = "result.json") -> AuditResult:
    """Parse what `to_json` wrote.

    Args:
        text: The whole file.
        source: Its name, for error messages.

    Raises:
        UsageError: names the source, the place inside it and the rule broken.
    """
    if len(text) > MAX_BYTES:
        raise UsageError(f"{source}: {len(text)} bytes, at most {MAX_BYTES} are allowed in one result")
    try:
        record = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError, _RuleError) as error:  # ValueError: also a number of thousands of digits
        raise UsageError(f"{source}: not a result file ({str(error)[:120]})") from None
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise UsageError(f'{source}: "format" is not "{FORMAT}"; is this the result.json of a run?')
    version = record.pop("version", None)
    if version != VERSION or isinstance(version, bool):
        raise UsageError(f"{source}: version is {version!r:.20}, this program reads version {VERSION}")
    try:
        result = _decode(record, AuditResult, "result")
        assert isinstance(result, AuditResult)  # noqa: S101 - narrows the type; _decode built it
        for index, tenant in enumerate(result.tenants):
            _check_removal(tenant, f"result.tenants[{index}].removal")
            _check_lineage(tenant, f"result.tenants[{index}].lineage")
    except _RuleError as error:
        raise UsageError(f"{source}: {error}") from None
    except RecursionError:
        raise UsageError(f"{source}: nested too deep") from None
    return result


def _check_removal(tenant: TenantResult, where: str) -> None:
    """Check that what a purge takes is what the reports show."""
    removal, lineage = tenant.removal, tenant.lineage
    parts = (removal.attributed, removal.derived, removal.quarantined)
    named = [entry_id for part in parts for entry_id in part]
    shown = {score.entry_id for score in tenant.scores}
    wrong = [name for name, count in Counter(named).items() if count > 1 or name not in shown]
    if wrong:
        raise _RuleError(f"{where} names {wrong[0]!r:.80} more than once, or it has no score")
    descendants = () if lineage is None else lineage.descendants
    for proposal, part in (("remove", removal.derived), ("quarantine", removal.quarantined)):
        if {item.entry_id: item.reason for item in descendants if item.proposal == proposal} != part:
            raise _RuleError(f"{where} has other descendants to {proposal} than the lineage")


def _check_lineage(tenant: TenantResult, where: str) -> None:
    """Check what the types do not say, and every report relies on."""
    if tenant.lineage is None:
        return
    for index, item in enumerate(tenant.lineage.descendants):
        if not item.path:
            raise _RuleError(f"{where}.descendants[{index}].path is empty, expected a path to {item.entry_id!r:.80}")
    known = {item.entry_id for item in tenant.lineage.entries}
    for entry_id in tenant.removal.removed:
        if entry_id not in known:
            raise _RuleError(f"{where}.entries lacks {entry_id!r:.80}, which is to be removed")


class _RuleError(Exception):
    """A rule of the format is broken; mapped to UsageError in from_json."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise _RuleError("a field is repeated in one object")
    return record


def _no_constant(name: str) -> object:
    raise _RuleError(f"{name} is not a JSON number")


def _decode(value: object, kind: Any, where: str) -> object:
    """Turn a JSON value into the type that a field of `memory_audit.result` declares."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _decode_record(value, kind, where)
    if origin in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        return _decode(value, next(argument for argument in arguments if argument is not NoneType), where)
    if origin is Literal:
        if isinstance(value, str) and value in arguments:
            return value
        raise _RuleError(f"{where} is {value!r:.40}, expected one of {', '.join(map(repr, arguments))}")
    if origin is tuple:
        if not isinstance(value, list):
            raise _RuleError(f"{where} is {type(value).__name__}, expected a list")
        return tuple(_decode(item, arguments[0], f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise _RuleError(f"{where} is {type(value).__name__}, expected an object")
        return {name: _decode(item, arguments[1], f"{where}[{name!r:.80}]") for name, item in value.items()}
    return _decode_scalar(value, kind, where)


def _decode_scalar(value: object, kind: Any, where: str) -> object:
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if abs(number) <= MAX_NUMBER:  # 1e999 parses as infinity
            return number
    elif type(value) is kind and not (type(value) is int and abs(value) > MAX_NUMBER):
        return value
    bound = f" of at most {MAX_NUMBER:.0e}" if kind in {float, int} else ""
    raise _RuleError(f"{where} is {value!r:.40}, expected {kind.__name__}{bound}")


def _decode_record(value: object, kind: type, where: str) -> object:
    if not isinstance(value, dict):
        raise _RuleError(f"{where} is {type(value).__name__}, expected an object")
    hints = _field_types(kind)
    names = [field.name for field in fields(kind)]
    unknown = sorted(set(value) - set(names))
    missing = [name for name in names if name not in value and name not in OPTIONAL]
    if unknown or missing:
        broken = f"has the unknown field {unknown[0]!r:.80}" if unknown else f"lacks the field {missing[0]!r}"
        raise _RuleError(f"{where} {broken}")
    return kind(**{name: _decode(value[name], hints[name], f"{where}.{name}") for name in names if name in value})


@cache
def _field_types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
