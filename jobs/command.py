"""The command `memaudit`. The base install has none of its libraries; there it names the extra that brings them."""

from __future__ import annotations

import sys
from importlib.metadata import version
from importlib.util import find_spec
from typing import NoReturn

from memory_audit.models.extras import with_extra

__all__ = ["main"]

NEEDED = ("typer", "rich", "platformdirs")


def main() -> NoReturn:
    """Run the command line; without the extra `audit` tell the version, or that the extra is missing (exit code 2)."""
    if all(find_spec(name) is not None for name in NEEDED):
        from memory_audit.jobs.cli.main import main as run  # noqa: PLC0415 - imports what may be missing

        run()
    if sys.argv[1:] == ["--version"]:
        print(version("memory-audit"))  # noqa: T201 - scripts read it
        sys.exit(0)
    print(f"memaudit: commands need more libraries; {with_extra('audit')}", file=sys.stderr)  # noqa: T201
    sys.exit(2)
