"""How the project's extras are installed: from its own folder, since it is on no package index."""

from __future__ import annotations

__all__ = ["with_extra"]


def with_extra(extra: str) -> str:
    """Return the command that installs an extra, for messages."""
    return f"in MemAudit's folder: pip install -c constraints.txt '.[{extra}]'"
