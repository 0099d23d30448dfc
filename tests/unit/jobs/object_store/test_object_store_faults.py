"""What goes wrong with a bucket: one line and an exit code, nothing half-written, and the same command completes it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from memory_audit.jobs.store import object_lease
from memory_audit.jobs.store.object_store import ObjectStoreRemote, place_of
from memory_audit.provenance.mirror import mirror_of
from memory_audit.snapshot.layout import has_store
from tests.object_stores import READER

KILLED = """
import os, signal, sys
from pathlib import Path
from memory_audit.jobs.cli.main import main
from memory_audit.jobs.store.object_store import ObjectStoreRemote as Remote

moment, real_put, real_create, puts = sys.argv.pop(1), Remote.put, Remote.create, []

def put(self, name, data):
    if moment == "uploading" and not name.startswith("scratch/"):
        puts.append(name)
        if len(puts) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    real_put(self, name, data)

def create(self, name, data):
    if moment == "before" and name.startswith("manifests/"):
        os.kill(os.getpid(), signal.SIGKILL)
    done = real_create(self, name, data)
    if moment == "after" and name.startswith("manifests/"):
        os.kill(os.getpid(), signal.SIGKILL)
    return done

Remote.put, Remote.create = put, create
main()
"""


@pytest.fixture
def memories(folder, set_up):
    """Keys, and a file of memories of five tenants."""
    rows = [
        {"tenant": f"t{n % 5}", "entry_id": f"m{n}", "request": "?", "response": f"answer {n}", "created_at_ms": 1_000}
        for n in range(15)
    ]
    (folder / "memories.jsonl").write_text("\n".join(map(json.dumps, rows)))
    set_up(("keys", "new"))
    return folder / "memories.jsonl"


def everything(address):
    return {name for name in mirror_of(place_of(address)).remote.listing() if not name.startswith("scratch/")}


def test_commands_take_an_address(address, memories, folder, run):
    code, out, _ = run("import", f"jsonl:{memories.name}", address)
    assert (code, out) == (0, f"15 memories of 5 tenants signed into {address}, version 1\n")
    assert run("verify", address, "--quiet")[0] == 0
    code, out, _ = run("export", address, "--tenant", "t1")
    assert (code, [json.loads(line)["entry_id"] for line in out.splitlines()]) == (0, ["m1", "m6", "m11"])
    code, out, _ = run("offboard", address, "t1", "--receipt", "receipt.json", "--apply")
    assert (code, "erased 3 memories of t1" in out) == (0, True)
    code, out, _ = run("vacuum", address, "--keep", "0d")
    assert (code, f"left no file in {address}" in out) == (0, True)
    assert run("verify", address, "--quiet", "--deep", "--attestation", "receipt.json")[0] == 0
    assert b"answer 6" not in b"".join(path.read_bytes() for path in folder.glob("cache-*/**/*.parquet"))


@pytest.mark.parametrize(
    ("case", "expected", "code"),
    [
        ("no bucket", "there is no such bucket", 2),
        ("may only read", "cannot write .*: no permission (AccessDenied)", 2),
        ("unknown key", "the credentials are wrong or have expired (InvalidAccessKeyId)", 2),
        ("wrong secret", "the credentials are wrong or have expired (SignatureDoesNotMatch)", 2),
        ("unreachable", "no answer to GET http://127.0.0.1:1/shared; start again later", 3),
    ],
)
def test_a_bucket_that_cannot_be_used_is_one_line(case, expected, code, *, seaweed, address, memories, client, run):
    named = "s3://absent/store" if case == "no bucket" else address
    changed = {
        "may only read": seaweed.with_keys(*READER),
        "unknown key": seaweed.with_keys("NOBODY", "x"),
        "wrong secret": seaweed.with_keys(seaweed.access_key, "x"),
        "unreachable": {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
    }
    client(changed.get(case, {}))
    got, out, err = run("import", f"jsonl:{memories.name}", named)
    before, _, after = expected.partition(".*")
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert before in err
    assert after in err
    client(seaweed.environment, "another")
    assert everything(address) == set()


def test_credentials_that_expire_while_it_uploads_publish_nothing(seaweed, address, memories, run, monkeypatch):
    real, puts = ObjectStoreRemote.put, []

    def put(self, name, data):
        if not name.startswith("scratch/"):
            puts.append(name)
            if len(puts) == 3:
                monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "expired")
                self._objects = None  # the library reads the environment when it is opened
        real(self, name, data)

    monkeypatch.setattr(ObjectStoreRemote, "put", put)
    code, _, err = run("import", f"jsonl:{memories.name}", address)
    assert (code, err.count("\n")) == (2, 1)
    assert "the credentials are wrong or have expired" in err
    monkeypatch.undo()
    monkeypatch.setattr(object_lease, "EXPIRES_S", 1.0)  # the lease could not be given back


@pytest.mark.parametrize("moment", ["uploading", "before", "after"])
def test_an_import_that_was_killed_is_completed_by_the_same_command(moment, address, memories, run, monkeypatch):
    words = ["import", f"jsonl:{memories.name}", address]
    done = subprocess.run([sys.executable, "-c", KILLED, moment, *words], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert has_store(place_of(address)) == (moment == "after")
    monkeypatch.setattr(object_lease, "EXPIRES_S", 1.0)
    code, out, err = run(*words)
    assert code == 0, err
    assert ("nothing new" in out) == (moment == "after")
    code, out, _ = run("verify", address, "--quiet")
    assert (code, "version 1" in out, "15 memories of 5 tenants" in out) == (0, True, True)
    assert ("no part of any version" in out) == (moment != "after")  # another store's files, for a vacuum
