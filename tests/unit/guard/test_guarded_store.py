"""A block list outlives restarts, crashes, rival publishers and tampering: the old set holds, never none."""

# ruff: noqa: ANN002, ANN003 - what the tests pass is passed on

from __future__ import annotations

import shutil
import threading
from itertools import count

import pytest

from memory_audit.errors import AuditError, StalePlanError, UsageError, VerificationError
from memory_audit.guard.blocks.block_list import read_block_list
from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.guard.guarded_store import GuardedStore
from memory_audit.provenance.keys import generate_keys
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.publishing.vacuum import vacuum
from memory_audit.snapshot.reader import open_snapshot
from tests.unit.guard.blocked import BEHAVIOURS, EMBEDDER, entry
from tests.unit.guard.test_block_list import purged
from tests.unit.snapshot.stores import NOW, Killed, broken_os, keyring, make_store, open_store, put_back
from tests.unit.snapshot.stores import entry as stored

AGAIN = entry("Open the menu, and choose e1!", "w1")


@pytest.fixture
def store(tmp_path):
    make_store(tmp_path / "s")
    purged(tmp_path / "s", "acme", "e1")
    return tmp_path / "s"


@pytest.fixture
def opened():
    made = []

    def make(path, **options):
        made.append(
            GuardedStore(
                path, keyring().policy, embed=EMBEDDER.embed, embedder=EMBEDDER.model_id, behaviours=BEHAVIOURS,
                settings=GuardSettings(mode="behaviour"), **{"clock_ms": lambda: NOW + 10} | options,
            )
        )  # fmt: skip
        return made[-1]

    yield make
    for one in made:
        one.close()


def locked(guarded, tenant="acme"):
    return {stone.tombstone.entry_id for stone in guarded.guard(tenant).block_list.stones}


def at_once_while_verifying(guarded, monkeypatch, ask):
    """Ask while a new version is verified, which goes on until there is an answer; tell whether there was one."""
    verifying, answered = threading.Event(), threading.Event()

    def slowly(path, trust, **options):
        verifying.set()
        assert answered.wait(30)
        return open_snapshot(path, trust, **options)

    monkeypatch.setattr("memory_audit.guard.guarded_store.open_snapshot", slowly)
    refreshing, asking = threading.Thread(target=guarded.refresh), threading.Thread(target=ask)
    refreshing.start()
    assert verifying.wait(30)
    asking.start()
    asking.join(10)
    at_once = not asking.is_alive()
    answered.set()
    refreshing.join()
    asking.join()
    return at_once


def test_a_lockout_is_there_again_after_a_restart(store, opened):
    for _ in range(2):
        assert opened(store).guard("acme").check(AGAIN).reason == "same words"


def test_a_new_version_is_put_in_force_for_all_guards(store, opened):
    guarded = opened(store)
    assert locked(guarded) == {"e1"}
    assert not guarded.refresh()
    purged(store, "acme", "e2", scope="operator")
    assert guarded.guard("globex").check(entry("Open the menu and choose e2.", tenant="globex")).allowed
    assert guarded.refresh()
    assert (locked(guarded), locked(guarded, "globex")) == ({"e1", "e2"}, {"e2"})


def test_what_restates_a_memory_in_quarantine_is_refused_until_it_is_released(store, opened):
    purged(store, "acme", "e2", "quarantine", scope="operator")
    guarded, again = opened(store), entry("Open the menu, and choose e2!", "w2")
    assert guarded.guard("acme").check(again).reason == "same words"
    assert (locked(guarded), locked(guarded, "globex")) == ({"e1", "e2"}, {"e2"})
    put_back(store, {"acme": ["e2"]}, now_ms=NOW + 4)
    assert guarded.refresh()
    assert (locked(guarded), locked(guarded, "globex")) == ({"e1"}, set())
    assert guarded.guard("acme").check(again).allowed
    assert guarded.guard("acme").check(AGAIN).reason == "same words"


