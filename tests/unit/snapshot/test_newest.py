"""Readers beside publishers and vacuums: what others did meanwhile is no attack, and an attack is no less one."""

# ruff: noqa: ANN002 - what the tests pass is passed on

from __future__ import annotations

import threading

import pytest

from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.provenance import durable, key_folder
from memory_audit.provenance.folder_lock import locked
from memory_audit.provenance.key_folder import install_rotation
from memory_audit.provenance.keys import draw_key, generate_keys, load_keyring, save_keyring, save_policy
from memory_audit.provenance.policy_change import rotate_key
from memory_audit.snapshot.newest import TRIES, at_newest
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.publishing.vacuum import vacuum
from memory_audit.snapshot.verify import verify_store
from tests.unit.snapshot.stores import NOW, entry, ids, keyring, make_history, open_store, remove

LATER = NOW + 10


@pytest.fixture
def store(tmp_path):
    """Three versions."""
    make_history(tmp_path / "s")
    return tmp_path / "s"


def overtake(store, number=0):
    """Publish a memory, and erase all older versions: the newest of a moment ago is gone, with files of its own."""
    append_entries(store, [entry(tenant, f"later{number}") for tenant in ("acme", "globex")], keyring(), now_ms=LATER)
    vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)


def before_reading(monkeypatch, name, act):
    """Do something once, right before the file of that name is read."""
    read = durable.read_bounded
    left = [act]

    def reading(path, max_bytes, what):
        if left and path.name == name:
            left.pop()()
        return read(path, max_bytes, what)

    monkeypatch.setattr("memory_audit.provenance.durable.read_bounded", reading)


@pytest.mark.parametrize("name", ["3.json", "the checkpoints", "2.json"])
def test_a_version_that_is_erased_while_it_is_opened_is_followed_by_the_newest(store, monkeypatch, name):
    if name == "the checkpoints":
        bucket = next(iter(open_store(store).manifest.buckets.values()))
        name = f"{bucket.checkpoints.sha256}.json"
    before_reading(monkeypatch, name, lambda: overtake(store))
    report = verify_store(store, keyring().policy, now_ms=LATER)
    assert report.version == 5
    before_reading(monkeypatch, "5.json", lambda: overtake(store, 1))
    snapshot = open_store(store, now_ms=LATER)
    assert (snapshot.version, ids(snapshot, "acme")[-1]) == (7, "later1")


@pytest.mark.parametrize("deep", [True, False])
@pytest.mark.parametrize("stage", ["files", "entries"])
def test_what_a_vacuum_erases_while_a_store_is_verified_does_not_fail_it(store, deep, stage):
    left = [lambda: overtake(store)]

    def progress(what, _done, _total):
        if left and what == stage:
            left.pop()()

    report = verify_store(store, keyring().policy, now_ms=LATER, deep=deep, progress=progress)
    assert report.version in {3, 5}  # 3 where all of it had been read
    assert not deep or stage == "files" or report.version == 5


def test_a_store_that_is_erased_from_again_and_again_is_to_be_verified_later(store):
    overtaken = []

    def progress(what, _done, _total):
        overtake(store, len(overtaken))
        overtaken.append(what)

    with pytest.raises(StalePlanError, match="while they were verified"):
        verify_store(store, keyring().policy, now_ms=LATER, deep=True, progress=progress)
    assert len(overtaken) >= TRIES


def test_a_snapshot_whose_version_was_erased_says_so(store):
    for ask in (
        lambda snapshot: snapshot.entries("acme"), lambda snapshot: snapshot.tombstones("acme"),
        lambda snapshot: snapshot.bucket(snapshot.log_refs["acme"].bucket),
    ):  # fmt: skip
        snapshot = open_store(store, now_ms=LATER)
        overtake(store, snapshot.version)
        with pytest.raises(StalePlanError, match=f"a vacuum erased version {snapshot.version} while it was read"):
            ask(snapshot)


def test_a_version_that_is_erased_while_it_is_asked_for_by_number_says_so(store, monkeypatch):
    before_reading(monkeypatch, "2.json", lambda: overtake(store))
    with pytest.raises(StalePlanError, match="erased version 2"):
        open_store(store, now_ms=LATER, version=2, check_expiry=False)


