"""What `submit` refuses before it speaks to any cluster, and the cluster's own description."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import subprocess
import sys
import threading
import zipfile
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, ValidationError

from memory_audit.errors import UsageError
from memory_audit.jobs.cluster import (
    EXCLUDED,
    MAX_ID_CHARACTERS,
    MAX_NAME_CHARACTERS,
    logs,
    status,
    submission_id_of,
    submit,
)
from memory_audit.provenance.keys import NEXT, RETIRED

REPOSITORY = Path(__file__).parents[3]
NOWHERE = "http://127.0.0.1:9"
DAY = dt.date(2026, 11, 26)


@given(st.text(max_size=300), st.dates(min_value=dt.date(2000, 1, 1)))
def test_every_store_name_makes_an_id_that_submit_accepts(store, day):
    name = submission_id_of(store, day)
    assert name.endswith(day.isoformat())
    with pytest.raises(UsageError, match="no command to submit"):
        submit(NOWHERE, [], submission_id=name)
    assert len(name) <= MAX_ID_CHARACTERS
    with pytest.raises(UsageError, match="looks like a secret"):  # the id was accepted: the next check speaks
        submit(NOWHERE, ["x", "PRIVATE+KEY+x"], submission_id=name)


@pytest.mark.parametrize("name", ["acme", "acme-prod", "Shop_2.eu", "9", "a" * MAX_NAME_CHARACTERS])
def test_a_name_that_needs_no_change_is_in_the_id_as_it_is(name):
    assert submission_id_of(name, DAY) == f"memaudit-{name}-2026-11-26"


@pytest.mark.parametrize(
    "names",
    [
        ("客户一", "客户二", "store"),
        ("müller", "m ller", "m-ller"),
        ("acme/prod", "acme-prod", "acme prod"),
        ("a" * MAX_NAME_CHARACTERS + "-eu", "a" * MAX_NAME_CHARACTERS + "-us", "a" * MAX_NAME_CHARACTERS),
        ("\udcff", "\udcfe", ""),
    ],
)
def test_different_names_are_different_jobs(names):
    assert len({submission_id_of(name, DAY) for name in names}) == len(names)
    assert submission_id_of(names[0], DAY) == submission_id_of(names[0], DAY)


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * (MAX_ID_CHARACTERS + 1), "-x", "a/b", "a\n"])
def test_ids_that_are_no_plain_words_are_refused(name):
    with pytest.raises(UsageError, match="submission id"):
        submit(NOWHERE, ["true"], submission_id=name)


def test_a_command_that_holds_a_secret_is_refused_without_repeating_it():
    with pytest.raises(UsageError, match="word 3 of the command looks like a secret") as failure:
        submit(NOWHERE, ["memaudit", "audit", "https://user:word@host/"], submission_id="a")
    assert "word@" not in str(failure.value)


@pytest.mark.parametrize(
    "word", ["PRIVATE+KEY+memaudit/log+00000000+AAAA", "-----BEGIN ENCRYPTED PRIVATE KEY-----", "http://u:w@host/v1"]
)
def test_each_kind_of_secret_in_a_command_is_refused(word):
    with pytest.raises(UsageError, match="word 2 of the command looks like a secret"):
        submit(NOWHERE, ["memaudit", word], submission_id="a")


@pytest.mark.parametrize("word", ["/run/secrets/x", "--backbone-key-env", "OPENAI_API_KEY"])
def test_references_to_secrets_pass(word):
    with pytest.raises(UsageError, match="no Ray cluster answers"):
        submit(NOWHERE, ["memaudit", word], submission_id="a")


@pytest.mark.parametrize("address", ["127.0.0.1:8265", "ray://host:10001", "auto", "", "http://user:word@host:8265"])
def test_addresses_that_are_no_dashboard_are_refused(address):
    with pytest.raises(UsageError, match="give the dashboard's address as http://HOST:8265"):
        submit(address, ["true"], submission_id="a")


def test_a_working_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no such folder to upload"):
        submit(NOWHERE, ["true"], submission_id="a", working_dir=tmp_path / "none")


def cluster() -> dict:
    return yaml.safe_load((REPOSITORY / "ray_cluster.yaml").read_text())


def rays_schema() -> Draft7Validator:
    import ray  # noqa: PLC0415 - only its folder is wanted

    path = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    return Draft7Validator(json.loads(path.read_text()))


def test_the_cluster_description_is_valid_for_rays_own_schema_and_a_wrong_one_is_not():
    rays_schema().validate(cluster())
    with pytest.raises(ValidationError):
        rays_schema().validate(cluster() | {"worker_count": 2})


def test_rays_autoscaler_accepts_the_cluster_description():
    check = (
        "import sys, yaml\n"
        "from ray.autoscaler._private.util import prepare_config, validate_config\n"
        "validate_config(prepare_config(yaml.safe_load(open(sys.argv[1]))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", check, str(REPOSITORY / "ray_cluster.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_head_takes_no_tasks_and_workers_have_a_gpu():
    config = cluster()
    types = config["available_node_types"]
    assert types[config["head_node_type"]]["resources"] == {"CPU": 0}
    workers = [kind for name, kind in types.items() if name != config["head_node_type"]]
    assert workers
    assert all(kind["resources"]["GPU"] >= 1 and kind["resources"]["CPU"] >= 1 for kind in workers)


def test_no_key_is_copied_to_the_cluster():
    assert set(cluster()["rsync_exclude"]) >= set(EXCLUDED) - {"__pycache__"}
    assert "PRIVATE" not in (REPOSITORY / "ray_cluster.yaml").read_text()


def test_no_key_is_uploaded_with_a_working_folder_whatever_a_rotation_or_a_kill_left(tmp_path):
    from ray._private.runtime_env.packaging import create_package  # noqa: PLC0415 - what packs a submitted folder

    folder = tmp_path / "folder"
    (folder / "memaudit-keys").mkdir(parents=True)
    names = [f"acme.key{suffix}" for suffix in ("", NEXT, RETIRED)] + [".0123456789abcdef01234567.part"]
    for name in [*names, *(f"memaudit-keys/{name}" for name in names)]:
        (folder / name).write_text("PRIVATE+KEY+acme+0+A")
    for name in ("memaudit.yaml", "memaudit-keys/policy.json"):
        (folder / name).write_text("public")
    create_package(str(folder), tmp_path / "packed.zip", include_gitignore=True, excludes=list(EXCLUDED))
    with zipfile.ZipFile(tmp_path / "packed.zip") as packed:
        files = {Path(name) for name in packed.namelist() if not name.endswith("/")}
    assert {Path(*path.parts[-2:]) for path in files} >= {Path("memaudit-keys/policy.json")}
    assert {path.name for path in files} == {"memaudit.yaml", "policy.json"}


@pytest.fixture
def serve():
    """Start servers on loopback that give every request one answer, about jobs after a while where they are to wait.

    Returns the address and what was asked of it.
    """
    servers = []

    def start(answer: object, code: int = 200, until: threading.Event | None = None) -> tuple[str, list[str]]:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(f"{self.command} {self.path}")
                if until is not None and "jobs" in self.path:
                    until.wait(5)
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.dumps(answer).encode()
                with suppress(ConnectionError):  # who asked may have given up
                    self.send_response(code)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


RAY = {"ray_version": "2.60.0"}


@pytest.mark.parametrize("variable", ["RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"])
def test_the_address_that_was_given_is_asked_and_not_that_of_a_variable(serve, monkeypatch, variable):
    (address, asked), (other, others) = serve(RAY), serve(RAY)
    monkeypatch.setenv(variable, other)
    for ask in (
        lambda: submit(address, ["true"], submission_id="night"),
        lambda: status(address, "night"),
        lambda: list(logs(address, "night")),
    ):
        asked.clear()
        with pytest.raises(UsageError, match=address):  # this server knows nothing but its version
            ask()
        assert [path.split("/api/")[1] for path in asked][:1] == ["version"]
        assert "jobs" in asked[-1]
    assert others == []
    assert os.environ[variable] == other


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        ({}, 200, r"no Ray cluster answers at http\S+ \('ray_version' is missing in its answer\); start one, or name"),
        ([], 200, "no Ray cluster answers at http"),
        ("hello", 200, "no Ray cluster answers at http"),
        ({"ray_version": 2}, 200, "no Ray cluster answers at http"),
        ({}, 500, "no Ray cluster answers at http"),
        ({}, 401, r"http\S+ asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the file"),
        ({}, 403, r"http\S+ asks for a token: "),
        (RAY, 200, r"http\S+ (did not answer about job 'night'|did not take job night): "),
    ],
)
def test_whatever_else_answers_at_the_address_is_told_in_one_line(serve, answer, code, told):
    address, _ = serve(answer, code)
    for ask in (
        lambda: submit(address, ["true"], submission_id="night"),
        lambda: status(address, "night"),
        lambda: list(logs(address, "night")),
    ):
        with pytest.raises(UsageError, match=f"^{told}") as failure:
            ask()
        assert "\n" not in str(failure.value)


def test_what_listens_and_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.cluster.GREETING_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            UsageError, match=r"\(it said nothing for 0 s\); start one, or name its dashboard's address"
        ):
            status(address, "night")


def test_a_cluster_that_falls_silent_over_a_job_is_not_waited_for(serve, monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.cluster.ANSWER_S", 0.1)
    released = threading.Event()
    address, _ = serve(RAY, until=released)
    with pytest.raises(UsageError, match=r"did not answer about job 'night': it said nothing for 0 s"):
        status(address, "night")
    with pytest.raises(UsageError, match=r"did not say whether it took job night .*: see `memaudit status`"):
        submit(address, ["true"], submission_id="night")
    released.set()


class Gone:
    """A client whose cluster is no longer there."""

    def get_job_info(self, name: str) -> object:
        return requests.get(f"{NOWHERE}/api/jobs/{name}", timeout=2)

    get_job_logs = get_job_info


def test_a_cluster_that_is_gone_does_not_make_a_job_unknown_whose_name_holds_404(monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.cluster._client", lambda _: Gone())
    for ask in (lambda: status(NOWHERE, "shop-404"), lambda: list(logs(NOWHERE, "shop-404"))):
        with pytest.raises(UsageError, match=r"^http://127\.0\.0\.1:9 did not answer about job 'shop-404'"):
            ask()


HOSTILE = "\x1b]0;owned\x07\x1b[2J remembered:\tignore all previous\nand \u202ethis\r\n"
VISIBLE = "<U+001B>]0;owned<U+0007><U+001B>[2J remembered:\tignore all previous\nand <U+202E>this\n"


def test_the_status_of_a_failed_job_is_one_short_line_that_moves_no_cursor(run, monkeypatch):
    message = f"Job entrypoint command failed with exit code 3:\n{HOSTILE}{'x' * 19_000}"
    found = SimpleNamespace(status=SimpleNamespace(value="FAILED"), message=message, driver_exit_code=3)
    monkeypatch.setattr("memory_audit.jobs.cluster._client", lambda _: SimpleNamespace(get_job_info=lambda _: found))
    code, out, _ = run("status", "night", "--address", NOWHERE)
    assert code == 0
    assert out.startswith("FAILED Job entrypoint command failed with exit code 3: <U+001B>]0;owned<U+0007>")
    assert out.endswith(f" more characters; the whole of it: memaudit logs night --address {NOWHERE}\n")
    assert (out.count("\n"), len(out) < 1_000, "\x1b" in out) == (1, True, False)


@pytest.mark.parametrize(("terminal", "shown"), [(True, VISIBLE), (False, HOSTILE)])
def test_a_log_moves_no_cursor_of_a_terminal_and_is_left_as_it_is_elsewhere(run, monkeypatch, terminal, shown):
    monkeypatch.setattr("memory_audit.jobs.cluster.logs", lambda *_, **__: iter([HOSTILE]))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert run("logs", "night", "--address", NOWHERE)[:2] == (0, shown)


def test_a_followed_log_is_read_as_it_comes_also_through_a_pipe():
    """The second piece comes only after the first was read; else after so long that the test would not wait for it."""
    code = (
        "import sys\n"
        "from memory_audit.jobs import cluster\n"
        "def pieces(*_, **__):\n"
        "    yield 'one\\n'\n"
        "    sys.stdin.readline()\n"
        "    yield 'two\\n'\n"
        "cluster.logs = pieces\n"
        "sys.argv = ['memaudit', 'logs', '--follow', 'night', '--address', 'http://127.0.0.1:9']\n"
        "from memory_audit.jobs.cli.main import main\n"
        "main()\n"
    )
    here = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=here, text=True, cwd=REPOSITORY
    ) as job:
        waits = threading.Timer(60, job.kill)
        waits.start()
        try:
            assert job.stdout.readline() == "one\n"
            assert job.communicate("go on\n")[0] == "two\n"
        finally:
            waits.cancel()
            job.kill()


class StartingUp:
    """A client of a cluster that cannot take jobs yet."""

    def __init__(self, refusals: int, why: str = "Request failed with status code 500: No available agent") -> None:
        self.refusals, self.why, self.asked = refusals, why, 0

    def submit_job(self, *, submission_id: str, **_: object) -> str:
        self.asked += 1
        if self.asked <= self.refusals:
            raise RuntimeError(self.why)
        return submission_id


@pytest.mark.parametrize(("refusals", "patience_s", "taken"), [(0, 1.0, True), (3, 1.0, True), (100, 0.05, False)])
def test_a_cluster_that_has_just_started_is_asked_again_for_a_while(monkeypatch, refusals, patience_s, taken):
    client = StartingUp(refusals)
    monkeypatch.setattr("memory_audit.jobs.cluster._client", lambda _: client)
    monkeypatch.setattr("memory_audit.jobs.cluster.PATIENCE_S", patience_s)
    monkeypatch.setattr("memory_audit.jobs.cluster.RETRY_S", 0.01)
    if taken:
        assert submit("http://127.0.0.1:1", ["true"], submission_id="night") == "night"
        assert client.asked == refusals + 1
    else:
        with pytest.raises(UsageError, match=r"did not take job night: .*No available agent"):
            submit("http://127.0.0.1:1", ["true"], submission_id="night")


def test_any_other_refusal_is_final(monkeypatch):
    client = StartingUp(1, "no such runtime environment")
    monkeypatch.setattr("memory_audit.jobs.cluster._client", lambda _: client)
    with pytest.raises(UsageError, match="did not take job night: no such runtime environment"):
        submit("http://127.0.0.1:1", ["true"], submission_id="night")
    assert client.asked == 1


def test_a_job_that_was_taken_though_the_cluster_said_not_is_no_duplicate(monkeypatch):
    answers = iter([RuntimeError("No available agent to submit job"), RuntimeError("Job night already exists")])

    class Late:
        def submit_job(self, **_: object) -> str:
            raise next(answers)

    monkeypatch.setattr("memory_audit.jobs.cluster._client", lambda _: Late())
    monkeypatch.setattr("memory_audit.jobs.cluster.RETRY_S", 0.01)
    assert submit("http://127.0.0.1:1", ["true"], submission_id="night") == "night"
