"""Vacuum: removed text is gone, the log is still provable."""

import os

import pyarrow.parquet as pq
import pytest

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance.keys import save_keyring
from memory_audit.snapshot.layout import file_path, put_file
from memory_audit.snapshot.manifest import files_of
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.publishing.vacuum import vacuum
from memory_audit.snapshot.verify import verify_store
from tests.unit.snapshot.stores import NOW, Killed, broken_os, entry, ids, keyring, make_history, open_store

LATER = NOW + 1_000
DAY_MS = 24 * 3_600_000
WEEK_MS = 7 * DAY_MS
DIGEST = "5a" * 32
PARTIAL = ".0123456789abcdef01234567.part"


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
    (store / "scratch" / PARTIAL).write_bytes(b"half")
    result = vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)
    assert f"scratch/{PARTIAL}" in result.files
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


def dated(path, at_ms):
    """Give what lies in a folder, or a file, this time of change."""
    for item in [path, *path.rglob("*")]:
        os.utime(item, ns=(at_ms * 1_000_000, at_ms * 1_000_000), follow_symlinks=False)


def test_what_is_not_the_stores_stays_however_old(tmp_path):
    store = tmp_path
    make_history(store)
    save_keyring(keyring(), store / "memaudit-keys")
    bucket = next(store.glob("data/b=*"))
    strange = [
        "events.jsonl", "memaudit.yaml", "run/attestation.json", "run/embedding/0.parquet", f"{DIGEST}.parquet",
        PARTIAL, "data/b=00/notes.parquet", f"data/b=00/{DIGEST}.bin", f"data/b=00/{DIGEST.upper()}.parquet",
        f"data/b=00/{DIGEST}.parquet.bak", f"data/b=00/deeper/{DIGEST}.parquet", f"data/b=0/{DIGEST}.parquet",
        f"data/{DIGEST}.parquet", f"copy/data/b=00/{DIGEST}.parquet", "manifests/01.json", "manifests/old/1.json",
        f"memaudit-keys/{PARTIAL}", "scratch/ideas.txt", "scratch/.ideas.part", f"data/{bucket.name}/.notes.part",
    ]  # fmt: skip
    for name in strange:
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(b"of somebody else")
    keys = {name for name in files(store) if name.startswith("memaudit-keys/")}
    assert len(keys) > 4
    dated(store, LATER - 10 * WEEK_MS)
    for retention_ms in (WEEK_MS, 0):
        result = vacuum(store, keyring(), now_ms=LATER, retention_ms=retention_ms, dry_run=False)
        assert result.done
        assert not (keys | set(strange)) & set(result.files)
        assert keys | set(strange) <= set(files(store))


@pytest.fixture
def stray(tmp_path):
    """Names of files in a store that no manifest names, as an interrupted publisher leaves them."""
    store = tmp_path / "s"
    make_history(store)
    dated(store, LATER - 10 * WEEK_MS)  # files of versions that are kept, whatever their age
    bucket = next(store.glob("data/b=*")).name
    names = {
        f"data/b=00/{DIGEST}.parquet", f"tiles/b=ff/{DIGEST}.bin", f"tombstones/b=00/{DIGEST}.parquet",
        f"checkpoints/b=00/{DIGEST}.json", f"scratch/{PARTIAL}", f"data/{bucket}/{PARTIAL}",
    }  # fmt: skip
    for name in names:
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(b"half")
        dated(store / name, LATER)
    return names


def test_left_overs_go_whatever_their_age_where_no_one_else_writes(tmp_path, stray):
    store = tmp_path / "s"
    kept = set(files(store)) - stray
    for name in stray:
        dated(store / name, LATER + DAY_MS)  # by a clock that was ahead
    result = vacuum(store, keyring(), now_ms=LATER, retention_ms=WEEK_MS, dry_run=False)
    assert result.files == tuple(sorted(stray))
    assert (result.version, result.versions, result.bytes, result.stays) == (None, (), 4 * len(stray), {})
    assert set(files(store)) == kept


