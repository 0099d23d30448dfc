"""The lease of a store: two processes never have it at once, and that of a dead one is free."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import pytest

from memory_audit.errors import HeldError, IncompleteError, UsageError
from memory_audit.jobs.store import lease
from memory_audit.jobs.store.lease import leased as leased_store

leased = partial(leased_store, new=True)

HOLD = """
import sys, time
from pathlib import Path
from memory_audit.jobs.store.lease import leased
with leased(Path(sys.argv[1]), "nightly", new=True):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


@contextmanager
def holder(store, seconds):
    words = [sys.executable, "-c", HOLD, str(store), str(seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process


def leave_a_dead_holder(store):
    with holder(store, 600) as process:
        with pytest.raises(HeldError), leased(store, "purge"):
            pass
        os.kill(process.pid, signal.SIGKILL)


def leases(store):
    return sorted(path.name for path in (store / "scratch").iterdir())


def test_a_second_process_leaves_with_one_line_that_names_the_first(store):
    with leased(store, "nightly"):
        second = subprocess.run(
            [sys.executable, "-c", HOLD, str(store), "0"], capture_output=True, text=True, check=False
        )
    assert f"is held by another command (memaudit nightly, process {os.getpid()} on " in second.stderr
    assert second.stdout == ""
    assert leases(store) == []


def test_a_second_one_that_waits_follows_the_first(store):
    with holder(store, 0.5) as first, leased(store, "purge", wait_s=60):
        assert first.wait() == 0
    assert leases(store) == []


def test_the_lease_of_a_process_that_was_killed_is_free_at_once(store):
    leave_a_dead_holder(store)
    with leased(store, "purge") as held:
        assert leases(store) == [held.path.name] == ["lease-2.json"]


@pytest.fixture
def shared(monkeypatch):
    """The file system is one that other machines write to."""
    monkeypatch.setattr(lease, "is_of_this_machine", lambda _: False)


def age(path, seconds):
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


@pytest.mark.usefixtures("shared")
def test_elsewhere_the_lease_of_a_dead_process_is_free_when_it_was_not_renewed_for_long(store):
    leave_a_dead_holder(store)
    with pytest.raises(HeldError), leased(store, "purge"):
        pass
    age(store / "scratch" / "lease-1.json", lease.EXPIRES_S + 5)
    with leased(store, "purge") as held:
        assert held.path.name == "lease-2.json"


def test_who_stood_still_for_long_learns_that_another_took_over_and_leaves_its_lease_alone(store):
    with leased(store, "nightly") as first:
        age(first.path, lease.EXPIRES_S + 5)
        with leased(store, "purge") as second:
            with pytest.raises(IncompleteError, match="was taken over"):
                first.check()
            second.check()
        with leased(store, "purge") as third:  # it has the first one's number again
            assert third.path == first.path
            with pytest.raises(IncompleteError):
                first.check()
    assert leases(store) == []


def test_a_lease_that_is_held_is_renewed(store, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_S", 0.01)
    with leased(store, "nightly") as held:
        age(held.path, 1_000)
        while time.time() - held.path.stat().st_mtime > 500:
            time.sleep(0.01)


def test_of_two_who_find_a_free_lease_one_takes_it(store, monkeypatch):
    (store / "scratch").mkdir(parents=True)
    real, rivals = lease._is_free, []

    def slow(path, *, now_s):
        free = real(path, now_s=now_s)
        if not rivals:
            rivals.append(None)
            rivals[0] = lease._take(path.parent, "rival")
        return free

    (store / "scratch" / "lease-4.json").write_bytes(b"{}")
    monkeypatch.setattr(lease, "_is_free", slow)
    assert lease._take(store / "scratch", "mine") is None
    assert rivals[0].path.name == "lease-5.json"
    os.close(rivals[0].descriptor)


def test_who_saw_an_old_view_of_the_folder_gives_way(store, monkeypatch):
    (store / "scratch").mkdir(parents=True)
    (store / "scratch" / "lease-1.json").write_bytes(b"{}")
    with leased(store, "nightly") as first:  # took lease-2, and removed the first
        monkeypatch.setattr(lease, "_newest", lambda _: 0)
        assert lease._take(store / "scratch", "late") is None
        first.check()
        assert leases(store) == ["lease-2.json"]


@pytest.mark.parametrize(
    "text", [b"", b"\x00", b"[]", b'{"host": "\\u001b[2J", "pid": {}, "command": "x"}', b"x" * 9_999]
)
def test_what_a_strangers_lease_says_does_no_harm(store, text):
    (store / "scratch").mkdir(parents=True)
    path = store / "scratch" / "lease-1.json"
    path.write_bytes(text)
    with path.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        with pytest.raises(HeldError) as refused, leased(store, "purge"):
            pass
    assert "\x1b" not in str(refused.value)
    assert "another command" in str(refused.value)


def test_where_there_is_no_store_nothing_is_made(store):
    with pytest.raises(UsageError, match="no store at"), leased_store(store, "purge"):
        pass
    assert not store.exists()
