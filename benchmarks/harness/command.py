"""How a benchmark ends when it cannot run: one line and an exit code, as `cli.main` does for the product's commands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console

from memory_audit.errors import AuditError
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]


def run(main: Callable[[], None]) -> None:
    """Run a benchmark; this project's own errors become a line on standard error and their exit code."""
    try:
        main()
    except AuditError as error:
        line = f"benchmark: {as_line(str(error), 600)}"
        Console(stderr=True, soft_wrap=True).print(line, markup=False, highlight=False, style="bold red")
        sys.exit(error.exit_code)
