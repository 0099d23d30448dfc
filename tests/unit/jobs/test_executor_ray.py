"""What the driver makes of a task that failed. No Ray is started: its errors are made here."""

from __future__ import annotations

import pickle
import socket
import threading
import traceback
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import ray
from ray.exceptions import OutOfDiskError, OutOfMemoryError, RayError, RayTaskError, WorkerCrashedError

from memory_audit.errors import ModelError, UsageError
from memory_audit.jobs.executors.on_ray import RayExecutor, _done, _result
from tests.audit_world import FAKES

IN_THE_TASK = "Traceback (most recent call last):\n  File \"my_agent.py\", line 7, in episode\nKeyError: 'city'\n"


def failed(cause: Exception) -> RayTaskError:
    """Return what `ray.get` raises for a task that raised `cause`."""
    error = RayTaskError("_task", IN_THE_TASK, cause, "ray::_task", 1, "127.0.0.1")
    raised: RayTaskError = error.as_instanceof_cause()
    return raised


@pytest.fixture
def connect(monkeypatch):
    """Connect to a cluster; where all that is looked at beforehand is well, Ray is asked, and says that it was."""

    def init(**_: object) -> None:
        raise ConnectionError("Ray was asked")

    def to(address: str | None) -> str:
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "init", init)
        with pytest.raises(UsageError) as failure:
            RayExecutor(FAKES, address=address)
        return str(failure.value)

    monkeypatch.setattr("memory_audit.jobs.executors.on_ray.CONNECT_S", 0.3)
    return to


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_what_listens_and_says_nothing_is_no_cluster(connect, form):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = connect(form.format(silent.getsockname()[1]))
    assert "nothing answers there (timed out); start one or leave --address out" in told


def test_the_port_of_the_dashboard_is_told_from_that_of_the_head(connect):
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as dashboard:
        threading.Thread(target=dashboard.serve_forever, daemon=True).start()
        told = connect(f"127.0.0.1:{dashboard.server_port}")
        dashboard.shutdown()
    assert "what answers there is no Ray head, whose port is 6379 unless it was told another; start one" in told


def greets(with_bytes: bytes) -> tuple[socket.socket, str]:
    """Start a server that greets whoever comes, once."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):  # who has seen enough leaves
            peer, _ = server.accept()
            with peer:
                peer.sendall(with_bytes)
                peer.recv(64)

    threading.Thread(target=serve, daemon=True).start()
    return server, f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("greeting", "encrypted"), [(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00", "0"), (b"", "1")]
)
def test_a_grpc_server_and_one_that_encrypts_are_left_to_ray(connect, monkeypatch, greeting, encrypted):
    monkeypatch.setenv("RAY_USE_TLS", encrypted)
    server, address = greets(greeting)
    with server:
        assert "Ray was asked" in connect(address)


def test_where_ray_does_not_start_on_this_machine_no_address_is_blamed(connect):
    assert connect(None) == "Ray cannot be started on this machine: Ray was asked; use --local"


@pytest.fixture
def task_fails(monkeypatch):
    """Have one work's task fail with the error given, and return what the driver takes it for."""

    def task(error: RayError) -> Exception:
        def fail(_task: object) -> None:
            raise error

        monkeypatch.setattr(ray, "get", fail)
        found: Exception = _result(object(), SimpleNamespace(failed=lambda why: why))
        return found

    return task


def test_a_defect_in_the_users_agent_stays_one_and_shows_where_it_is(task_fails):
    with pytest.raises(KeyError) as raised:
        task_fails(failed(KeyError("city")))
    assert (type(raised.value), str(raised.value)) == (KeyError, "'city'")
    assert 'File "my_agent.py", line 7, in episode' in "".join(traceback.format_exception(raised.value))


def test_an_error_of_ours_comes_back_as_it_was_raised(task_fails):
    with pytest.raises(UsageError, match=r"^no such model folder$") as raised:
        task_fails(failed(UsageError("no such model folder")))
    assert type(raised.value) is UsageError


def test_a_task_in_which_ray_failed_can_be_resumed(task_fails):
    with pytest.raises(ModelError, match=r"^a task failed: "):
        task_fails(failed(WorkerCrashedError()))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (WorkerCrashedError(), "its process ended, 4 times: The worker died unexpectedly"),
        (OutOfMemoryError("fifty lines"), "its process ended, 4 times: a machine ran out of memory"),
    ],
)
def test_a_work_whose_process_ends_each_time_has_failed_and_no_other(task_fails, error: RayError, told: str):
    found = task_fails(error)
    assert (type(found), str(found).startswith(told)) == (ModelError, True)


def test_a_task_that_no_store_has_room_for_is_told_in_one_line(task_fails):
    line = "a task failed: a machine's object store is full, and so is the disk that it spills to"
    with pytest.raises(ModelError, match=f"^{line}$"):
        task_fails(failed(OutOfDiskError("twenty\nlines")))


def test_another_version_of_the_package_on_a_node_is_told_in_one_line():
    sent = pickle.dumps(("0.0.1", FAKES, b""))
    with pytest.raises(UsageError, match=r"^a node has memory-audit .*, the driver 0\.0\.1: install the same on all$"):
        _done(sent, {})