def test_young_left_overs_stay_and_are_told_where_other_machines_may_write(tmp_path, stray, shared_disk):
    store = tmp_path / "s"
    for name in stray:
        dated(store / name, LATER - DAY_MS + 1)
    result = vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)
    assert (result.versions, stray & set(result.files), set(result.stays)) == ((1, 2), set(), stray)
    assert all("younger than a day" in why for why in result.stays.values())
    for name in stray:
        dated(store / name, LATER - DAY_MS)
    result = vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)
    assert (result.files, result.stays) == (tuple(sorted(stray)), {})


def test_nothing_is_published_where_no_file_would_go(tmp_path):
    store = tmp_path / "s"
    make_history(store)
    assert vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False).version == 4
    before = files(store)
    for dry_run in (True, False):
        result = vacuum(store, keyring(), now_ms=LATER + 1, retention_ms=0, dry_run=dry_run)
        assert (result.version, result.versions, result.files, result.bytes) == (None, (), (), 0)
    assert files(store) == before
    append_entries(store, [entry("acme", "later")], keyring(), now_ms=LATER + 2)
    result = vacuum(store, keyring(), now_ms=LATER + 3, retention_ms=0, dry_run=False)
    assert (result.version, result.versions) == (6, (3, 4))


@pytest.mark.parametrize(("dies_at", "place"), [(3, "scratch"), (8, "data/b=*")])
def test_what_a_killed_writer_leaves_is_known_as_a_left_over(tmp_path, monkeypatch, dies_at, place):
    store = tmp_path / "s"
    make_history(store)
    bucket, ref = next((bucket, ref) for kind, bucket, ref in files_of(open_store(store).manifest) if kind == "data")
    path = file_path(store, "data", bucket, ref.sha256)
    data = path.read_bytes()
    path.write_bytes(b"damaged")
    broken_os(monkeypatch, dies_at)
    with pytest.raises(Killed):
        put_file(store, "data", bucket, data, ref.rows)
    monkeypatch.undo()
    (partial,) = store.glob(f"{place}/.*")
    result = vacuum(store, keyring(), now_ms=LATER, retention_ms=0)
    assert str(partial.relative_to(store)) in result.files


def test_links_and_folders_named_like_a_file_are_left_alone(tmp_path):
    store, elsewhere = tmp_path / "s", tmp_path / "elsewhere"
    make_history(store)
    (elsewhere / "b=00").mkdir(parents=True)
    target = elsewhere / "b=00" / f"{DIGEST}.bin"
    target.write_bytes(b"of somebody else")
    link, dangling = store / "data" / "b=00" / f"{DIGEST}.parquet", store / "scratch" / PARTIAL
    folder = store / "checkpoints" / "b=00" / f"{DIGEST}.json"
    folder.mkdir(parents=True)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target)
    dangling.symlink_to(elsewhere / "nothing")
    (store / "edges").rename(elsewhere / "edges")
    (store / "edges").symlink_to(elsewhere / "edges")
    (elsewhere / "edges" / "b=00").symlink_to(elsewhere / "b=00")
    (store / "tombstones" / "b=00").symlink_to(elsewhere / "b=00")
    dated(tmp_path, LATER - 10 * WEEK_MS)
    for retention_ms in (WEEK_MS, 0):
        vacuum(store, keyring(), now_ms=LATER, retention_ms=retention_ms, dry_run=False)
        assert target.read_bytes() == b"of somebody else"
        assert link.is_symlink()
        assert dangling.is_symlink()
        assert folder.is_dir()


def test_removed_text_behind_a_link_is_not_said_to_be_erased(tmp_path):
    store = tmp_path / "s"
    make_history(store)
    kept = {ref.sha256 for _, _, ref in files_of(open_store(store).manifest)}
    path = min(item for item in store.glob("data/*/*.parquet") if item.stem not in kept)
    path.rename(tmp_path / "cache.parquet")
    path.symlink_to(tmp_path / "cache.parquet")
    before = files(store)
    with pytest.raises(UsageError, match=f"^{path.relative_to(store)} is a link"):
        vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)
    assert files(store) == before
