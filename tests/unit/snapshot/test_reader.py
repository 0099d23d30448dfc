"""Only `open_snapshot` makes a VerifiedSnapshot, and it refuses stores that show less than was seen."""

import contextlib
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import durable
from memory_audit.provenance.keys import generate_keys
from memory_audit.provenance.leaf import encode_entry
from memory_audit.provenance.tlog.merkle import leaf_hash
from memory_audit.snapshot.pin import Pin, read_pin, write_pin
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from memory_audit.snapshot.reader import VerifiedSnapshot, open_snapshot
from tests.unit.snapshot.stores import NOW, STORE_ID, entry, ids, keyring, make_history, make_store, open_store


def test_a_verified_snapshot_cannot_be_made_by_hand():
    with pytest.raises(TypeError, match="open_snapshot only"):
        VerifiedSnapshot(object(), None, None, None, {})


def test_leaf_hashes_are_those_of_the_signed_leaves(tmp_path):
    make_store(tmp_path / "s")
    leaf = encode_entry(entry("acme", "e2"), origin=f"memaudit/{STORE_ID}/acme", index=2)
    assert open_store(tmp_path / "s").leaf_hash("acme", "e2") == leaf_hash(leaf)


def test_unknown_names_are_usage_errors(tmp_path):
    make_store(tmp_path / "s")
    snapshot = open_store(tmp_path / "s")
    with pytest.raises(UsageError, match="no tenant 'nobody'"):
        snapshot.entries("nobody")
    with pytest.raises(UsageError, match="no entry 'zzz'"):
        snapshot.leaf_hash("acme", "zzz")
    with pytest.raises(UsageError, match="no version 7"):
        open_store(tmp_path / "s", version=7)


def test_reading_one_tenant_reads_one_bucket(tmp_path):
    make_store(tmp_path / "s", tenants=("acme", "globex", "initech"))
    other = open_store(tmp_path / "s").log_refs["globex"].bucket
    shutil.rmtree(tmp_path / "s" / "data" / f"b={other:02x}")
    snapshot = open_store(tmp_path / "s")
    assert ids(snapshot, "acme") == ["e0", "e1", "e2", "e3"]
    with pytest.raises(VerificationError, match="missing"):
        snapshot.entries("globex")


def test_another_publishers_store_is_refused(tmp_path):
    make_store(tmp_path / "s")
    with pytest.raises(VerificationError, match=r"has no role log or auditor in the policy .* with --keys or --trust"):
        open_snapshot(tmp_path / "s", generate_keys().policy, now_ms=NOW)


def test_a_manifest_from_the_future_is_refused(tmp_path):
    make_store(tmp_path / "s")
    with pytest.raises(VerificationError, match="in the future"):
        open_store(tmp_path / "s", now_ms=NOW - 3_600_000)


def test_an_expired_version_is_refused(tmp_path):
    create_store(tmp_path / "s", [entry("acme", "e0")], keyring(), now_ms=NOW, expires_ms=NOW + 10)
    assert open_store(tmp_path / "s", now_ms=NOW + 10).version == 1
    with pytest.raises(VerificationError, match="expired"):
        open_store(tmp_path / "s", now_ms=NOW + 11)


def test_an_old_manifest_under_a_new_name_is_refused(tmp_path):
    make_history(tmp_path / "s")
    shutil.copy(tmp_path / "s/manifests/1.json", tmp_path / "s/manifests/4.json")
    with pytest.raises(VerificationError, match=r"manifests/4.json: holds version 1, expected 4"):
        open_store(tmp_path / "s")


def test_a_manifest_that_does_not_verify_is_not_skipped(tmp_path):
    make_history(tmp_path / "s")
    (tmp_path / "s/manifests/3.json").write_bytes(b"{}")
    with pytest.raises(VerificationError, match=r"manifests/3.json"):
        open_store(tmp_path / "s")


def test_a_rolled_back_store_is_refused_by_its_pin(tmp_path):
    make_store(tmp_path / "s")
    shutil.copytree(tmp_path / "s", tmp_path / "old")
    append_entries(tmp_path / "s", [entry("acme", "e4")], keyring(), now_ms=NOW)
    pin = open_store(tmp_path / "s").pin()
    with pytest.raises(VerificationError, match="version 1 is below the pinned 2"):
        open_store(tmp_path / "old", pin=pin)
    assert open_store(tmp_path / "s", pin=pin).version == 2


