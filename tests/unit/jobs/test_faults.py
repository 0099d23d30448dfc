"""Faults of machines, networks and keys: one line each, a documented exit code, and the same command goes on after."""

from __future__ import annotations

import errno
import json
import os
import time

import pytest

from memory_audit.errors import IncompleteError, UsageError, VerificationError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.provenance import strict_json
from memory_audit.snapshot.checkpoints import parse_checkpoints
from memory_audit.snapshot.layout import bucket_of
from tests.audit_world import FAKES, DyingGenerator
from tests.unit.jobs.nightly.conftest import write_job
from tests.unit.jobs.test_cli import AUDIT, CONFIG, bytes_of, event, memories, one_line, write_lines
from tests.unit.models.test_generator_http import Server, chat, server  # noqa: F401 - a fixture

DAY_NS = 86_400_000_000_000


@pytest.fixture
def desk(folder, set_up):
    """A folder with a store, an event, and a nightly job about them."""
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    write_lines(folder / "dump.jsonl", memories())
    write_lines(folder / "events.jsonl", [event()])
    write_job(folder)
    set_up(("keys", "new"), ("import", "jsonl:dump.jsonl", "store"))
    return folder


def start_of(generator):
    return lambda _request, **_where: LocalExecutor(FAKES, generator)


def findings(folder):
    return json.loads((folder / "run" / "result.json").read_bytes())["tenants"]


def test_a_cluster_that_cannot_be_reached(desk, run):
    pytest.importorskip("ray")
    code, _, err = run("audit", "store", "--events", "events.jsonl", "--out", "run", "--address", "127.0.0.1:1")
    assert (code, "no Ray cluster at '127.0.0.1:1': nothing answers there" in one_line(err)) == (2, True)
    assert run(*AUDIT)[0] == 0


def test_a_tenant_that_a_signed_file_lists_twice_is_refused(desk):
    (path,) = (desk / "store" / "checkpoints").rglob("*.json")
    record = json.loads(path.read_bytes())
    data = strict_json.encode({**record, "logs": record["logs"] * 2})
    with pytest.raises(VerificationError, match=r"^where: tenant 'acme' is out of order or in another bucket$"):
        parse_checkpoints(data, bucket_of("acme"), None, "where", tiled=True)


def test_a_dump_that_a_night_is_given_twice_counts_once(desk, run):
    text = (desk / "nightly.yaml").read_text()
    (desk / "nightly.yaml").write_text(text.replace("[{file: dump.jsonl}]", "[{file: dump.jsonl}, {file: dump.jsonl}]"))
    write_lines(desk / "dump.jsonl", [*memories(), {**memories()[0], "entry_id": "new"}])
    code, out, _ = run("nightly", "nightly.yaml", "--json")
    told = json.loads(out)
    assert (code, told["import"], told["alarms"]) == (1, {"new": 1, "known": 25, "removed": 0}, [])


@pytest.mark.parametrize("kind", ["replays", "embedding"])
def test_a_shard_that_a_dead_node_wrote_by_half(desk, run, kind):
    assert run(*AUDIT, start=start_of(DyingGenerator(12)))[0] == IncompleteError.exit_code
    shard = next((desk / "run" / "groups").glob(f"*/{kind}/*.parquet"))
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    code, _, err = run(*AUDIT)
    assert code == VerificationError.exit_code
    assert f"{shard.name}: was changed, or not written by this run with these keys; delete it and resume" in one_line(
        err
    )
    shard.unlink()
    assert run(*AUDIT)[0] == 0


def test_a_bucket_that_was_copied_by_half(desk, run):
    before = bytes_of(desk / "store")
    data = next((desk / "store" / "data").rglob("*.parquet"))
    whole = data.read_bytes()
    data.write_bytes(whole[: len(whole) // 2])
    code, _, err = run(*AUDIT)
    assert code == VerificationError.exit_code
    one_line(err)
    data.write_bytes(whole)
    assert (run(*AUDIT)[0], bytes_of(desk / "store")) == (0, before)


def test_a_clock_that_went_back_before_the_command(desk, run, monkeypatch):
    real, before = time.time_ns, bytes_of(desk / "store")
    for words in (AUDIT, (*AUDIT, "--apply"), ("nightly", "nightly.yaml")):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: real() - DAY_NS)
            code, _, err = run(*words)
        assert (code, "this one is behind" in one_line(err)) == (VerificationError.exit_code, True), words
    assert {name: data for name, data in bytes_of(desk / "store").items() if "scratch" not in name} == before
    assert run("nightly", "nightly.yaml")[0] == 1


@pytest.mark.parametrize("step_ns", [-1_000_000_000, -60_000_000_000])
def test_a_clock_that_goes_back_while_a_command_is_at_work(desk, run, monkeypatch, step_ns):
    assert run(*AUDIT)[0] == 0
    expected = findings(desk)
    now = [time.time_ns()]

    def back():
        now[0] += step_ns
        return now[0]

    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", back)
        code, _, err = run(*AUDIT[:5], "again", "--local", "--quiet", "--apply")
    assert code in {0, UsageError.exit_code, VerificationError.exit_code}
    if code:
        one_line(err)
    assert findings(desk) == expected
    assert run("verify", "store")[0] == 0


def test_a_key_of_the_backbones_server_that_expires_during_a_run(desk, run, monkeypatch, server: Server):  # noqa: F811
    monkeypatch.setenv("DESK_KEY", "k3y-of-the-day")
    words = (*AUDIT, "--backbone", f"openai:{server.url}#tiny", "--backbone-key-env", "DESK_KEY")
    server.script = [(200, {}, chat("HARM")), (401, {}, {"error": "the key k3y-of-the-day has expired"})]
    code, _, err = run(*words)
    assert code == UsageError.exit_code
    line = one_line(err)
    assert "HTTP 401" in line
    assert "the key was the one in DESK_KEY" in line
    assert "k3y-of-the-day" not in line
    asked = len(server.bodies)
    server.script = [(200, {}, chat("HARM"))]
    assert run(*words)[0] == 0
    assert len(server.bodies) > asked


def test_a_full_disk_of_the_driver(desk, run, monkeypatch):
    """Nothing can be written into the run folder any more, after some answers: also no status and no metrics."""
    real, left = os.fsync, [30]

    def full(descriptor):
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        return real(descriptor)

    before = bytes_of(desk / "store")
    for words, metrics in ((AUDIT, ("--metrics", "run.prom")), (("nightly", "nightly.yaml"), ())):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            code, _, err = run(*words, *metrics)
        assert (code, "no space left on device" in one_line(err)) == (IncompleteError.exit_code, True)
        left[0] = 30
    assert before.items() <= bytes_of(desk / "store").items()
    assert run(*AUDIT)[0] == 0
    assert run("nightly", "nightly.yaml")[0] == 1
