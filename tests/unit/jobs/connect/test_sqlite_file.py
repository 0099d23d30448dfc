"""SQLite files of others are read without a changed byte, whatever state their writer left them in."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from memory_audit.errors import HeldError, StalePlanError, UsageError
from memory_audit.jobs.connect import sqlite_file
from tests.unit.jobs.connect.conftest import digests

WRITER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("pragma journal_mode=" + sys.argv[2]); db.execute("pragma wal_autocheckpoint=0")
db.execute("create table if not exists t (x)")
for n in range(40): db.execute("insert into t values (?)", ("memory %d " % n * 40,))
print("ready", flush=True); sys.stdin.readline()
"""


def count(path):
    with sqlite_file.reading(path) as connection:
        return connection.execute("SELECT count(*) FROM t").fetchone()[0]


@pytest.fixture(params=["delete", "wal"])
def mode(request):
    return request.param


@pytest.mark.parametrize("then", ["open", "killed", "killed, without -shm", "closed"])
def test_no_byte_changes_in_any_state(tmp_path, mode, then):
    path = tmp_path / "a.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        writer.stdout.readline()
        if then.startswith("killed"):
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        elif then == "closed":
            writer.communicate(b"\n")
        if then.endswith("-shm"):
            path.with_name("a.db-shm").unlink(missing_ok=True)
        before = digests(tmp_path)
        assert count(path) == 40
        assert digests(tmp_path) == before
        writer.kill()


def test_a_write_that_sqlite_could_not_see_is_told(tmp_path):
    path = tmp_path / "a.db"
    subprocess.run([sys.executable, "-c", WRITER, str(path), "wal"], input=b"\n", check=True, stdout=subprocess.DEVNULL)
    with (
        pytest.raises(StalePlanError, match="wrote to it while it was read"), sqlite_file.reading(path),
        closing(sqlite3.connect(path, isolation_level=None)) as agent,
    ):  # fmt: skip
        agent.execute("INSERT INTO t VALUES (1)")


def test_a_writer_that_was_killed_in_the_middle_is_told(tmp_path):
    path, copy = tmp_path / "a.db", tmp_path / "copy" / "a.db"
    copy.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as agent:
        agent.execute("CREATE TABLE t (x)")
        agent.executemany("INSERT INTO t VALUES (?)", [("x" * 3000,)] * 50)
        agent.execute("PRAGMA cache_size = 1")
        agent.execute("BEGIN")
        agent.execute("UPDATE t SET x = 'y'")
        for file in sqlite_file.files_of(path):
            shutil.copy(file, copy.with_name(file.name))
    with pytest.raises(UsageError, match="killed in the middle of a write"):
        count(copy)


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0", b"no database, but long enough to be one" * 9])
def test_what_is_no_database_is_one_line(tmp_path, data):
    (tmp_path / "a.db").write_bytes(data)
    with pytest.raises(UsageError, match="no SQLite file"):
        count(tmp_path / "a.db")


def test_a_write_is_whole_or_not_at_all_and_waits_for_nobody_for_ever(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    subprocess.run(
        [sys.executable, "-c", WRITER, str(path), "delete"], input=b"\n", check=True, stdout=subprocess.DEVNULL
    )
    with pytest.raises(KeyError), sqlite_file.writing(path) as connection:  # noqa: PT012 - it fails in the middle
        connection.execute("DELETE FROM t")
        raise KeyError
    assert count(path) == 40
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as agent:
        agent.execute("BEGIN IMMEDIATE")
        with pytest.raises(HeldError, match="stop it"), sqlite_file.writing(path):
            pass


def test_erasing_leaves_nothing_of_what_was_deleted(tmp_path, mode):
    path = tmp_path / "a.db"
    subprocess.run([sys.executable, "-c", WRITER, str(path), mode], input=b"\n", check=True, stdout=subprocess.DEVNULL)
    with closing(sqlite3.connect(path, isolation_level=None)) as agent:
        agent.execute("PRAGMA secure_delete = OFF")
        agent.execute("DELETE FROM t WHERE x LIKE 'memory 7 %'")
    sqlite_file.erase(path)
    assert not [file for file in sqlite_file.files_of(path) if b"memory 7 " in file.read_bytes()]
    assert count(path) == 39
