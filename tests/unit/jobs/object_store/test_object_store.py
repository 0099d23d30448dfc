"""A store in a bucket of a real server: the same bytes as in a folder, one winner of two, and no trust in a mirror."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.jobs.store import object_store
from memory_audit.jobs.store.object_store import ObjectStoreRemote, as_kept, place_of
from memory_audit.provenance.mirror import mirror_of
from memory_audit.snapshot.layout import versions
from memory_audit.snapshot.publishing.publish import append_entries, publish_again
from memory_audit.snapshot.publishing.vacuum import vacuum
from memory_audit.snapshot.verify import verify_store
from tests.unit.snapshot.stores import NOW, entry, keyring, make_store, open_store, remove

OPENED = """
import pickle, sys
snapshot = pickle.loads(sys.stdin.buffer.read())
print(sorted(item.entry_id for item in snapshot.entries("acme")))
"""


def remote_of(store):
    return mirror_of(store).remote


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def objects(store):
    remote = remote_of(store)
    names = [name for name in remote.listing() if not name.startswith("scratch/")]
    return {name: remote.get(name, 1 << 20) for name in names}


def test_a_bucket_holds_the_same_bytes_as_a_folder(address, folder):
    make_store(folder / "s")
    make_store(store := place_of(address))
    assert objects(store) == contents(folder / "s")
    append_entries(store, [entry("acme", "new")], keyring(), now_ms=NOW + 1)
    append_entries(folder / "s", [entry("acme", "new")], keyring(), now_ms=NOW + 1)
    assert objects(store) == contents(folder / "s")
    assert open_store(store).entries("acme") == open_store(folder / "s").entries("acme")


def test_another_machine_reads_what_one_has_published(address, machine):
    make_store(place_of(address))
    there = machine("other", address)
    assert [item.entry_id for item in open_store(there).entries("acme")] == ["e0", "e1", "e2", "e3"]
    append_entries(there, [entry("acme", "new")], keyring(), now_ms=NOW + 1)
    here = machine("here", address)
    assert open_store(here).version == 2
    assert [item.entry_id for item in open_store(here).entries("acme")][-1] == "new"


def test_opening_fetches_only_what_is_asked_for(address, machine):
    make_store(place_of(address), tenants=("acme", "globex", "initech"))
    there = machine("other", address)
    snapshot = open_store(there)
    assert {name.split("/")[0] for name in contents(there)} == {"checkpoints"}
    snapshot.entries("acme")
    assert len([name for name in contents(there) if name.startswith("data/")]) == 1


def test_of_two_who_publish_the_same_version_one_is_stale(address, machine):
    make_store(here := place_of(address))
    there = machine("other", address)
    newest = open_store(here).manifest

    def publish(store, later_ms):
        try:
            again = {"operation": "vacuum", "now_ms": NOW + later_ms, "oldest": 1}
            return publish_again(store, newest, keyring(), **again).version
        except StalePlanError:
            return None

    with ThreadPoolExecutor(2) as pool:
        assert sorted(map(str, pool.map(publish, (here, there), (1, 2)))) == ["2", "None"]
    assert versions(here) == [1, 2]


def test_machines_that_append_at_once_wait_for_each_other(address, machine):
    make_store(place_of(address))
    stores = [machine(f"m{number}", address) for number in range(3)]

    def append(number):
        return append_entries(stores[number], [entry("acme", f"n{number}")], keyring(), now_ms=NOW + 1).version

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(append, range(3))) == [2, 3, 4]
    assert {item.entry_id for item in open_store(stores[0]).entries("acme")} >= {"n0", "n1", "n2"}


def test_a_write_whose_first_answer_was_lost_is_no_lost_race(address):
    remote = remote_of(place_of(address))
    assert remote.create("manifests/1.json", b"mine")
    assert remote.create("manifests/1.json", b"mine")
    assert not remote.create("manifests/1.json", b"other")
    assert remote.get("manifests/1.json", 100) == b"mine"


def test_a_tampered_mirror_is_fetched_anew_and_never_believed(address):
    make_store(store := place_of(address), size=300)  # more than one tile
    expected = open_store(store).entries("acme")
    before = contents(store)
    for name in before:
        (store / name).write_bytes(b"x" * len(before[name]))
    assert open_store(store).entries("acme") == expected
    append_entries(store, [entry("acme", "new")], keyring(), now_ms=NOW + 1)
    verify_store(store, keyring().policy, now_ms=NOW + 1)


@pytest.mark.parametrize("kind", ["data", "tiles", "checkpoints", "edges", "manifests"])
def test_a_tampered_bucket_is_refused_though_the_mirror_is_whole(address, kind):
    make_store(store := place_of(address), size=300)
    verify_store(store, keyring().policy, now_ms=NOW)
    remote = remote_of(store)
    name = next(name for name in remote.listing() if name.startswith(f"{kind}/"))
    remote.put(name, b"x" + remote.get(name, 1 << 20)[1:])
    with as_kept(store) as kept, pytest.raises(VerificationError):
        verify_store(kept, keyring().policy, now_ms=NOW, workers=1)


def test_verifying_tells_what_is_no_part_of_a_version(address):
    make_store(store := place_of(address))
    remote_of(store).put("data/b=00/stranger", b"?")
    with as_kept(store) as kept:
        assert verify_store(kept, keyring().policy, now_ms=NOW).leftovers == ("data/b=00/stranger",)


def test_what_is_erased_is_gone_from_the_bucket_and_from_every_mirror(address, machine):
    make_store(here := place_of(address))
    there = machine("other", address)
    assert b"choose e1" in str(open_store(there).entries("acme")).encode()
    old = {name for name in contents(there) if name.startswith("data/")}
    remove(here, {"acme": {"e1": "causes harm"}})
    done = vacuum(here, keyring(), now_ms=NOW + 9, retention_ms=0, dry_run=False)
    assert (done.version, done.stays) == (3, {})
    assert not old & objects(here).keys()
    assert old & contents(there).keys()  # until it looks again
    assert open_store(there).version == 3
    assert not old & (contents(here).keys() | contents(there).keys())
    verify_store(there, keyring().policy, now_ms=NOW + 9)


def test_a_young_left_over_may_be_about_to_be_published(address):
    make_store(store := place_of(address))
    name, now_ms = f"data/b=00/{'0' * 64}.parquet", time.time_ns() // 1_000_000
    remote_of(store).put(name, b"secret")
    done = vacuum(store, keyring(), now_ms=now_ms, retention_ms=0, dry_run=True)
    assert "younger than a day" in done.stays[name]
    done = vacuum(store, keyring(), now_ms=now_ms + 25 * 3_600_000, retention_ms=0, dry_run=True)
    assert done.files == (name,)


def test_a_bucket_that_keeps_versions_is_told(seaweed, address):
    seaweed.make_bucket("versioned")
    seaweed.keep_versions("versioned")
    make_store(store := place_of(address.replace("shared", "versioned")))
    remove(store, {"acme": {"e1": "causes harm"}})
    done = vacuum(store, keyring(), now_ms=NOW + 9, retention_ms=0, dry_run=False)
    assert done.files
    assert {*done.stays} == {*done.files}
    assert all("lifecycle rule" in why for why in done.stays.values())


def test_a_snapshot_goes_to_another_machine_as_an_address(address, folder):
    make_store(store := place_of(address))
    sent = pickle.dumps(open_store(store))
    assert str(store).encode() not in sent
    elsewhere = os.environ | {"XDG_CACHE_HOME": str(folder / "elsewhere")}
    done = subprocess.run([sys.executable, "-c", OPENED], input=sent, capture_output=True, env=elsewhere, check=False)
    assert done.stdout == b"['e0', 'e1', 'e2', 'e3']\n", done.stderr


def test_an_endpoint_that_ignores_the_condition_is_refused_before_anything_is_written(ignoring, client):
    client(ignoring.environment)
    store = place_of("s3://shared/store")
    with pytest.raises(UsageError, match=r"8 of 8 writers at once .* ignores If-None-Match"):
        make_store(store)
    assert remote_of(store).listing() == {}


def test_one_that_keeps_it_for_one_writer_after_the_other_alone_is_refused_too(address, monkeypatch):
    """As OpenStack Swift does, which looks first and writes then; a stand-in for it."""
    told = []

    def looks_first(self, name, data):
        told.append(name)
        return told.count(name) <= 2 or object_store.ObjectStoreRemote.create(self, name, data.encode())

    monkeypatch.setattr(ObjectStoreRemote, "_tries", looks_first)
    with pytest.raises(UsageError, match="of 8 writers at once"):
        make_store(place_of(address))


@pytest.mark.parametrize(
    "named", ["s3://", "s3:///x", "s3://bucket/a b", "ftp://host/x", "s3://bucket?x=1", "http://h/b"]
)
def test_what_is_no_address_is_refused(named):
    with pytest.raises(UsageError, match="no address of a store"):
        place_of(named)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(UsageError, match=r"memory-audit\[s3\]"):
        place_of("s3://bucket/x")
