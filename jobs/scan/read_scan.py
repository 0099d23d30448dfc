"""The findings of a run folder, whichever command made it: a scan's own, or the verdicts of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_regular
from memory_audit.jobs.run.run_audit import read_result
from memory_audit.jobs.run.run_findings import RunFindings
from memory_audit.scan.forms.json import MAX_BYTES, from_json
from memory_audit.scan.verdicts import Verdicts, as_scan

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from memory_audit.scan.result import ScanResult

__all__ = ["SCAN_FILE", "is_scan", "read_findings", "read_scan", "read_verdicts"]

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


def read_verdicts(runs: Iterable[Path], source: str) -> Verdicts:
    """Read what audits of a store found.

    Raises:
        UsageError: no finished audit there, one that is damaged, or of another store.
    """
    audits = []
    for run in runs:
        result = read_result(run)
        if result.store != source:
            raise UsageError(f"{run}: an audit of {result.store!r:.80}, and not of {source!r:.80}")
        audits.append((result, RunFindings(run, result)))
    return Verdicts(audits)


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