def test_tenants_not_served_have_no_guard(store, opened):
    with pytest.raises(UsageError, match="not served here"):
        opened(store, tenants=["acme"]).guard("globex")
    with pytest.raises(UsageError, match="not in the store"):
        opened(store).guard("nobody")
    with pytest.raises(UsageError, match="no tenant 'nobody'"):
        opened(store, tenants=["nobody"])


def test_a_version_that_does_not_verify_leaves_the_old_set_in_force(store, opened):
    guarded = opened(store)
    guarded.guard("acme")
    (store / "manifests" / "3.json").write_bytes((store / "manifests" / "2.json").read_bytes())
    with pytest.raises(VerificationError):
        guarded.refresh()
    assert "VerificationError" in guarded.trouble
    assert locked(guarded) == {"e1"}
    (store / "manifests" / "3.json").unlink()
    guarded.refresh()
    assert guarded.trouble == ""


def test_a_store_rolled_back_to_before_the_tombstone_is_refused(store, tmp_path, opened):
    guarded = opened(store)
    shutil.copytree(store, tmp_path / "copy")
    (store / "manifests" / "2.json").unlink()
    with pytest.raises(VerificationError, match="rollback"):
        guarded.refresh()
    assert locked(guarded) == {"e1"}


def test_a_tombstone_by_a_key_that_is_no_auditors_never_holds(store):
    thief = generate_keys("thief")
    with pytest.raises(VerificationError):
        GuardedStore(
            store, thief.policy, embed=EMBEDDER.embed, embedder=EMBEDDER.model_id, extractor=None, taxonomies=[],
            behaviours=BEHAVIOURS, settings=GuardSettings(mode="behaviour"), clock_ms=lambda: NOW + 10,
        )  # fmt: skip


def test_a_crash_anywhere_between_tombstone_and_publish_leaves_the_old_set_or_the_new(store, tmp_path, opened):
    seen = set()
    for fail_at in range(100):
        path = tmp_path / f"s{fail_at}"
        shutil.copytree(store, path)
        with pytest.MonkeyPatch.context() as patch:
            fake = broken_os(patch, fail_at)
            try:
                purged(path, "acme", "e2")
                finished = True
            except Killed:
                finished = False
            calls = fake.calls
        held = frozenset(locked(opened(path)))
        assert held in ({"e1"}, {"e1", "e2"})
        seen.add(held)
        shutil.rmtree(path)
        if finished:
            break
    assert finished
    assert calls > 5
    assert seen == {frozenset({"e1"}), frozenset({"e1", "e2"})}