def test_a_removal_beside_two_publishers_is_stale(store, monkeypatch):
    before_reading(monkeypatch, "3.json", lambda: None)
    snapshot = open_store(store, now_ms=LATER)
    before_reading(monkeypatch, "3.json", lambda: overtake(store))
    monkeypatch.setattr("tests.unit.snapshot.stores.open_store", lambda _path: snapshot)
    with pytest.raises(StalePlanError, match="is at version 5, the audit read version 3"):
        remove(store, {"acme": {"e0": "harm"}}, now_ms=LATER)


def test_what_others_publish_while_a_store_is_verified_is_not_left_over(store):
    numbers = iter(range(1_000))

    def progress(*_):
        append_entries(store, [entry("acme", f"more{next(numbers)}")], keyring(), now_ms=LATER)

    report = verify_store(store, keyring().policy, now_ms=LATER, deep=True, progress=progress)
    assert (report.version, report.leftovers) == (3, ())
    assert next(numbers) > 1


def test_a_file_that_is_gone_though_its_version_is_kept_is_an_attack_beside_any_publisher(store):
    snapshot = open_store(store, now_ms=LATER)
    overtake(store)
    append_entries(store, [entry("acme", "last")], keyring(), now_ms=LATER)
    kept = open_store(store, now_ms=LATER, version=5)
    for path in (store / "data").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(VerificationError, match="missing"):
        kept.entries("acme")
    with pytest.raises(VerificationError, match="missing"):
        verify_store(store, keyring().policy, now_ms=LATER)
    with pytest.raises(StalePlanError):  # not kept: nothing is said of it
        snapshot.entries("acme")


@pytest.mark.parametrize("planted", [b"{}", None])
def test_a_planted_newest_version_excuses_nothing(store, planted):
    snapshot = open_store(store, now_ms=LATER)
    data = (store / "manifests" / "1.json").read_bytes() if planted is None else planted
    (store / "manifests" / "9.json").write_bytes(data)
    for path in (store / "data").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(VerificationError, match=r"manifests/9\.json"):
        snapshot.entries("acme")
    with pytest.raises(VerificationError, match=r"manifests/9\.json"):
        verify_store(store, keyring().policy, now_ms=LATER)


def test_a_store_that_is_gone_while_it_is_read_is_missing(store):
    snapshot = open_store(store, now_ms=LATER)
    store.rename(store.with_name("elsewhere"))
    with pytest.raises(VerificationError, match="missing"):
        snapshot.entries("acme")


def test_who_plants_ever_newer_versions_keeps_no_reader_busy(store):
    asked = []

    def read(version):
        asked.append(version)
        (store / "manifests" / f"{version + 1}.json").write_bytes(b"{}")
        raise VerificationError("no manifest")

    with pytest.raises(VerificationError, match="no manifest"):
        at_newest(store, read)
    assert asked == list(range(3, 3 + TRIES))
    with pytest.raises(UsageError, match="no store"):
        at_newest(store / "data", read)


def test_keys_that_are_asked_for_while_they_are_rotated_are_the_new_ones(tmp_path, monkeypatch):
    """Asked for before the new policy is there, and again before the new key has its name."""
    save_keyring(generate_keys(), tmp_path / "keys")
    before = load_keyring(tmp_path / "keys")
    after = rotate_key(before, "log", draw_key("memaudit/log-2"), logs={}, manifests={})
    found = []

    def read():
        try:
            found.append(load_keyring(tmp_path / "keys").policy.version)
        except Exception as error:  # noqa: BLE001 - looked at below
            found.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    save, move = save_policy, key_folder._move

    def meanwhile(step, reader, *arguments):
        reader.start()
        reader.join(1)  # it waits for the rotation, or is done
        step(*arguments)

    monkeypatch.setattr(key_folder, "save_policy", lambda *arguments: meanwhile(save, readers[0], *arguments))
    monkeypatch.setattr(key_folder, "_move", lambda *arguments: meanwhile(move, readers[1], *arguments))
    with locked(tmp_path / "keys"):
        install_rotation(tmp_path / "keys", before, after)
    for reader in readers:
        reader.join()
    assert found == [2, 2]
