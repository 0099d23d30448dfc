"""How the project's extras are installed: from its own folder. On package indexes its name is another project's."""

from __future__ import annotations

__all__ = ["with_extra"]


def with_extra(extra: str) -> str:
    """Return the command that installs an extra, for messages."""
    return f"in MemAudit's folder: pip install -c constraints.txt '.[{extra}]'"
