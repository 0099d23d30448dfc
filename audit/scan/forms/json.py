"""ScanResult to JSON and back: the file `scan.json` of a scan's run folder.

Example (shortened):

    {"format": "memaudit-scan", "version": 1, "source": "store", "scanned_at_ms": 1774915200000, "tenants": [{"tenant":
     "acme", "memories": 100, "findings": [{"finding": {"kind": "chat-tokens", "entry_ids": ["m-3"], …}, "state": "new",
     "fingerprint": "9f…", …}], …}], …}

Its JSON Schema is `scan.schema.json`, beside this file. Rules: the field names are those of `memory_audit.scan.result`;
every field is there, and each finding's `fingerprint` too; ASCII only (other characters escaped), so that no viewer is
steered by the text inside. Values of evidence may be excerpts of memories.

A reader MUST reject more than MAX_BYTES, another format or version, a repeated field, a value of another type, a tenant
that is there twice, and a fingerprint that is not its finding's. It passes over fields that it does not know, and takes
the default for one that is missing: a finding lives on when the program changes. Nothing here reads or writes files.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.records import convert
from memory_audit.scan.result import ScanResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.scan.result import KnownFinding

__all__ = ["FORMAT", "MAX_BYTES", "SCHEMA_ID", "VERSION", "from_json", "json_schema", "to_json"]

FORMAT = "memaudit-scan"
VERSION = 1
SCHEMA_ID = "urn:memaudit:scan:v1"

MAX_BYTES = 1 << 30
"""A finding with evidence takes about a kilobyte: a million."""


def to_json(result: ScanResult) -> str:
    """Return the result as one line of JSON.

    Raises:
        UsageError: the text is more than a reader takes.
    """
    record: dict[str, Any] = {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(result)}
    for known, written in _findings(result, record):
        written["fingerprint"] = known.finding.fingerprint
    text = json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"
    if len(text) > MAX_BYTES:
        raise UsageError(f"the scan's findings take {len(text):,} bytes, at most {MAX_BYTES:,} are allowed: scan fewer")
    return text


def from_json(data: bytes, source: str = "scan.json") -> ScanResult:
    """Parse what `to_json` wrote.

    Args:
        data: The whole file.
        source: Its name, for error messages.

    Raises:
        UsageError: names the source, the place inside it and the rule broken.
    """
    if len(data) > MAX_BYTES:
        raise UsageError(f"{source}: {len(data)} bytes, at most {MAX_BYTES} are allowed in one scan")
    record = outside_json.decode(data, source)
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise UsageError(f'{source}: "format" is not "{FORMAT}"; is this the scan.json of a scan?')
    if (version := record.pop("version", None)) != VERSION:
        raise UsageError(f"{source}: version is {version!r:.20}, this program reads version {VERSION}")
    result = convert(record, ScanResult, source)
    if len({tenant.tenant for tenant in result.tenants}) != len(result.tenants):
        raise UsageError(f"{source}: tenants has a tenant twice")
    for known, told in _findings(result, record):
        if told.get("fingerprint") != known.finding.fingerprint:
            raise UsageError(f"{source}: {told.get('fingerprint')!r:.80} is not the fingerprint of its finding")
    return result


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a scan."""
    (root,), definitions = msgspec.json.schema_components([ScanResult], ref_template="#/$defs/{name}")
    definitions["KnownFinding"]["properties"]["fingerprint"] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    for definition in definitions.values():
        if "properties" in definition:
            definition["required"] = list(definition["properties"])
    head = definitions.pop(root["$ref"].rpartition("/")[2])
    head["properties"] = {"format": {"const": FORMAT}, "version": {"const": VERSION}, **head["properties"]}
    head["required"] = list(head["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **head, "$defs": definitions,
    }  # fmt: skip


def _findings(result: ScanResult, record: dict[str, Any]) -> Iterator[tuple[KnownFinding, dict[str, Any]]]:
    """Yield each finding, and the object that has it in the result's record."""
    for tenant, written in zip(result.tenants, record["tenants"], strict=True):
        yield from zip(tenant.findings, written.get("findings", ()), strict=True)
