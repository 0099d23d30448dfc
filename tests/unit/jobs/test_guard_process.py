"""`memaudit guard serve` as a process that may open few files, and as others meet it."""

from __future__ import annotations

import http.client
import json
import re
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from memory_audit.provenance.keys import save_policy
from memory_audit.snapshot.publishing.publish import create_store
from tests.unit.snapshot.stores import STORE_ID, entry, keyring

FILES = 150
WRITE = {"tenant": "acme", "entry_id": "w", "request": "", "response": "Roses like water"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A port and the file of its standard error."""
    folder = tmp_path_factory.mktemp("served")
    save_policy(keyring().policy, folder / "policy.json")
    create_store(folder / "store", [entry("acme", "e1", created_at_ms=1)], keyring(), now_ms=1, store_id=STORE_ID)
    with (folder / "errors").open("wb") as errors, subprocess.Popen(
        [sys.executable, "-m", "memory_audit.jobs.cli.main", "guard", "serve", "store", "--trust", "policy.json",
         "--pin", "pin.json", "--mode", "behaviour", "--embedder", "fake", "--port", "0", "--log", "log"],
        cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True,
    ) as process:  # fmt: skip
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        port = next(found[1] for line in process.stdout if (found := re.search(r"Running on .*:(\d+)", line)))
        yield int(port), folder / "errors"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def ask(port, host="localhost"):
    """Return the status of a write."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {"Content-Type": "application/json", "Host": host}
        connection.request("POST", "/check", json.dumps(WRITE), headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_more_connections_that_ask_nothing_than_files_stop_nobody_and_fill_no_standard_error(served):
    port, errors = served
    with ExitStack() as idle:
        for number in range(3 * FILES):
            stranger = idle.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            if number % 2:
                stranger.send(b"POST /check HTTP/1.1\r\nHost: local")
        assert [ask(port) for _ in range(20)] == [200] * 20
    assert errors.stat().st_size < 1_000


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.:1", "127.0.0.1", "127.1.2.3:80", "[::1]:8414"])
def test_without_a_token_this_machines_own_names_are_answered(served, host):
    assert ask(served[0], host) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8414", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example#localhost",
     "localhost@evil.example", "127.0.0.1\u0000", "10.0.0.1", "[::2]", "", "localhost, evil.example"],
)  # fmt: skip
def test_without_a_token_a_name_of_another_host_is_refused(served, host):
    assert ask(served[0], host.replace("\u0000", "%00")) == 421
