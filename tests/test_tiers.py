"""What `make check` leaves out stays out of it, and a tool that must be asked is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memory_audit.models.weights.packaged import ensure

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.tool("none")
def test_a_test_that_is_not_marked_gets_no_weights():
    with pytest.raises(pytest.fail.Exception, match="mark it `weights`"):
        ensure("0.5b")


@pytest.mark.parametrize(("tools", "code"), [("", 0), ("none", 0), ("none absent", 1)])
def test_a_run_fails_where_no_test_asked_a_tool_that_it_must_ask(tools, code):
    one = f"tests/test_tiers.py::{test_a_test_that_is_not_marked_gets_no_weights.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", one],
        env=os.environ | {"MEMAUDIT_TESTED_TOOLS": tools}, cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    assert ("no test passed that asks absent" in done.stdout) == bool(code)
