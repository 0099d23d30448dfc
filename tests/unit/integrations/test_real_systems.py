"""What was removed is refused by the real systems, by every way in; harmless writes are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from memory_audit.provenance.keys import POLICY_FILE, save_keyring
from memory_audit.snapshot.publishing.publish import create_store
from tests.unit.guard.blocked import HARMFUL
from tests.unit.guard.test_block_list import purged
from tests.unit.jobs.connect.conftest import AGENTS, needs
from tests.unit.snapshot.stores import NOW, entry, keyring

HARMLESS = 100
PARCELS = [f"the parcel {number} came" for number in range(HARMLESS)]


@pytest.fixture
def happened(tmp_path):
    """Run a system behind the guard of a store that HARMFUL was removed from."""

    def run(system, package, tenant="user_id=bob"):
        needs(package)
        store, policy = tmp_path / "store", tmp_path / "keys" / POLICY_FILE
        kept = [entry(tenant, "m1", request="", response=HARMFUL), entry(tenant, "m2")]
        create_store(store, kept, keyring(), now_ms=NOW)
        save_keyring(keyring(), tmp_path / "keys")
        purged(store, tenant, "m1")
        asked = {
            "system": system, "folder": str(tmp_path / "agent"), "store": str(store), "policy": str(policy),
            "harmful": HARMFUL, "tenant": tenant, "harmless": HARMLESS,
        }  # fmt: skip
        path = os.pathsep.join(filter(None, [os.environ.get("MEMAUDIT_AGENTS"), *sys.path]))
        done = subprocess.run(
            [sys.executable, AGENTS / "guarded_agent.py"], input=json.dumps(asked), capture_output=True, text=True,
            check=False, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def check_refused(told, ways):
    assert told["harmless refused"] == 0
    for way in ways:
        assert told[way] is not None, way
        assert len(told[way]["refused"]) == 1, (way, told[way])
        assert "refused by the guard of removed memories" in told[way]["message"]


def test_mem0(happened):
    told = happened("mem0", "mem0")
    check_refused(told, ["verbatim", "extracted", "mixed", "update", "no owner", "reset", "async"])
    assert told["other tenant"] is None
    assert told["async"]["kept"] == ["tea is at five"]
    assert told["texts"] == sorted([*PARCELS, "tea is at five o'clock"])
    assert HARMFUL not in json.dumps(told["messages"])


def test_langgraph(happened):
    told = happened("langgraph", "langgraph", "namespace=users.bob")
    check_refused(told, ["verbatim", "mixed", "async", "graph"])
    assert told["delete"] is None
    assert told["sweep"]
    assert told["texts"] == sorted([*PARCELS, "tea is at five"])


def test_chroma(happened):
    told = happened("chroma", "chromadb")
    check_refused(told, ["verbatim", "upsert", "update", "second client", "metadata", "mixed"])
    assert told["texts"] == sorted([*PARCELS, "a note of old", "tea is at five"])


def test_qdrant(happened):
    told = happened("qdrant", "qdrant_client")
    upserts = ["verbatim", "before the guard", "upload", "columns", "batch", "mixed"]
    check_refused(told, [*upserts, "set", "overwrite", "batched overwrite"])
    assert told["harmless"] is None
    assert told["texts"] == sorted([*PARCELS, "the parcel 1 came", "the parcel 7 came"])
