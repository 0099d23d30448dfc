"""A run held whole in memory, for tests: an `AuditResult` whose tenants are `TenantResult`s, not summaries of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memory_audit.jobs.run.run_audit import read_result
from memory_audit.jobs.run.run_findings import RunFindings
from memory_audit.report.html import render_html
from memory_audit.report.sarif import to_sarif
from memory_audit.report.summary import headline, summarise, worst_tenants
from memory_audit.report.table import render_table
from memory_audit.report.tables import summary_of

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.report.views import ReadTenant
    from memory_audit.result import AuditResult

__all__ = [
    "counts_of", "headline_of", "page_of", "read_whole", "sarif_of", "summed", "table_of", "whole", "worst_of",
]  # fmt: skip


def whole(run: Path, result: AuditResult) -> Any:
    """Return a run's result with the findings of its tenants in place of their summaries, but of those that failed."""
    read = RunFindings(run, result)
    tenants: list[Any] = [tenant if tenant.failure is not None else read(tenant) for tenant in result.tenants]
    return replace(result, tenants=tuple(tenants))


def read_whole(run: Path) -> Any:
    """Return what lies in a run folder, whole."""
    return whole(run, read_result(run))


def summed(result) -> tuple[AuditResult, ReadTenant]:
    """Return the result as a run has it, and what reads the findings of its tenants."""
    found = {tenant.tenant: tenant for tenant in result.tenants}
    tenants = tuple(summary_of(tenant, "findings/00") for tenant in result.tenants)
    return replace(result, tenants=tenants), lambda summary: found[summary.tenant]


def page_of(result) -> str:
    """Return the one page of a run."""
    return render_html(*summed(result))


def table_of(result):
    """Return a run's table."""
    return render_table(*summed(result))


def sarif_of(result) -> str:
    """Return a run's SARIF."""
    return to_sarif(*summed(result), "0.1.0")


def headline_of(result) -> tuple[str, str]:
    """Return a run's verdict."""
    return headline(summed(result)[0])


def counts_of(tenants):
    """Return the counts over tenants whose findings are given."""
    return summarise([summary_of(tenant, "findings/00") for tenant in tenants])


def worst_of(tenants) -> list[str]:
    """Return the names of tenants as reports list them."""
    return [tenant.tenant for tenant in worst_tenants([summary_of(tenant, "findings/00") for tenant in tenants])]
