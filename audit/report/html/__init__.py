"""Pages for people: of a run, of each of its tenants, and of nights side by side."""

from __future__ import annotations

from memory_audit.report.html.nights import render_nights
from memory_audit.report.html.page import FEW, render_html, render_index, render_tenant, report_files

__all__ = [
    "FEW", "render_html", "render_index", "render_nights", "render_tenant", "report_files",
]  # fmt: skip
