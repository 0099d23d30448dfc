"""The forms that a scan is written in for other programs, by the name that `--format` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.scan.forms.csv import to_csv
from memory_audit.scan.forms.json import to_json
from memory_audit.scan.forms.junit import to_junit
from memory_audit.scan.forms.markdown import to_markdown
from memory_audit.scan.forms.ocsf import to_ocsf
from memory_audit.scan.forms.sarif import to_sarif

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memory_audit.scan.result import ScanResult

__all__ = ["FORMATS"]

FORMATS: Mapping[str, Callable[[ScanResult, str], str]] = {
    "json": lambda result, _: to_json(result),
    "sarif": to_sarif,
    "junit": lambda result, _: to_junit(result),
    "csv": lambda result, _: to_csv(result),
    "ocsf": to_ocsf,
    "markdown": lambda result, _: to_markdown(result),
}
"""Each is given the scan and this program's version, and returns text to be written as UTF-8."""
