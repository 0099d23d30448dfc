"""AuditResult to JSON and back: the file `RUN/result.json`.

Example (shortened):

    {"format": "memaudit-result", "version": 2, "run_id": "…", "files": {"findings/scores0000.parquet": "9f…"},
     "tenants": [{"tenant": "acme", "entries": 100, "removal": {"attributed": {"m-3": "…"}, …}, "part": "0000", …}], …}

Its JSON Schema is `result.schema.json`, beside this file. Rules: the field names are those of `memory_audit.result`;
every field is there; ASCII only (other characters escaped), so that no viewer is steered by the text inside. The
findings themselves are in the Parquet files that it names, and holds the digests of (`memory_audit.report.tables`). In
a run of few tenants each has its `events` and `scores` here too, for whoever has JSON alone; a reader passes them over.

A reader MUST reject more than MAX_BYTES, another format or version, an unknown, missing or repeated field, a value of
another type, numbers that are not finite, a tenant that is there twice or out of order, and a removal that names an
entry twice. Nothing here reads or writes files.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.records import convert
from memory_audit.result import AuditResult, EntryScore, EventFinding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.result import TenantResult

__all__ = ["FORMAT", "MAX_BYTES", "SCHEMA_ID", "VERSION", "from_json", "json_schema", "to_json", "to_record"]

FORMAT = "memaudit-result"
VERSION = 2

SCHEMA_ID = "urn:memaudit:result:v2"

MAX_BYTES = 256 << 20
"""A tenant of which nothing is found takes 600 bytes, and a removed entry 100."""


_REPEATED = {"events": EventFinding, "scores": EntryScore}
"""Findings that the file of a run of few tenants has, too."""


def to_json(result: AuditResult, *, found: Iterable[TenantResult] = (), indent: int | None = None) -> str:
    """Return the result as JSON text.

    Args:
        result: The run.
        found: What was found of its tenants, to be read without Parquet.
        indent: Spaces; None writes one line.

    Raises:
        UsageError: a number is not finite, or the text is more than a reader takes.
    """
    separators = (",", ":") if indent is None else None
    record, repeated = to_record(result), {tenant.tenant: _repeated(tenant) for tenant in found}
    for tenant in record["tenants"]:
        tenant.update(repeated.get(tenant["tenant"], {}))
    try:
        text = json.dumps(record, indent=indent, separators=separators, allow_nan=False) + "\n"
    except ValueError as error:
        raise UsageError(f"result {result.run_id!r:.80} cannot be written as JSON: {error}") from None
    if len(text) > MAX_BYTES:
        raise UsageError(
            f"result {result.run_id!r:.80} takes {len(text):,} bytes, at most {MAX_BYTES:,} are allowed in one: audit "
            "fewer tenants at a time"
        )
    return text


def to_record(result: AuditResult) -> dict[str, Any]:
    """Return the result as what JSON is made of."""
    return {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(result)}


def _repeated(tenant: TenantResult) -> dict[str, Any]:
    scores = [
        {**msgspec.to_builtins(score), "removed": score.entry_id in tenant.removal.ids} for score in tenant.scores
    ]
    return {"events": msgspec.to_builtins(tenant.events), "scores": scores}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a result."""
    (root, *repeated), definitions = msgspec.json.schema_components(
        [AuditResult, *_REPEATED.values()], ref_template="#/$defs/{name}"
    )
    definitions["EntryScore"]["properties"]["removed"] = {"type": "boolean"}
    for definition in definitions.values():
        if "properties" in definition:
            definition |= {"required": list(definition["properties"]), "additionalProperties": False}
    items = {name: {"type": "array", "items": of} for name, of in zip(_REPEATED, repeated, strict=True)}
    definitions["TenantSummary"]["properties"] |= items
    head = definitions.pop(root["$ref"].rpartition("/")[2])
    head["properties"] = {"format": {"const": FORMAT}, "version": {"const": VERSION}, **head["properties"]}
    head["required"] = list(head["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **head, "$defs": definitions,
    }  # fmt: skip


def from_json(data: bytes, source: str = "result.json") -> AuditResult:
    """Parse what `to_json` wrote.

    Args:
        data: The whole file.
        source: Its name, for error messages.

    Raises:
        UsageError: names the source, the place inside it and the rule broken.
    """
    if len(data) > MAX_BYTES:
        raise UsageError(f"{source}: {len(data)} bytes, at most {MAX_BYTES} are allowed in one result")
    record = outside_json.decode(data, source)
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise UsageError(f'{source}: "format" is not "{FORMAT}"; is this the result.json of a run?')
    version = record.pop("version", None)
    if version != VERSION or isinstance(version, bool):
        raise UsageError(
            f"{source}: version is {version!r:.20}, this program reads version {VERSION}: start the same audit again"
        )
    tenants = record.get("tenants")
    for tenant in tenants if isinstance(tenants, list) else ():
        for name in _REPEATED if isinstance(tenant, dict) else ():
            tenant.pop(name, None)
    result = convert(record, AuditResult, source)
    _check_fields(record, result, f"{source}: result")
    names = [tenant.tenant for tenant in result.tenants]
    if names != sorted(set(names)):
        raise UsageError(f"{source}: result.tenants has a tenant twice, or out of order")
    for index, tenant in enumerate(result.tenants):
        removal = tenant.removal
        parts = (removal.attributed, removal.derived, removal.quarantined, removal.suspected)
        twice = [name for name, count in Counter(name for part in parts for name in part).items() if count > 1]
        if twice:
            raise UsageError(f"{source}: result.tenants[{index}].removal names {twice[0]!r:.80} more than once")
    return result


def _check_fields(record: Any, value: object, where: str) -> None:
    """Check that a record has each field of its value, and no other: a field with a default may not be missing."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            _check_fields(record[index], item, f"{where}[{index}]")
    elif is_dataclass(value):
        names = {field.name for field in fields(value)}
        if wrong := sorted(record.keys() ^ names):
            how = "lacks the" if wrong[0] in names else "has the unknown"
            raise UsageError(f"{where} {how} field {wrong[0]!r:.80}")
        for name in record:
            _check_fields(record[name], getattr(value, name), f"{where}.{name}")
