"""What the benchmark of a new clone reads from a demo: when each stage ended, and what is removed."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.systems.first_verdict import mebibytes, told
from memory_audit.errors import UsageError

DEMO = """
import sys
for line in ("Setting up", "[1/6] Models", "", "[2/6] Sign", "[3/6] Audit", "[4/6] Verdict", "m-1", "[5/6] Purify",
             "  would remove acme/m-1: says [6/6] so", "  would remove acme/m-2: likewise", "[6/6] Verify"):
    print(line, flush=True)
sys.exit(int(sys.argv[1]))
"""


def test_stages_end_where_the_next_is_announced(tmp_path):
    stages, removed = told([sys.executable, "-c", DEMO, "0"], tmp_path, dict(os.environ))
    assert list(stages) == ["install", "assemble models", "sign", "first named culprit", "purify", "verify"]
    assert removed == ["acme/m-1", "acme/m-2"]


def test_a_demo_that_fails_is_one_error_with_its_last_lines(tmp_path):
    with pytest.raises(UsageError, match=r"failed: .*\[6/6\] Verify"):
        told([sys.executable, "-c", DEMO, "3"], tmp_path, dict(os.environ))


def test_what_two_folders_share_is_counted_once(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "weights").write_bytes(b"1" * 3_000_000)
    (tmp_path / "two" / "weights").hardlink_to(tmp_path / "one" / "weights")
    assert mebibytes(tmp_path / "one", tmp_path / "two", tmp_path / "absent") <= 4
