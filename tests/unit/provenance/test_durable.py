"""Files that are there whole or not at all: what a dead writer leaves is told from what a living one writes."""

import errno
import fcntl
import os
import threading

import pytest

from memory_audit.errors import IncompleteError
from memory_audit.provenance import durable
from tests.unit.snapshot.stores import Killed, broken_os

DEAD = ".0123456789abcdef01234567.part"


def test_what_a_living_writer_writes_stays_and_what_a_dead_one_left_goes(tmp_path):
    (tmp_path / DEAD).write_bytes(b"half of a secret")
    begun, go_on = threading.Event(), threading.Event()

    def parts():
        yield b"first "
        begun.set()
        assert go_on.wait(60)
        yield b"second"

    writer = threading.Thread(target=durable.replace, args=(tmp_path / "file", parts()))
    writer.start()
    try:
        assert begun.wait(60)
        durable.remove_leftovers(tmp_path)
        (partial,) = tmp_path.iterdir()
        assert (durable.is_leftover(partial), partial.name == DEAD) == (True, False)
    finally:
        go_on.set()
        writer.join()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"first second")]


def test_a_writer_whose_file_is_taken_for_a_dead_ones_before_it_is_locked_takes_another(tmp_path, monkeypatch):
    flock, taken = fcntl.flock, []

    def late(descriptor, kind):
        if not taken:
            taken.extend(tmp_path.iterdir())
            taken[0].unlink()
        flock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    durable.replace(tmp_path / "file", b"all")
    assert (len(taken), (tmp_path / "file").read_bytes()) == (1, b"all")


@pytest.mark.parametrize(
    "name",
    [".0123456789abcdef0123456.part", ".0123456789abcdef01234567.part2", "0123456789abcdef01234567.part", ".x.part"],
)
def test_only_what_is_named_like_a_scratch_file_is_left_over(tmp_path, name):
    (tmp_path / name).write_bytes(b"of somebody else")
    (tmp_path / DEAD).symlink_to(tmp_path / name)
    durable.remove_leftovers(tmp_path)
    assert (tmp_path / name).read_bytes() == b"of somebody else"
    assert (tmp_path / DEAD).is_symlink()


def test_nothing_is_removed_where_other_machines_write(tmp_path, monkeypatch):
    monkeypatch.setattr("memory_audit.provenance.folder_lock.OF_ONE_MACHINE", frozenset())
    (tmp_path / DEAD).write_bytes(b"of a writer elsewhere")
    durable.remove_leftovers(tmp_path)
    assert (tmp_path / DEAD).exists()


def test_a_killed_writer_leaves_the_old_content_and_what_can_be_removed(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"old")
    broken_os(monkeypatch, 1)
    with pytest.raises(Killed):
        durable.replace(tmp_path / "file", b"new and longer")
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 2
    durable.remove_leftovers(tmp_path)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_a_folder_that_cannot_be_synced_is_not_said_to_hold_the_old_content(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"old")
    calls = []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(IncompleteError, match="file is there, but its folder cannot be synced"):
        durable.replace(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_what_nobody_needs_after_a_power_cut_is_whole_and_waits_for_no_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", None)
    durable.replace(tmp_path / "status.json", b"new", synced=False)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("status.json", b"new")]
