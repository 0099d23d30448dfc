"""Templates of the pages: every value is escaped, and the policy allows nothing but one style and one script."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import jinja2

from memory_audit.consistency.graph import CONTRADICTION_WEIGHT
from memory_audit.report.untrusted import NAME_CHARS, as_html, as_line
from memory_audit.scan.finding import SEVERITIES
from memory_audit.scan.pages.commands import is_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["render"]


def render(template: str, values: Mapping[str, object]) -> str:
    """Return a page."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_asset),
    )
    environment.filters.update(
        text=as_html,
        name=lambda value, limit=NAME_CHARS: as_html(value, limit),
        line=as_line,
        count=lambda value: f"{value:,}",
        when=_when,
        day=lambda value: _when(value)[:10],
        percent=lambda value: f"{100 * value:.0f} %" if value >= 0.01 or not value else "< 1 %",  # noqa: PLR2004
        number=lambda value: f"{value:.2f}".replace("-", "−"),
    )
    environment.tests["plain"] = is_plain
    css = files("memory_audit.report.html").joinpath("page.css").read_text(encoding="utf-8") + _asset("pages.css")
    script = _asset("pages.js")
    environment.globals.update(
        css=css,
        css_hash=_hash(css),
        script=script,
        script_hash=_hash(script),
        severities=SEVERITIES,
        contradicts=CONTRADICTION_WEIGHT,
    )
    return environment


def _asset(name: str) -> str:
    return files("memory_audit.scan.pages").joinpath(name).read_text(encoding="utf-8")


def _hash(code: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}"


def _when(moment_ms: int) -> str:
    try:
        return dt.datetime.fromtimestamp(moment_ms / 1_000, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return f"{moment_ms} ms after 1970"
