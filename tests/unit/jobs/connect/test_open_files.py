"""A process that has a file open is named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from memory_audit.errors import HeldError
from memory_audit.jobs.connect import open_files


def test_another_process_is_named_while_it_has_a_file_open_and_not_after(tmp_path):
    files = [tmp_path / "a", tmp_path / "b", tmp_path / "gone meanwhile"]
    for path in files[:2]:
        path.touch()
    (tmp_path / "link").symlink_to("b")
    program = "import sys; file = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with files[0].open() as _, open_files.closed(tmp_path, files):  # this process is not another one
        pass
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "link"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(HeldError, match=f"process {other.pid} has it open"), open_files.closed(tmp_path, files):
            pass
        with open_files.closed(tmp_path, files[:1]):
            pass
        other.communicate()
    with open_files.closed(tmp_path, files):
        pass
