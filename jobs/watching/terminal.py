"""The terminal as commands write to it: lines are not broken, and nothing in them is taken for something else."""

from __future__ import annotations

from rich.console import Console

__all__ = ["terminal"]


def terminal(*, stderr: bool = False) -> Console:
    """Return standard output or error. By itself rich would show a name such as `:key:` as a picture of a key."""
    return Console(stderr=stderr, soft_wrap=True, emoji=False)
