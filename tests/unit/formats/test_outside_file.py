"""Files and folders that others made or named."""

# ruff: noqa: PTH116 - `os.stat` is what is replaced

from __future__ import annotations

import errno
import os
import threading
import tracemalloc
from pathlib import Path

import pytest

from memory_audit.errors import UsageError, VerificationError
from memory_audit.formats import outside_file
from memory_audit.formats.outside_file import UnfitFileError, open_regular, read_at_most, read_regular, walk
from memory_audit.provenance import durable


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


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", r"cannot be read \(No such file or directory\)"),
        (".", r"cannot be read \(Is a directory\)"),
        ("a\0b", r"a\\x00b': cannot be read \(no path holds a NUL character\)"),
        ("x" * 300, r"cannot be read \(File name too long\)"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, name, why):
    with pytest.raises(UsageError, match=why):
        read_at_most(tmp_path / name, 10)


@pytest.mark.timeout(60)
def test_what_is_no_regular_file_is_not_opened(tmp_path):
    pipe, device, loop = (tmp_path / name for name in ("pipe", "device", "loop"))
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    loop.symlink_to("loop")
    for path in (pipe, device, tmp_path, Path("/dev/null")):
        with pytest.raises(UnfitFileError) as refused:
            open_regular(path)
        assert refused.value.strerror == "not a file"
    with pytest.raises(UnfitFileError, match="NUL"):
        open_regular(Path("a\0b"))
    for path, error in ((loop, errno.ELOOP), (tmp_path / "gone", errno.ENOENT), (pipe / "x", errno.ENOTDIR)):
        with pytest.raises(OSError) as failed:  # noqa: PT011 - its number is looked at
            open_regular(path)
        assert failed.value.errno == error


@pytest.mark.timeout(60)
def test_a_pipe_that_takes_the_place_of_a_file_at_the_last_moment_is_not_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(b"x")
    before = os.stat(path)
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(os, "stat", lambda _: before)
    with pytest.raises(UnfitFileError, match="not a file"):
        open_regular(path)


def test_a_link_to_a_file_is_read(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("f")
    assert read_regular(tmp_path / "link", 3) == b"abc"
    with pytest.raises(UnfitFileError, match="3 bytes, at most 2 are expected"):
        read_regular(tmp_path / "link", 2)


def test_memory_is_taken_for_what_is_there(tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 1_000)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    try:
        assert len(durable.read_bounded(tmp_path / "f", 1 << 30, "f")) == 1_000
        with pytest.raises(VerificationError, match=f"large: {1 << 40} bytes, at most {1 << 30} are expected"):
            durable.read_bounded(tmp_path / "large", 1 << 30, "large")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_of_the_kernel_that_states_no_size_is_not_read_to_its_end():
    with pytest.raises(UnfitFileError, match="it grew while it was read, or has no end"):
        read_regular(Path("/proc/self/maps"), 1 << 30)


def names(folder, **options):  # noqa: ANN003
    return sorted((str(path.relative_to(folder)), is_folder) for path, is_folder in walk(folder, **options))


def test_all_below_a_folder_is_found_and_links_are_followed_on_request_only(tmp_path):
    for name in ("a/b/c", "a/d", "e", "left/out"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "to-file").symlink_to("e")
    (tmp_path / "to-folder").symlink_to("a")
    (tmp_path / "to-nothing").symlink_to("gone")
    (tmp_path / "a" / "to-itself").symlink_to("to-itself")
    os.mkfifo(tmp_path / "pipe")
    found = ["a/b/c", "a/d", "a/to-itself", "e", "left/out", "pipe", "to-file", "to-nothing"]
    assert names(tmp_path) == [(name, False) for name in found]
    followed = [*found, "to-folder/b/c", "to-folder/d", "to-folder/to-itself"]
    assert names(tmp_path, follow_links=True) == [(name, False) for name in sorted(followed)]
    assert names(tmp_path, skip="left".__eq__) == [(name, False) for name in found if name != "left/out"]
    assert names(tmp_path / "gone") == names(tmp_path / "e") == []


def test_a_folder_too_deep_or_one_too_many_stands_for_what_is_in_it(tmp_path, monkeypatch):
    (tmp_path / "a/b/c/d").mkdir(parents=True)
    (tmp_path / "a/b/c/d/f").write_bytes(b"")
    assert names(tmp_path) == [("a/b/c/d/f", False)]
    monkeypatch.setattr(outside_file, "MAX_DEPTH", 2)
    assert names(tmp_path) == [("a/b/c", True)]
    monkeypatch.setattr(outside_file, "MAX_FOLDERS", 2)
    assert names(tmp_path) == [("a/b", True)]


def test_links_that_lead_to_each_other_end(tmp_path, monkeypatch):
    monkeypatch.setattr(outside_file, "MAX_FOLDERS", 500)
    (tmp_path / "a").mkdir()
    for name in ("x", "y", "z"):
        (tmp_path / "a" / name).symlink_to("../a")
    assert 0 < sum(is_folder for _, is_folder in walk(tmp_path, follow_links=True)) <= 1_500
