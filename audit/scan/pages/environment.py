"""Templates of the pages: every value is escaped, and the policy allows nothing but one style and one script."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from memory_audit.consistency.graph import CONTRADICTION_WEIGHT
from memory_audit.report.html.environment import PACKAGE as REPORTS
from memory_audit.report.html.environment import STYLE, asset, page_environment, policy_hash
from memory_audit.scan.finding import SEVERITIES
from memory_audit.scan.pages.commands import is_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    import jinja2

__all__ = ["render"]

PACKAGE = "memory_audit.scan.pages"


def render(template: str, values: Mapping[str, object]) -> str:
    """Return a page."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> jinja2.Environment:
    environment = page_environment(PACKAGE)
    environment.filters.update(
        percent=lambda value: f"{100 * value:.0f} %" if value >= 0.01 or not value else "< 1 %",  # noqa: PLR2004
        number=lambda value: f"{value:.2f}".replace("-", "−"),
    )
    environment.tests["plain"] = is_plain
    css, script = asset(REPORTS, STYLE) + asset(PACKAGE, "pages.css"), asset(PACKAGE, "pages.js")
    environment.globals.update(
        css=css, css_hash=policy_hash(css), script=script, script_hash=policy_hash(script), severities=SEVERITIES,
        contradicts=CONTRADICTION_WEIGHT,
    )  # fmt: skip
    return environment
