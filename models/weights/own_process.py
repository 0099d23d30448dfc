"""A step of an assembly in a process of its own, which gives its memory back when it ends."""

from __future__ import annotations

import os
import subprocess
import sys

from memory_audit.errors import ModelError

__all__ = ["run_module"]


def run_module(module: str, *arguments: str, what: str) -> None:
    """Run a module of this package with this interpreter, and without the network.

    Args:
        module: Its full name.
        arguments: Of its command line.
        what: Names the step, for the error.

    Raises:
        ModelError: the process failed; carries the last line it wrote.
    """
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.run(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", module, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        last = (process.stderr.strip().splitlines() or ["no output"])[-1]
        raise ModelError(f"{what} failed with exit code {process.returncode}: {last[:300]}")
