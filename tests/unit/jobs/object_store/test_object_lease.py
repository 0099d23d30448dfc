"""The lease of a store in a bucket, at a real server: one holder at a time, and that of a dead one is free in time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from memory_audit.errors import HeldError, IncompleteError
from memory_audit.jobs.store import object_lease
from memory_audit.jobs.store.lease import leased
from memory_audit.jobs.store.object_store import place_of
from memory_audit.provenance.mirror import mirror_of


@pytest.fixture
def store(address):
    return place_of(address)


def leases(store):
    return sorted(mirror_of(store).remote.listing("scratch/"))


def test_a_second_command_leaves_with_one_line_that_names_the_first(store):
    with (
        leased(store, "nightly", new=True),
        pytest.raises(HeldError, match=r"held by another command \(memaudit nightly, process [0-9]+ on .*--wait"),
        leased(store, "purge", new=True),
    ):
        pass


def test_it_is_free_when_its_holder_is_done(store):
    for _ in range(3):
        with leased(store, "nightly", new=True) as lease:
            lease.check()
    assert leases(store) == ["scratch/lease-3.json"]


def test_of_many_at_once_one_has_it(store):
    holding, most = [], []

    def work(_):
        with leased(store, "purge", new=True, wait_s=60):
            holding.append(1)
            most.append(len(holding))
            time.sleep(0.05)
            holding.pop()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert most == [1] * 4


def test_that_of_a_dead_holder_is_free_when_it_expires_by_the_clock_of_the_service(store, monkeypatch):
    remote = mirror_of(store).remote
    remote.put("scratch/lease-4.json", b'{"host": "gone", "pid": 1, "command": "nightly"}')
    with pytest.raises(HeldError, match="process 1 on gone"), leased(store, "purge", new=True):
        pass
    monkeypatch.setattr(object_lease, "EXPIRES_S", 1.0)
    with leased(store, "purge", new=True, wait_s=30) as lease:
        assert lease.number == 5
    assert leases(store) == ["scratch/lease-5.json"]


def test_a_holder_that_stood_still_learns_that_it_was_replaced(store, monkeypatch):
    remote = mirror_of(store).remote
    with leased(store, "nightly", new=True) as lease:
        monkeypatch.setattr(object_lease, "EXPIRES_S", -1.0)  # as if it had not renewed for long
        with leased(store, "purge", new=True):
            remote.put("scratch/lease-1.json", b"{}")  # renewing does not bring it back
            with pytest.raises(IncompleteError, match="taken over"):
                lease.check()


def test_a_renewed_lease_does_not_expire(store, monkeypatch):
    monkeypatch.setattr(object_lease, "RENEW_S", 0.3)
    monkeypatch.setattr(object_lease, "EXPIRES_S", 2.5)
    with leased(store, "nightly", new=True), pytest.raises(HeldError), leased(store, "purge", new=True, wait_s=5):
        pass
