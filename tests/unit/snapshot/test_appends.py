"""What an append reads and writes: tiles, ids, and stores that were made without them."""

import shutil
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.entry import Parent
from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.checkpoint import Checkpoint, log_origin, sign_checkpoint
from memory_audit.provenance.tlog.tiles import TiledTree
from memory_audit.snapshot.checkpoints import encode_checkpoints
from memory_audit.snapshot.ids import check_ids, id_digests, known_ids, read_runs, with_ids
from memory_audit.snapshot.layout import FileRef, bucket_of, manifest_path, put_file, put_tile
from memory_audit.snapshot.manifest import checkpoints_root, sign_manifest
from memory_audit.snapshot.publishing import draft, publish
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.publishing.vacuum import vacuum
from memory_audit.snapshot.verify import verify_store
from tests.unit.snapshot.stores import (
    NOW,
    Killed,
    broken_os,
    entry,
    ids,
    keyring,
    make_history,
    make_store,
    open_store,
    quarantine,
    remove,
    without_tiles,
)

SIZE = 600
"""Entries of one tenant: two full tiles and a partial one."""

FOLDER = f"b={bucket_of('acme'):02x}"


@pytest.fixture(scope="module")
def tiled(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiled") / "s"
    make_store(path, tenants=("acme",), size=SIZE)
    return path


@pytest.fixture
def store(tiled, tmp_path):
    return shutil.copytree(tiled, tmp_path / "s")


def append(path, *names, tenant="acme", now_ms=NOW + 1, **options):  # noqa: ANN002, ANN003
    return append_entries(path, [entry(tenant, name) for name in names], keyring(), now_ms=now_ms, **options)


def verified(path, **options):  # noqa: ANN003
    return verify_store(path, keyring().policy, **({"now_ms": NOW + 10, "workers": 1} | options))


def files(path, kind="*"):
    return {item.relative_to(path): item.read_bytes() for item in path.glob(f"{kind}/**/*") if item.is_file()}


def root_of(path, tenant="acme"):
    """The root, by the definition, of the leaf hashes that a reader is given."""
    log = open_store(path).log(tenant)
    assert log.checkpoint.root == merkle.root(log.leaf_hashes)
    return log.checkpoint


def test_an_append_adds_the_tiles_that_it_fills_and_changes_none(store):
    before = files(store, "tiles")
    append(store, *(f"new{number}" for number in range(300)))
    after = files(store, "tiles")
    assert (len(before), len(after)) == (2, 3)
    assert after.items() >= before.items()
    assert root_of(store).size == 900
    assert (verified(store, deep=True).leftovers, verified(store).entries) == ((), 900)


def test_an_append_reads_neither_old_tiles_nor_old_entries(store, monkeypatch):
    monkeypatch.setattr(publish, "MERGE_BELOW_ROWS", 0)
    pin, whole = open_store(store).pin(), files(store)
    for name in [*files(store, "tiles"), *files(store, "data")]:
        (store / name).unlink()
    append(store, "new", pin=pin)
    with pytest.raises(VerificationError, match="missing"):
        verified(store)
    for name, data in whole.items():
        (store / name).write_bytes(data)
    assert verified(store, deep=True, pin=pin).entries == SIZE + 1


def test_any_damage_to_a_tile_is_found_and_named(store):
    append(store, *(f"new{number}" for number in range(300)))
    for name, good in files(store, "tiles").items():
        for bad in (good[:-1], good + b"\0", b"", bytes([good[0] ^ 1]) + good[1:], good[:-1] + bytes([good[-1] ^ 128])):
            (store / name).write_bytes(bad)
            for looks in (verified, root_of):
                with pytest.raises(
                    VerificationError, match=rf"tile/0/00[0-2] \({name.stem}\)|{name}: 8193 bytes, at most"
                ):
                    looks(store)
        (store / name).unlink()
        with pytest.raises(VerificationError, match=rf"{name}: missing"):
            verified(store)
        (store / name).write_bytes(good)
    assert verified(store, deep=True).version == 2


def test_tiles_of_another_log_do_not_pass(store, tmp_path):
    make_store(tmp_path / "other", tenants=("globex",), size=SIZE)
    for mine, theirs in zip(sorted(files(store, "tiles")), files(tmp_path / "other", "tiles").values(), strict=True):
        (store / mine).write_bytes(theirs)
    with pytest.raises(VerificationError, match="Merkle tree hash is"):
        verified(store)


def test_a_few_tiles_that_stand_for_a_world_of_leaves_are_refused(store):
    """Each tile is 256 times the same hash, and so is the one above it; a stolen log key signs the checkpoint."""
    newest, bucket, size = open_store(store).manifest, bucket_of("acme"), 3 * 256**3
    name = merkle.leaf_hash(b"")
    for _ in range(3):
        tile = name * 256
        name = merkle.packed_root(tile)
        put_tile(store, bucket, name, tile)
    root = TiledTree(size, name * 3).root()
    note = sign_checkpoint(
        Checkpoint(origin=log_origin(newest.store_id, "acme"), size=size, root=root), keyring().signers("log")
    )
    forged = replace(
        newest.buckets[bucket], hashes=put_file(store, "edges", bucket, name * 3, 3),
        checkpoints=put_file(store, "checkpoints", bucket, encode_checkpoints({"acme": note}), 1),
    )  # fmt: skip
    successor = replace(
        newest, version=2, parent=newest.digest, operation="append", buckets={bucket: forged}, leaves=size,
        checkpoints_root=checkpoints_root([note]),
    )  # fmt: skip
    manifest_path(store, 2).write_bytes(sign_manifest(successor, keyring()))
    for looks in (open_store, verified):
        with pytest.raises(VerificationError, match=f"state {size} leaves, at most 33554432 are read"):
            looks(store)


def test_a_bucket_of_more_leaves_than_readers_take_is_not_published(store, monkeypatch):
    monkeypatch.setattr(draft, "MAX_LEAVES", SIZE)
    with pytest.raises(UsageError, match="1 tenants in one bucket have 601 leaves, and readers take 600"):
        append(store, "new")
    assert open_store(store).version == 1


def test_a_pin_is_held_against_the_tiles(store, tmp_path):
    pin, evil = open_store(store).pin(), tmp_path / "evil"
    append(store, "new")
    assert open_store(store, pin=pin).version == 2
    make_store(evil, tenants=("acme",), size=SIZE - 1)
    append(evil, *(f"evil{number}" for number in range(300)))
    with pytest.raises(VerificationError, match=r"first 600 leaves .* \(history rewritten\)"):
        open_store(evil, pin=pin)


def test_what_another_publisher_left_in_the_same_tile_is_no_obstacle(store, monkeypatch):
    """A tile is named by its content: a killed append fills its third one otherwise than the one that goes through."""
    names = [f"new{number}" for number in range(200)]
    broken_os(monkeypatch, 20)
    with pytest.raises(Killed):
        append(store, *reversed(names))
    monkeypatch.undo()
    assert len(files(store, "tiles")) == 3
    append(store, *names)
    left = [name for name in verified(store, deep=True).leftovers if name.startswith("tiles/")]
    assert (len(files(store, "tiles")), len(left)) == (4, 1)
    assert left[0] in vacuum(store, keyring(), now_ms=NOW + 2, retention_ms=0, dry_run=False).files
    assert (len(files(store, "tiles")), verified(store, deep=True).leftovers) == (3, ())


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_operation_of_an_append_that_fills_a_tile_loses_nothing(tmp_path, monkeypatch, after):
    make_store(tmp_path / "s", tenants=("acme",), size=255)
    kills = 0
    while True:
        path = shutil.copytree(tmp_path / "s", tmp_path / f"kill-{kills}")
        fake = broken_os(monkeypatch, kills, after=after)
        try:
            append(path, "new", "newer")
            acknowledged = True
        except Killed:
            acknowledged = False
        monkeypatch.undo()
        assert verified(path, deep=True).entries == 257 if acknowledged else verified(path).entries in {255, 257}
        if open_store(path).version == 1:
            append(path, "new", "newer")
        assert ids(open_store(path), "acme")[-2:] == ["new", "newer"]
        if fake.calls <= kills:
            break
        shutil.rmtree(path)
        kills += 1
    assert kills > 40


def test_a_vacuum_keeps_the_tiles_of_what_is_kept(store):
    remove(store, {"acme": {"e1": "harm"}})
    before = files(store, "tiles")
    vacuum(store, keyring(), now_ms=NOW + 3, retention_ms=0, dry_run=False)
    assert files(store, "tiles") == before
    assert (verified(store).entries, root_of(store).size) == (SIZE - 1, SIZE + 1)


# Ids.


def test_ids_that_the_log_had_are_known_for_what_they_are(store):
    remove(store, {"acme": {"e1": "harm"}})
    quarantine(store, {"acme": {"e2": "doubtful"}}, now_ms=NOW + 3)
    for name, problem in (("e1", "was removed"), ("e2", "is in quarantine"), ("e3", "is there already")):
        with pytest.raises(UsageError, match=f"'{name}' {problem}"):
            append(store, "new", name, now_ms=NOW + 4)
    child = entry("acme", "e600", parents=tuple(Parent(entry_id=f"e{number}", weight_ppm=5) for number in range(4)))
    append_entries(store, [child], keyring(), now_ms=NOW + 4)
    with pytest.raises(UsageError, match="'e601', which is no earlier entry"):
        append_entries(store, [entry("acme", "x", parents=(Parent(entry_id="e601", weight_ppm=5),))], keyring(),
                       now_ms=NOW + 4)  # fmt: skip
    append(store, "e1", tenant="globex", now_ms=NOW + 5)
    assert verified(store, deep=True).entries == SIZE


def test_runs_of_ids_stay_few(store):
    for number in range(12):
        append(store, f"new{number}")
    runs = open_store(store).manifest.buckets[bucket_of("acme")].ids
    assert [ref.rows for ref in runs] == [600, 8, 4]
    assert verified(store).entries == 612


@pytest.mark.parametrize("change", [lambda run: run[1:], lambda run: np.unique([*run, b"x" * 16])])
def test_a_publisher_whose_list_of_ids_is_not_that_of_its_logs_is_found(store, change):
    newest, bucket = open_store(store).manifest, bucket_of("acme")
    files_of = newest.buckets[bucket]
    ((_, run),) = read_runs(store, bucket, files_of)
    run = change(run)
    forged = replace(files_of, ids=(put_file(store, "ids", bucket, run.tobytes(), len(run)),))
    successor = replace(
        newest, version=2, parent=newest.digest, operation="append", buckets={**newest.buckets, bucket: forged}
    )
    manifest_path(store, 2).write_bytes(sign_manifest(successor, keyring()))
    with pytest.raises(
        VerificationError, match=rf"ids of bucket {bucket}: {len(run)} are listed, which are not the 600"
    ):
        verified(store)


@pytest.mark.parametrize(
    "harm", [lambda data: data[16:] + data[:16], lambda data: data[:16] * 2, lambda data: data[1:]]
)
def test_a_run_that_does_not_rise_is_refused(tmp_path, harm):
    data = harm(np.sort(id_digests("t", "abc")).tobytes())
    ref = put_file(tmp_path, "ids", 7, data, len(data) // 16)
    held = replace(open_bucket(tmp_path), ids=(ref,))
    with pytest.raises(VerificationError, match=r"out of order, or one twice|expected 2 ids of 16"):
        check_ids(tmp_path, 7, held, (), {})


def open_bucket(path):
    make_store(path / "any", tenants=("acme",), size=1)
    return open_store(path / "any").manifest.buckets[bucket_of("acme")]


@given(st.lists(st.sets(st.integers(0, 10_000), min_size=1, max_size=40), max_size=9), st.sets(st.integers(0, 10_000)))
def test_what_was_added_to_the_runs_is_known_and_nothing_else(batches, asked):
    runs, known, widths = [], set(), []
    for batch in batches:
        new = {str(number) for number in batch} - known
        parts = with_ids(runs, id_digests("t", new))
        runs = [(FileRef(sha256="", size=0, rows=len(run)), run) for run in unfiled(runs, parts)]
        known |= new
        widths = [len(run) for _, run in runs]
    wanted = {str(number) for number in asked}
    assert known_ids(runs, "t", wanted) == wanted & known
    assert known_ids(runs, "u", wanted) == set()
    assert sum(widths) == len(known)
    assert all(first >= 2 * second for first, second in pairwise(widths))


def unfiled(runs, parts):
    """The runs after an addition: files that stayed are the first ones."""
    return [runs[place][1] if isinstance(part, FileRef) else part for place, part in enumerate(parts)]


# Stores that a program without tiles has made.


def test_a_store_without_tiles_is_read_as_before(tmp_path):
    make_history(tmp_path / "s")
    shutil.copytree(tmp_path / "s", tmp_path / "old")
    without_tiles(tmp_path / "old")
    new, old = open_store(tmp_path / "s"), open_store(tmp_path / "old")
    for tenant in new.tenants:
        assert replace(new.log(tenant)) == old.log(tenant)
    reports = [verified(tmp_path / name, deep=True) for name in ("s", "old")]
    assert {(item.entries, item.leaves, item.steps, item.leftovers) for item in reports[:1]} == {
        (item.entries, item.leaves, item.steps, item.leftovers) for item in reports[1:]
    }


@pytest.mark.parametrize("size", [4, SIZE])
def test_a_store_without_tiles_goes_on_in_tiles_bucket_by_bucket(tmp_path, size):
    path = tmp_path / "s"
    make_store(path, size=size)
    remove(path, {"acme": {"e1": "harm"}})
    quarantine(path, {"acme": {"e2": "doubtful"}}, now_ms=NOW + 3)
    without_tiles(path)
    pin, before = open_store(path).pin(), {tenant: open_store(path).log(tenant) for tenant in ("acme", "globex")}
    for name, problem in (("e1", "was removed"), ("e2", "is in quarantine"), ("e3", "is there already")):
        with pytest.raises(UsageError, match=f"'{name}' {problem}"):
            append(path, name, now_ms=NOW + 4)
    append(path, "new", now_ms=NOW + 5, pin=pin)
    buckets = open_store(path).manifest.buckets
    assert {number: held.tiled for number, held in buckets.items()} == {
        bucket_of("acme"): True,
        bucket_of("globex"): False,
    }
    after = open_store(path, pin=pin).log("acme")
    assert after.leaf_hashes[:-1] == before["acme"].leaf_hashes
    assert after.entries[:-1] == before["acme"].entries
    assert (after.quarantined, after.tombstones) == (before["acme"].quarantined, before["acme"].tombstones)
    assert open_store(path).log("globex") == before["globex"]
    assert verified(path, deep=True, pin=pin).leftovers == ()
    remove(path, {"globex": {"e0": "harm"}}, now_ms=NOW + 6)
    assert all(held.tiled for held in open_store(path).manifest.buckets.values())
    assert verified(path, deep=True, pin=pin).entries == 2 * size - 2
    vacuum(path, keyring(), now_ms=NOW + 7, retention_ms=0, dry_run=False)
    vacuum(path, keyring(), now_ms=NOW + 8, retention_ms=0, dry_run=False)
    assert (verified(path, deep=True).leftovers, ids(open_store(path), "acme")[-1]) == ((), "new")


@settings(max_examples=12, deadline=None)
@given(st.sampled_from([1, 254, 255, 256, 511, 513]), st.lists(st.integers(1, 260), min_size=1, max_size=3))
def test_no_entry_of_an_old_store_is_lost_whatever_is_appended(size, batches):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        make_store(path, tenants=("acme",), size=size)
        without_tiles(path)
        old, names = open_store(path).log("acme"), [f"e{number}" for number in range(size)]
        for batch in batches:
            new = [f"n{len(names) + number}" for number in range(batch)]
            append(path, *new)
            names += new
        log = open_store(path).log("acme")
        assert ids(open_store(path), "acme") == names
        assert (log.entries[:size], log.leaf_hashes[:size]) == (old.entries, old.leaf_hashes)
        assert (root_of(path).size, verified(path, deep=True).entries) == (len(names), len(names))


def test_a_damaged_old_store_is_not_taken_over(tmp_path):
    make_store(tmp_path / "s")
    without_tiles(tmp_path / "s")
    path = next((tmp_path / "s").glob(f"leaves/{FOLDER}/*"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(VerificationError, match=r"leaves/.*SHA-256 is"):
        append(tmp_path / "s", "new")
    assert open_store(tmp_path / "s").version == 1