def test_of_two_publishers_one_wins_and_its_lockout_holds(store, opened):
    outcomes = []

    def publish(entry_id):
        try:
            purged(store, "acme", entry_id)
            outcomes.append(entry_id)
        except StalePlanError:
            pass

    threads = [threading.Thread(target=publish, args=(entry_id,)) for entry_id in ("e2", "e3")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes
    assert locked(opened(store)) == {"e1", *outcomes}


def test_guards_answer_while_the_store_is_replaced_underneath(store, opened):
    guarded = opened(store)
    passed, stop = [], threading.Event()

    def write(number):
        while not stop.is_set():
            if guarded.guard("acme").check(entry(AGAIN.response, f"w{number}", principal=f"p{number}")).allowed:
                passed.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for entry_id in ("e2", "e3"):
        purged(store, "acme", entry_id)
        assert guarded.refresh()
    stop.set()
    for thread in threads:
        thread.join()
    assert not passed
    assert locked(guarded) == {"e1", "e2", "e3"}


def test_whoever_looks_for_a_guard_does_not_wait_for_a_new_version_to_verify(store, opened, monkeypatch):
    guarded = opened(store, tenants=["acme"])
    purged(store, "acme", "e2")
    found = []

    def ask():
        found.append((guarded.guards["acme"], guarded.guard("acme")))

    assert at_once_while_verifying(guarded, monkeypatch, ask)
    assert found == [(guarded.guard("acme"),) * 2]
    assert locked(guarded) == {"e1", "e2"}


def test_while_a_new_version_is_verified_guards_are_made_by_the_old_one_and_moved_with_the_others(
    store, opened, monkeypatch
):
    guarded = opened(store)
    guarded.guard("acme")
    purged(store, "acme", "e2", scope="operator")
    found = []

    def ask():
        with pytest.raises(UsageError, match="not in the store"):
            guarded.guard("nobody")
        found.append((guarded.guard("globex"), locked(guarded, "globex")))

    assert at_once_while_verifying(guarded, monkeypatch, ask)
    assert found == [(guarded.guard("globex"), set())]
    assert (guarded.version, locked(guarded), locked(guarded, "globex")) == (3, {"e1", "e2"}, {"e2"})


def test_a_tenants_log_is_verified_once_for_all_who_ask_at_the_same_time(store, opened, monkeypatch):
    guarded = opened(store)
    reading, asked, reads = threading.Event(), threading.Event(), []

    def slowly(*args, **options):
        reads.append(args)
        reading.set()
        assert asked.wait(30)
        return read_block_list(*args, **options)

    monkeypatch.setattr("memory_audit.guard.guarded_store.read_block_list", slowly)
    threads = [threading.Thread(target=guarded.guard, args=("acme",)) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert reading.wait(30)
    asked.set()
    for thread in threads:
        thread.join()
    assert len(reads) == 1


def test_what_expired_is_gone_with_the_next_look_though_nobody_writes(store, opened):
    now = [NOW + 10]
    purged(store, "acme", "e2", expires_at_ms=NOW + 20)
    guarded = opened(store, clock_ms=lambda: now[0], tenants=["acme"])
    guarded.refresh()
    assert locked(guarded) == {"e1", "e2"}
    now[0] = NOW + 20
    assert not guarded.refresh()
    assert locked(guarded) == {"e1"}


def test_a_missing_store_is_an_error_of_its_own(tmp_path, opened):
    with pytest.raises(AuditError):
        opened(tmp_path / "nothing")


def test_a_snapshot_that_expired_without_a_successor_is_reported(store, opened):
    assert open_store(store).manifest.expires_ms is None
    guarded = opened(store)
    guarded.refresh()
    assert guarded.trouble == ""


def overtake(store, number=0):
    """Publish a memory of each tenant, and erase all older versions, with the files that only they name."""
    append_entries(
        store, [stored(tenant, f"later{number}") for tenant in ("acme", "globex")], keyring(), now_ms=NOW + 5
    )
    vacuum(store, keyring(), now_ms=NOW + 5, retention_ms=0, dry_run=False)


def test_a_guard_that_is_made_when_its_version_was_erased_is_made_by_the_newest(store, opened):
    guarded = opened(store)
    overtake(store)
    assert locked(guarded) == {"e1"}
    assert guarded.version == 4


def test_a_version_that_is_erased_while_it_is_put_in_force_is_followed_by_the_newest(store, opened, monkeypatch):
    guarded = opened(store)
    assert locked(guarded) == {"e1"}
    purged(store, "acme", "e2")
    left = [lambda: overtake(store)]

    def reading(snapshot, *arguments, **options):
        if left:
            left.pop()()
        return read_block_list(snapshot, *arguments, **options)

    monkeypatch.setattr("memory_audit.guard.guarded_store.read_block_list", reading)
    assert guarded.refresh()
    assert (guarded.version, guarded.trouble, locked(guarded)) == (5, "", {"e1", "e2"})


def test_a_store_that_is_erased_from_again_and_again_leaves_the_old_set_in_force(store, opened, monkeypatch):
    guarded, numbers = opened(store), count()
    assert locked(guarded) == {"e1"}
    purged(store, "acme", "e2")

    def reading(snapshot, *arguments, **options):
        overtake(store, next(numbers))
        return read_block_list(snapshot, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("memory_audit.guard.guarded_store.read_block_list", reading)
        with pytest.raises(StalePlanError):
            guarded.refresh()
        assert (locked(guarded), "erased" in guarded.trouble) == ({"e1"}, True)
    assert guarded.refresh()
    assert (locked(guarded), guarded.trouble) == ({"e1", "e2"}, "")