def test_truncate_then_append_is_refused_by_the_pin(tmp_path):
    make_store(tmp_path / "s")
    shutil.copytree(tmp_path / "s", tmp_path / "evil")
    append_entries(tmp_path / "s", [entry("acme", "e4")], keyring(), now_ms=NOW)
    pin = open_store(tmp_path / "s").pin()
    for number in range(3):
        append_entries(tmp_path / "evil", [entry("acme", f"evil{number}")], keyring(), now_ms=NOW)
    with pytest.raises(VerificationError, match="history rewritten"):
        open_store(tmp_path / "evil", pin=pin)


def test_two_versions_of_one_number_are_refused_by_the_pin(tmp_path):
    make_store(tmp_path / "s")
    shutil.copytree(tmp_path / "s", tmp_path / "evil")
    append_entries(tmp_path / "s", [entry("acme", "e4")], keyring(), now_ms=NOW)
    append_entries(tmp_path / "evil", [entry("acme", "other")], keyring(), now_ms=NOW)
    with pytest.raises(VerificationError, match="equivocation"):
        open_store(tmp_path / "evil", pin=open_store(tmp_path / "s").pin())


def test_a_shorter_log_under_a_higher_version_is_refused_by_the_pin(tmp_path):
    make_store(tmp_path / "s", size=2)
    shutil.copytree(tmp_path / "s", tmp_path / "evil")
    append_entries(tmp_path / "s", [entry("acme", f"x{n}") for n in range(9)], keyring(), now_ms=NOW)
    pin = open_store(tmp_path / "s").pin()
    for number in range(3):
        append_entries(tmp_path / "evil", [entry("globex", f"y{number}")], keyring(), now_ms=NOW)
    with pytest.raises(VerificationError, match=r"has 2 leaves, pinned are 11"):
        open_store(tmp_path / "evil", pin=pin)


def test_another_store_or_a_missing_tenant_is_refused_by_the_pin(tmp_path):
    make_store(tmp_path / "s")
    pin = open_store(tmp_path / "s").pin()
    create_store(tmp_path / "t", [entry("acme", "e0")], keyring(), now_ms=NOW)
    with pytest.raises(VerificationError, match="the pin is of store"):
        open_store(tmp_path / "t", pin=pin)
    gone = Pin(store_id=STORE_ID, version=1, digest="0" * 64, logs={**pin.logs, "gone": (1, b"r" * 32)})
    append_entries(tmp_path / "s", [entry("acme", "e4")], keyring(), now_ms=NOW)
    with pytest.raises(VerificationError, match="'gone' is pinned and missing"):
        open_store(tmp_path / "s", pin=gone)


def test_pins_round_trip_and_never_go_back(tmp_path):
    make_history(tmp_path / "s")
    newest, first = open_store(tmp_path / "s").pin(), open_store(tmp_path / "s", version=1).pin()
    path = tmp_path / "pins" / "s.json"
    assert read_pin(path) is None
    write_pin(path, first)
    write_pin(path, newest)
    assert read_pin(path) == newest
    with pytest.raises(VerificationError, match="refused to set version 1"):
        write_pin(path, first)
    path.write_bytes(path.read_bytes().replace(b'"version":3', b'"version": 3'))
    with pytest.raises(VerificationError, match="not canonical JSON"):
        read_pin(path)


def test_of_two_that_pin_at_once_the_later_version_stays(tmp_path, monkeypatch):
    make_history(tmp_path / "s")
    pins = [open_store(tmp_path / "s", version=version).pin() for version in (1, 2, 3)]
    path = tmp_path / "pins" / "s.json"
    replace_file = durable.replace

    def slow(*arguments: object) -> None:
        time.sleep(0.05)  # between what was read and what is written
        replace_file(*arguments)

    def pinned(pin: Pin) -> None:
        with contextlib.suppress(VerificationError):
            write_pin(path, pin)

    monkeypatch.setattr(durable, "replace", slow)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(pinned, pins))
    assert read_pin(path) == pins[-1]


def test_a_pin_is_not_set_to_another_version_of_the_same_number(tmp_path):
    make_store(tmp_path / "s")
    pin = open_store(tmp_path / "s").pin()
    write_pin(tmp_path / "pin", pin)
    with pytest.raises(VerificationError, match="equivocation"):
        write_pin(tmp_path / "pin", replace(pin, digest="cd" * 32))
    assert read_pin(tmp_path / "pin") == pin
