"""The files of a run folder (`memory_audit.jobs.run.run_folder`): their names, and how its markers are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_regular
from memory_audit.request import RUN_FORMAT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memory_audit.jobs.run.run_seal import Codes

__all__ = [
    "AT_WORK", "EMBEDDING", "ENTAILMENT", "GROUPS", "LOG_FILE", "MARKER_FILE", "MAX_MARKER_BYTES", "MODELS_FILE",
    "PAGES", "PROGRAM", "REPLAYS", "REPORT_FILE", "RESULT_FILE", "ROLES", "parse_marker", "read_identity",
    "read_marker", "read_models", "shard_code", "shards",
]  # fmt: skip

MAX_MARKER_BYTES = 1 << 20
"""Of a file of digests or of model ids."""

MARKER_FILE = "run.json"
MODELS_FILE = "models.json"
RESULT_FILE = "result.json"
REPORT_FILE = "report.html"
PAGES = "report"
"""Folder of the pages of a run of many tenants."""

LOG_FILE = "search.jsonl"
"""The debug log: to be read by people, and used by nothing."""

PROGRAM = "program"
"""In the marker of a group: `AuditRequest.program`."""

GROUPS = "groups"
"""Folder of what is known of each group of tenants (`memory_audit.jobs.run.groups`)."""

AT_WORK = "at-work"
"""Folder of what is being done now, a file for each group at work (`memory_audit.jobs.watching.status`)."""

REPLAYS, ENTAILMENT, EMBEDDING = "replays", "entailment", "embedding"
ROLES = {REPLAYS: "backbone", ENTAILMENT: "nli", EMBEDDING: "embedder"}
"""Folders of shards, by which model is asked for them; they may be deleted once the result is written."""


def shard_code(codes: Codes, kind: str, models: Mapping[str, str], data: bytes) -> str:
    """Return what the stem of a shard's name must be, by which model of the run is asked for such."""
    return codes.of(kind, models.get(ROLES[kind], ""), data)


def read_identity(path: Path) -> dict[str, str]:
    """Return what the run in a folder depends on.

    Raises:
        UsageError: no run there, or one of another format.
    """
    if not (path / MARKER_FILE).is_file():
        raise UsageError(f"{path}: no run there")
    identity, _ = read_marker(path / MARKER_FILE)
    if identity.get("format") != RUN_FORMAT:
        raise UsageError(f"{path}: a run of the format {identity.get('format', 'none')!r:.40}, not {RUN_FORMAT!r}")
    return identity


def read_models(path: Path) -> dict[str, str]:
    """Return which models answered in a run, by the word of a file that anybody may have written: role to model id.

    Raises:
        UsageError: the file is damaged.
    """
    return read_marker(path / MODELS_FILE)[0] if (path / MODELS_FILE).exists() else {}


def shards(path: Path, kind: str) -> list[Path]:
    """Return a run's shards of one of ROLES, in the order of their names."""
    return sorted((path / kind).glob("*.parquet"))


def parse_marker(data: bytes, where: str) -> dict[str, str]:
    """Read what a run depends on, by name.

    Raises:
        UsageError: not the marker of a run.
    """
    try:
        known = outside_json.decode(data, where)
    except UsageError:
        known = None
    if not isinstance(known, dict) or not all(isinstance(value, str) for value in known.values()):
        raise UsageError(f"{where}: not a run's marker; choose another --out")
    return known


def read_marker(marker: Path) -> tuple[dict[str, str], bytes]:
    """Read a file of digests or of model ids, and return its bytes too.

    Raises:
        UsageError: it cannot be read, or is damaged.
    """
    try:
        data = read_regular(marker, MAX_MARKER_BYTES)
    except OSError as error:
        raise UsageError(f"{marker}: cannot be read ({error.strerror}); choose another --out") from None
    return parse_marker(data, str(marker)), data
