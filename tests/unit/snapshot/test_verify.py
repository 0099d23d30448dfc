"""`verify` accepts what was published, and nothing that differs from it in one byte."""

import os
import shutil
import threading
from dataclasses import replace

import pytest

from memory_audit.errors import UsageError, VerificationError
from memory_audit.snapshot import verify
from memory_audit.snapshot.layout import manifest_path
from memory_audit.snapshot.manifest import sign_manifest
from memory_audit.snapshot.verify import LogStep, verify_store
from tests.unit.snapshot.stores import NOW, keyring, make_history, make_store, open_store


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    path = tmp_path_factory.mktemp("history") / "s"
    make_history(path)
    return path


def check(path, **options):  # noqa: ANN003
    return verify_store(path, keyring().policy, **({"now_ms": NOW + 10} | options))


@pytest.mark.parametrize("deep", [False, True])
def test_a_purified_store_verifies(history, deep):
    stages = []
    report = check(history, deep=deep, progress=lambda *step: stages.append(step))
    assert (report.version, report.versions, report.tenants) == (3, (1, 2, 3), 3)
    assert (report.entries, report.tombstones, report.leaves) == (8, 2, 12)
    assert report.leftovers == ()
    assert report.steps == (
        LogStep(tenant="acme", from_version=1, to_version=2, from_size=4, to_size=5, proof_hashes=1),
        LogStep(tenant="acme", from_version=2, to_version=3, from_size=5, to_size=7, proof_hashes=4),
    )
    assert stages[-1][0] == "entries"
    assert stages[-1][1] == stages[-1][2] > 0
    assert report.to_json()["deep"] is deep


def files_of(path):
    return sorted(item for item in path.rglob("*") if item.is_file())


def damaged(data):
    """First, last and middle byte, some between, a truncation and an extra byte."""
    for position in sorted({0, 1, len(data) // 3, len(data) // 2, len(data) - 2, len(data) - 1}):
        for mask in (0x01, 0x80):
            yield data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]
    yield data[:-1]
    yield data[1:]
    yield data + b"\n"
    yield b""


def test_any_changed_byte_of_any_file_is_refused(history, tmp_path):
    store = tmp_path / "s"
    shutil.copytree(history, store)
    tried = 0
    for path in files_of(store):
        good = path.read_bytes()
        for bad in damaged(good):
            path.write_bytes(bad)
            with pytest.raises(VerificationError):
                check(store)
            tried += 1
        path.write_bytes(good)
    assert tried > 300
    assert check(store).version == 3


def test_bytes_all_over_a_manifest_count(history, tmp_path):
    store = tmp_path / "s"
    shutil.copytree(history, store)
    path = store / "manifests" / "3.json"
    good = path.read_bytes()
    for position in range(0, len(good), 7):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x04]) + good[position + 1 :])
        with pytest.raises(VerificationError):
            open_store(store)


def test_any_missing_file_is_refused(history, tmp_path):
    store = tmp_path / "s"
    shutil.copytree(history, store)
    for path in files_of(store):
        good = path.read_bytes()
        path.unlink()
        if path.name == "3.json":  # rolled back: only a pin can tell
            with pytest.raises(VerificationError, match="rollback"):
                check(store, pin=open_store(history).pin())
        else:
            with pytest.raises(VerificationError, match=r"missing"):
                check(store)
        path.write_bytes(good)


def test_errors_name_the_file_and_both_digests(history, tmp_path):
    store = tmp_path / "s"
    shutil.copytree(history, store)
    path = next(store.glob("data/*/*.parquet"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(
        VerificationError, match=rf"data/b=../{path.stem}.parquet: SHA-256 is [0-9a-f]+, expected {path.stem}"
    ):
        check(store)


def test_left_overs_are_named_and_harmless(history, tmp_path):
    store = tmp_path / "s"
    shutil.copytree(history, store)
    (store / "scratch").mkdir(exist_ok=True)
    (store / "scratch" / ".abc.part").write_bytes(b"half")
    (store / "manifests" / ".x.part").write_bytes(b"half")
    (store / "data" / "orphan.parquet").write_bytes(b"half")
    (store / "memaudit-keys").mkdir()  # a store may be made in a folder that has its owner's files
    (store / "memaudit-keys" / "memaudit-root.key").write_bytes(b"key")
    assert check(store).leftovers == ("data/orphan.parquet", "manifests/.x.part", "scratch/.abc.part")


def test_worker_processes_give_the_same_report(history, monkeypatch):
    monkeypatch.setattr(verify, "ROWS_FOR_WORKERS", 1)
    assert check(history, deep=True, workers=2) == check(history, deep=True, workers=1)


def test_a_failure_in_a_worker_is_reported(history, tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "ROWS_FOR_WORKERS", 1)
    store = tmp_path / "s"
    shutil.copytree(history, store)
    path = max(store.glob("data/*/*.parquet"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(VerificationError, match="SHA-256"):
        check(store, deep=True, workers=2)


def test_no_store_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no store at"):
        check(tmp_path)


def test_a_store_of_one_version_has_no_steps(tmp_path):
    make_store(tmp_path / "s")
    assert check(tmp_path / "s").steps == ()


def publish(path, **changes):  # noqa: ANN003
    """Sign the newest manifest's successor, changed, with the keys that its operation takes."""
    newest = open_store(path).manifest
    successor = replace(newest, **{"version": newest.version + 1, "parent": newest.digest} | changes)
    manifest_path(path, successor.version).write_bytes(sign_manifest(successor, keyring()))


def test_the_log_key_alone_drops_no_versions(history, tmp_path):
    for oldest, problem in ((3, "only a vacuum drops versions"), (4, "states that its parent is not kept")):
        store = tmp_path / str(oldest)
        shutil.copytree(history, store)
        publish(store, operation="append", oldest=oldest)
        for version in range(1, oldest):
            manifest_path(store, version).unlink()
        with pytest.raises(VerificationError, match=problem):
            check(store)


def test_tombstones_are_counted_and_not_only_stated(history, tmp_path):
    store = tmp_path / "s"
    shutil.copytree(history, store)
    buckets = {
        number: replace(files, tombstones=files.tombstones and replace(files.tombstones, rows=7))
        for number, files in open_store(store).manifest.buckets.items()
    }
    publish(store, operation="append", buckets=buckets)
    with pytest.raises(VerificationError, match="2 rows, expected 7"):
        check(store)


@pytest.mark.parametrize("planted", ["manifests/4.json", "data", "edges", "ids"])
def test_a_planted_pipe_is_refused_and_not_waited_for(history, tmp_path, planted):
    store, said = tmp_path / "s", []
    shutil.copytree(history, store)
    path = store / planted
    if path.is_dir():
        path = max(path.rglob("*.*"), key=lambda item: item.stat().st_mtime_ns)
        path.unlink()
    os.mkfifo(path)

    def look():
        with pytest.raises(VerificationError, match="not a file") as refused:
            check(store, deep=True)
        said.append(str(refused.value))

    reader = threading.Thread(target=look, daemon=True)
    reader.start()
    reader.join(20)
    assert len(said) == 1
