"""Templates of the pages: every value is escaped, and a page's policy allows nothing but its own style and script."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING

import jinja2

from memory_audit.events import HARMFUL
from memory_audit.report.confidence import p_text
from memory_audit.report.summary import compared_note, path_line, untold
from memory_audit.report.untrusted import NAME_CHARS, as_html, as_line

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MAX_ROWS", "PACKAGE", "STYLE", "asset", "page_environment", "policy_hash", "render"]

PACKAGE, STYLE = "memory_audit.report.html", "page.css"

MAX_ROWS = 100
"""Of a table on a tenant's page."""

PAIRS_PER_CARD = 3
"""Counterfactual pairs repeated on one card; further events are linked."""

MAX_LEAD_NAMES = 12


def render(template: str, values: Mapping[str, object], *, script: str = "") -> str:
    """Return a page.

    Args:
        template: Its file.
        values: What the template shows.
        script: File of the one script that the page may run; empty for none.
    """
    code = asset(PACKAGE, script) if script else ""
    return _environment().get_template(template).render(
        values, script=code, script_hash=policy_hash(code) if script else ""
    )  # fmt: skip


@cache
def _environment() -> jinja2.Environment:
    environment = page_environment(PACKAGE)
    environment.filters.update(
        path=path_line, score=_score, p=p_text, total=lambda value: f"{value:,.1f}", untold=untold,
        compared=compared_note,
    )  # fmt: skip
    environment.globals.update(
        css=asset(PACKAGE, STYLE), rows=MAX_ROWS, pairs=PAIRS_PER_CARD, names=MAX_LEAD_NAMES, harmful=HARMFUL
    )
    return environment


def page_environment(package: str) -> jinja2.Environment:
    """Return what all pages have in common: every value is escaped, and shown by these filters.

    Args:
        package: Its files are the templates.
    """
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(partial(asset, package)),
    )
    environment.filters.update(
        text=as_html,
        name=lambda value, limit=NAME_CHARS: as_html(value, limit),
        line=as_line,
        count=lambda value: f"{value:,}",
        when=_when,
        day=lambda value: _when(value)[:10],
    )
    return environment


def asset(package: str, name: str) -> str:
    """Read a file of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def policy_hash(code: str) -> str:
    """Return the source by which a Content-Security-Policy allows this style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}"


def _score(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "unknown"
    return f"{value + 0.0:.{digits}g}".replace("-", "−")  # + 0.0 turns -0.0 into 0


def _when(started_ms: int) -> str:
    try:
        return datetime.fromtimestamp(started_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return f"{started_ms} ms after 1970"
