"""The findings of a run folder, whichever command made it: a scan's own, or the verdicts of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_regular
from memory_audit.jobs.run.run_audit import read_result
from memory_audit.jobs.run.run_findings import RunFindings
from memory_audit.scan.forms.json import MAX_BYTES, from_json
from memory_audit.scan.verdicts import as_scan

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.scan.result import ScanResult

__all__ = ["SCAN_FILE", "is_scan", "read_findings", "read_scan"]

SCAN_FILE = "scan.json"


def is_scan(run: Path) -> bool:
    """Tell whether a folder is that of a finished scan."""
    return (run / SCAN_FILE).is_file()


def read_findings(run: Path) -> ScanResult:
    """Read what a scan or an audit found.

    Raises:
        UsageError: no finished run there, or one that is damaged or of another version.
    """
    if is_scan(run):
        return read_scan(run)
    result = read_result(run)
    return as_scan(result, RunFindings(run, result))


def read_scan(run: Path) -> ScanResult:
    """Read what a scan found.

    Raises:
        UsageError: no finished scan there, or one that is damaged or of another version.
    """
    path = run / SCAN_FILE
    try:
        return from_json(read_regular(path, MAX_BYTES), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
