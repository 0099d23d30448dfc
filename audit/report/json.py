"""AuditResult to JSON and back: the file `RUN/result.json`.

Example (shortened):

    {"format": "memaudit-result", "version": 1, "run_id": "…", "tenants": [{"tenant": "acme", "scores": [ … ]}], …}

Rules: the field names are those of `memory_audit.result`; every field is there, but lineage, usual CAS and p only
where there is one; each score also says by `removed` whether the tenant's `removal` takes its entry; ASCII only (other
characters escaped), so that no viewer is steered by the text inside. Derivation paths are bounded as
`memory_audit.result` says.
A reader MUST reject more than MAX_BYTES, another format or version, an unknown, missing or repeated field, a value of
another type, numbers that are not finite or beyond MAX_NUMBER, a descendant without a path, a lineage that lacks an
entry to remove, a removal that names an entry twice, or one without a score, or other descendants than the lineage,
and a `removed` that differs from it. Nothing here reads or writes files.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from memory_audit.errors import UsageError
from memory_audit.formats.records import convert
from memory_audit.result import AuditResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_audit.result import TenantResult

Number = TypeVar("Number", int, float)

__all__ = ["FORMAT", "MAX_BYTES", "VERSION", "from_json", "to_json", "to_record"]

FORMAT = "memaudit-result"
VERSION = 1

OPTIONAL = frozenset({"lineage", "calibration", "p_value", "usual_cas"})
"""Fields that may be left out, and are None then."""

MAX_BYTES = 1 << 30
"""A result larger than this is not a report any more: a million entries take about 300 MB."""

MAX_NUMBER = 10**15
"""Of either sign: scores are sums of nats, times are milliseconds, and far beyond this drawings leave a float."""


def to_json(result: AuditResult) -> str:
    """Return the result as JSON text.

    Raises:
        UsageError: a score is not a finite number, or the text is more than a reader takes.
    """
    try:
        text = json.dumps(to_record(result), indent=1, allow_nan=False) + "\n"
    except ValueError as error:
        raise UsageError(f"result {result.run_id!r:.80} cannot be written as JSON: {error}") from None
    if len(text) > MAX_BYTES:
        raise UsageError(
            f"result {result.run_id!r:.80} takes {len(text):,} bytes, at most {MAX_BYTES:,} are allowed in one: audit "
            "fewer tenants or events at a time"
        )
    return text


def to_record(result: AuditResult) -> dict[str, Any]:
    """Return the result as what JSON is made of."""
    record: dict[str, Any] = {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(result)}
    for tenant, found in zip(record["tenants"], result.tenants, strict=True):
        for holder in (tenant, *tenant["events"], *tenant["scores"]):
            for name in OPTIONAL & holder.keys():
                if holder[name] is None:
                    del holder[name]
        for score in tenant["scores"]:
            score["removed"] = score["entry_id"] in found.removal.ids
    return record


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
        record = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_int=_bounded(int),
            parse_float=_bounded(float),
        )
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        raise UsageError(f"{source}: not a result file ({str(error)[:120]})") from None
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise UsageError(f'{source}: "format" is not "{FORMAT}"; is this the result.json of a run?')
    version = record.pop("version", None)
    if version != VERSION or isinstance(version, bool):
        raise UsageError(f"{source}: version is {version!r:.20}, this program reads version {VERSION}")
    result = convert(record, AuditResult, source)
    for index, tenant in enumerate(result.tenants):
        where = f"{source}: result.tenants[{index}]"
        _check_removal(tenant, f"{where}.removal")
        _check_lineage(tenant, f"{where}.lineage")
        _take_removed(record["tenants"][index]["scores"], tenant, f"{where}.scores")
    _check_fields(record, result, f"{source}: result")
    return result


def _take_removed(scores: list[dict[str, Any]], tenant: TenantResult, where: str) -> None:
    """Take off scores what they say of the removal, and check it: the removal alone is believed."""
    for index, score in enumerate(scores):
        removed = score["entry_id"] in tenant.removal.ids
        if (said := score.pop("removed", None)) is not removed:
            raise UsageError(f"{where}[{index}].removed is {said!r:.20}, but {removed} by the removal")


def _check_fields(record: Any, value: object, where: str) -> None:
    """Check that a record has each field of its value, and no other: a field with a default may not be missing."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            _check_fields(record[index], item, f"{where}[{index}]")
    elif is_dataclass(value):
        names = {field.name for field in fields(value)}
        wrong = sorted((record.keys() ^ names) - OPTIONAL)
        if wrong:
            how = "lacks the" if wrong[0] in names else "has the unknown"
            raise UsageError(f"{where} {how} field {wrong[0]!r:.80}")
        for name in record:
            _check_fields(record[name], getattr(value, name), f"{where}.{name}")


def _check_removal(tenant: TenantResult, where: str) -> None:
    """Check that what a purge takes is what the reports show."""
    removal, lineage = tenant.removal, tenant.lineage
    parts = (removal.attributed, removal.derived, removal.quarantined, removal.suspected)
    named = [entry_id for part in parts for entry_id in part]
    shown = {score.entry_id for score in tenant.scores}
    wrong = [name for name, count in Counter(named).items() if count > 1 or name not in shown]
    if wrong:
        raise UsageError(f"{where} names {wrong[0]!r:.80} more than once, or it has no score")
    descendants = () if lineage is None else lineage.descendants
    for proposal, part in (("remove", removal.derived), ("quarantine", removal.quarantined)):
        if {item.entry_id: item.reason for item in descendants if item.proposal == proposal} != part:
            raise UsageError(f"{where} has other descendants to {proposal} than the lineage")


def _check_lineage(tenant: TenantResult, where: str) -> None:
    """Check what the types do not say, and every report relies on."""
    if tenant.lineage is None:
        return
    for index, item in enumerate(tenant.lineage.descendants):
        if not item.path:
            raise UsageError(f"{where}.descendants[{index}].path is empty, expected a path to {item.entry_id!r:.80}")
    known = {item.entry_id for item in tenant.lineage.entries}
    for entry_id in tenant.removal.removed:
        if entry_id not in known:
            raise UsageError(f"{where}.entries lacks {entry_id!r:.80}, which is to be removed")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a field is repeated in one object")
    return record


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _bounded(kind: type[Number]) -> Callable[[str], Number]:
    def read(text: str) -> Number:
        number = kind(text)
        if abs(number) > MAX_NUMBER:  # 1e999 parses as infinity
            raise ValueError(f"{text:.20} is beyond {MAX_NUMBER:.0e}")
        return number

    return read
