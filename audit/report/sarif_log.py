"""A log of SARIF 2.1.0 (OASIS) as this program writes it, whatever it tells of: one run, redacted and bounded.

Locations are relative URIs, `stores/<tenant>/<entry id>`, percent encoded.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MAX_RESULTS", "digest", "location", "message", "sarif_log"]

MAX_RESULTS = 5_000
"""GitHub keeps 5,000 results of a run, so more would be dropped there without a word."""

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_ESCAPES = str.maketrans({"\\": "\\\\", "[": "\\[", "]": "\\]", "{": "{{", "}": "}}"})


def sarif_log(  # noqa: PLR0913 - the parts of a run
    results: Sequence[object],
    rules: Sequence[object],
    *,
    automation: str,
    store: str,
    snapshot: tuple[int, str] | None,
    tool_version: str,
    whole: str,
    **more: Any,
) -> str:
    """Return a log as JSON text; a notification counts the results beyond MAX_RESULTS.

    Args:
        results: Those to look at first in front.
        rules: What their `ruleIndex` counts.
        automation: Which kind of run it is.
        store: What was looked at.
        snapshot: Its version and digest; None of what has none.
        tool_version: Of this program.
        whole: File of the run that has all results.
        more: Other members of the run.
    """
    invocation: dict[str, object] = {"executionSuccessful": True}
    if len(results) > MAX_RESULTS:
        text = f"{len(results) - MAX_RESULTS} of {len(results)} findings are left out; see {whole} of the run."
        invocation["toolExecutionNotifications"] = [{"level": "warning", "message": message(text)}]
    properties: Mapping[str, object] = (
        {} if snapshot is None else {"snapshotVersion": snapshot[0], "snapshotSha256": as_line(snapshot[1])}
    )
    run = {
        "tool": {"driver": {"name": "MemAudit", "version": tool_version, "rules": rules}},
        "automationDetails": {"id": f"{automation}/{quote(store, safe='', errors='replace')}"},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "properties": properties,
        **more,
        "results": results[:MAX_RESULTS],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, allow_nan=False) + "\n"


def message(text: str) -> dict[str, str]:
    """Return a message of plain text: no id in it is read as a placeholder or a link (SARIF 2.1.0 §3.11.5, §3.11.6)."""
    return {"text": text.translate(_ESCAPES)}


def location(*parts: str) -> dict[str, object]:
    """Return the location of a memory or an event, by the segments of its path: names are untrusted."""
    return {"physicalLocation": {"artifactLocation": {"uri": "/".join(_segment(part) for part in parts)}}}


def _segment(name: str) -> str:
    """Percent-encode one path segment; a name with `..` in it is hashed, as some readers decode before they resolve."""
    if any(part.strip(".") == "" for part in re.split(r"[/\\]", name)):
        return f"sha256-{digest(name)}"
    return quote(name, safe="", errors="replace")


def digest(*parts: str) -> str:
    """SHA-256 (hex) over length-prefixed parts, so that no two lists of parts give the same bytes."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass")
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()
