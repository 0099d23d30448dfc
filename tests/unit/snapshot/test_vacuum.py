"""Vacuum: removed text is gone, the log is still provable."""

import pyarrow.parquet as pq
import pytest

from audit.errors import UsageError, VerificationError
from audit.snapshot.publish import append_entries
from audit.snapshot.vacuum import vacuum
from audit.snapshot.verify import verify_store
from tests.unit.snapshot.stores import NOW, entry, ids, keyring, make_history, open_store

LATER = NOW + 1_000


def files(store):
    return sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file())


def test_a_vacuum_erases_what_only_older_versions_name(tmp_path):
    store = tmp_path / "s"
    make_history(store)
    hashes = open_store(store).log("acme").leaf_hashes
    pin = open_store(store).pin()
    result = vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)
    snapshot = open_store(store, now_ms=LATER, pin=pin)
    assert (result.version, result.versions, result.done) == (4, (1, 2), True)
    assert ids(snapshot, "acme") == ["e0", "e2", "e3"]
    assert snapshot.log("acme").leaf_hashes == hashes
    assert [stone.entry_id for stone in snapshot.tombstones("acme")] == ["e1", "e9"]
    report = verify_store(store, keyring().policy, now_ms=LATER, deep=True, pin=pin)
    assert (report.versions, report.leftovers) == ((3, 4), ())
    assert not set(result.files) & set(files(store))


def stored_ids(store):
    return {
        row for path in store.glob("data/*/*.parquet") for row in pq.read_table(path).column("entry_id").to_pylist()
    }


def test_removed_entries_are_in_no_data_file_afterwards(tmp_path):
    store = tmp_path / "s"
    make_history(store)
    assert {"e1", "e9"} <= stored_ids(store)
    vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)
    assert "e9" not in stored_ids(store)
    assert [item.entry_id for item in open_store(store, now_ms=LATER).entries("acme")] == ["e0", "e2", "e3"]
    with pytest.raises(UsageError, match="no version 2"):
        open_store(store, now_ms=LATER, version=2)


def test_a_dry_run_erases_nothing_and_tells_the_same(tmp_path):
    store = tmp_path / "s"
    make_history(store)
    before = files(store)
    plan = vacuum(store, keyring(), now_ms=LATER, retention_ms=0)
    assert files(store) == before
    assert (plan.version, plan.done) == (None, False)
    assert vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False).files == plan.files


def test_versions_within_the_retention_are_kept(tmp_path):
    store = tmp_path / "s"
    make_history(store)  # versions made at NOW, NOW + 1 and NOW + 2
    for retention_ms, erased in ((8, (1, 2)), (9, (1,)), (10, ())):
        assert vacuum(store, keyring(), now_ms=NOW + 10, retention_ms=retention_ms).versions == erased


def test_left_overs_of_a_crash_are_erased_without_a_new_version(tmp_path):
    store = tmp_path / "s"
    make_history(store)
    vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)
    vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)
    newest = open_store(store, now_ms=LATER).version
    (store / "scratch" / ".x.part").write_bytes(b"half")
    result = vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)
    assert "scratch/.x.part" in result.files
    assert open_store(store, now_ms=LATER).version == newest + (result.version is not None)


def test_a_vacuumed_store_takes_new_entries(tmp_path):
    store = tmp_path / "s"
    make_history(store)
    vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)
    append_entries(store, [entry("acme", "later")], keyring(), now_ms=LATER)
    assert verify_store(store, keyring().policy, now_ms=LATER, deep=True).versions == (3, 4, 5)


def test_a_version_missing_without_a_vacuum_is_refused(tmp_path):
    store = tmp_path / "s"
    make_history(store)
    (store / "manifests" / "1.json").unlink()
    with pytest.raises(VerificationError, match=r"manifests/1.json: missing"):
        verify_store(store, keyring().policy, now_ms=LATER)


def test_a_negative_retention_is_refused(tmp_path):
    with pytest.raises(UsageError, match="must not be negative"):
        vacuum(tmp_path, keyring(), now_ms=LATER, retention_ms=-1)


def test_removed_text_is_erased_where_a_folder_of_the_store_is_a_link(tmp_path):
    store, elsewhere = tmp_path / "s", tmp_path / "large disk"
    make_history(store)
    (store / "data").rename(elsewhere)
    (store / "data").symlink_to(elsewhere)
    (elsewhere / "b=00").mkdir(exist_ok=True)
    (elsewhere / "b=00" / "of somebody else").write_bytes(b"text")
    assert "e9" in stored_ids(store)
    vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)
    assert verify_store(store, keyring().policy, now_ms=LATER).versions == (3, 4)
    (elsewhere / "b=00" / "of somebody else").unlink()
    assert "e9" not in stored_ids(store)
