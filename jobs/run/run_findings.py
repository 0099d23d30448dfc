"""The findings of a run's tenants on disk: written a part at a time, and read one tenant at a time.

    RUN/findings/*.parquet   see `memory_audit.report.tables`

Whoever writes a part keeps summaries alone, so that a run of any number of tenants needs the memory of one part.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_regular
from memory_audit.report.html import FEW
from memory_audit.report.tables import (
    KINDS,
    file_name,
    open_findings,
    part_name,
    read_findings,
    summary_of,
    write_findings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from memory_audit.parquet import RowGroups
    from memory_audit.report.views import ReadTenant
    from memory_audit.result import AuditResult, TenantResult, TenantSummary

__all__ = ["MAX_FILE_BYTES", "PART_TENANTS", "RunFindings", "found_of_few", "within", "write_part"]

PART_TENANTS = 32
"""Tenants of one part: enough that a run has few files, and few enough that a footer is read in milliseconds."""

MAX_FILE_BYTES = 1 << 30


def write_part(
    tenants: Sequence[TenantResult], write: Callable[[str, bytes], object]
) -> tuple[list[TenantSummary], dict[str, str]]:
    """Write the findings of some tenants.

    Args:
        tenants: By name.
        write: Puts a file into the run, by its name there.

    Returns:
        What `AuditResult.tenants` and `AuditResult.files` say of them.

    Raises:
        UsageError: something that no reader would take.
    """
    part = part_name(tenant.tenant for tenant in tenants)
    files = write_findings(part, tenants)
    for name, data in files.items():
        write(name, data)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return [summary_of(tenant, part) for tenant in tenants], digests


def within(result: AuditResult, folder: str) -> AuditResult:
    """Return a result whose files lie in a folder of the run's: of a group of its tenants, say."""
    return replace(
        result, files={f"{folder}/{name}": digest for name, digest in result.files.items()},
        tenants=tuple(
            replace(tenant, part=f"{folder}/{tenant.part}") if tenant.part else tenant for tenant in result.tenants
        ),
    )  # fmt: skip


def found_of_few(result: AuditResult, read: ReadTenant) -> list[TenantResult]:
    """Return what was found of each tenant of a run that has one page, and nothing of a run of many.

    Raises:
        UsageError: as `RunFindings`.
    """
    few = result.tenants if len(result.tenants) <= FEW else ()
    return [read(tenant) for tenant in few if tenant.failure is None]


class RunFindings:
    """Reads what a run found of a tenant, by the word of files that anybody may have written: to show.

    The open files of one part are kept: whoever goes through a run part by part opens each once.
    """

    def __init__(self, run: Path, result: AuditResult) -> None:
        self._run, self._digests = run, result.files
        self._parts: dict[str, list[TenantSummary]] = {}
        for tenant in result.tenants:
            self._parts.setdefault(tenant.part, []).append(tenant)
        self._places = {tenant.tenant: place for of in self._parts.values() for place, tenant in enumerate(of)}
        self._part = ""
        self._files: dict[str, RowGroups] = {}

    def __call__(self, tenant: TenantSummary) -> TenantResult:
        """Return one tenant's findings.

        Raises:
            UsageError: they cannot be read, or are not those of the result.
        """
        if self._part != tenant.part:
            names = {kind: file_name(kind, tenant.part) for kind in KINDS}
            self._files = {kind: self._open(kind, name) for kind, name in names.items() if name in self._digests}
            self._part = tenant.part
        part = self._parts[tenant.part]
        return read_findings(self._files, part, self._places[tenant.tenant], str(self._run))

    def _open(self, kind: str, name: str) -> RowGroups:
        path = self._run / name
        try:
            data = read_regular(path, MAX_FILE_BYTES)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
        return open_findings(data, kind, self._digests[name], str(path))
