"""Files that users name."""

from __future__ import annotations

import os
import threading

import pytest

from audit.errors import UsageError
from audit.user_file import read_at_most


def test_a_file_is_read_whole_and_a_larger_one_a_byte_too_far(tmp_path):
    path = tmp_path / "some"
    for size in (0, 9, 10, 11, 500):
        path.write_bytes(b"x" * size)
        assert len(read_at_most(path, 10)) == min(size, 11)


def test_a_pipe_is_read_as_a_file_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"y" * 200_000,), daemon=True)
    writer.start()
    assert read_at_most(pipe, 300_000) == b"y" * 200_000
    writer.join(timeout=30)
    assert not writer.is_alive()


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cannot_be_read_is_one_line(tmp_path, name):
    with pytest.raises(UsageError, match=r"cannot be read \((No such file|Is a directory)"):
        read_at_most(tmp_path / name, 10)
