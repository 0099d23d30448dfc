"""Small stores for tests, and a file system that fails where a test says so."""

import os
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from memory_audit.entry import Entry, Parent
from memory_audit.provenance import durable
from memory_audit.provenance.keys import generate_keys
from memory_audit.provenance.tlog import merkle
from memory_audit.snapshot.layout import manifest_path, put_file, versions
from memory_audit.snapshot.manifest import sign_manifest
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from memory_audit.snapshot.publishing.purify import purify
from memory_audit.snapshot.publishing.release import release
from memory_audit.snapshot.reader import open_snapshot

NOW = 1_800_000_000_000
STORE_ID = "ab" * 16


@cache
def keyring():
    """One set of keys for all tests: drawing keys proves nothing about stores."""
    return generate_keys()


def entry(tenant, entry_id, **changes):  # noqa: ANN003
    fields = {
        "tenant": tenant, "entry_id": entry_id, "principal": "alice", "source": "user",
        "request": f"How do I reset {entry_id}?", "response": f"Open the menu and choose {entry_id}.",
        "created_at_ms": NOW - 1_000, "metadata": {"channel": "chat"},
    }  # fmt: skip
    return Entry(**(fields | changes))


def make_store(path, tenants=("acme", "globex"), size=4):
    entries = [entry(tenant, f"e{number}") for tenant in tenants for number in range(size)]
    return create_store(path, entries, keyring(), now_ms=NOW, store_id=STORE_ID)


def make_history(path):
    """Three versions: an import, an append with a derived entry, a purification of two entries of one tenant."""
    folders, files, purified = _history()
    for folder in folders:
        (path / folder).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (path / name).write_bytes(data)
    return purified


@cache
def _history():
    """Make the three versions once: they have the same bytes every time."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "s"
        make_store(path)
        derived = entry("acme", "e9", source="agent", parents=(Parent(entry_id="e1", weight_ppm=900_000),))
        append_entries(path, [derived, entry("initech", "e0")], keyring(), now_ms=NOW + 1)
        purified = remove(path, {"acme": {"e1": "causes harm", "e9": "derived from e1"}})
        inside = sorted(path.rglob("*"))
        folders = [each.relative_to(path) for each in inside if each.is_dir()]
        return folders, {each.relative_to(path): each.read_bytes() for each in inside if each.is_file()}, purified


def without_tiles(path):
    """Write all versions of a store as programs did that knew no tiles: in their layout, and in their formats."""
    parent, manifests = None, []
    for version in versions(path):
        snapshot = open_store(path, version=version, check_expiry=False)
        buckets = {}
        for bucket, files in snapshot.manifest.buckets.items():
            view = snapshot.bucket(bucket)
            packed = b"".join(view.tree(tenant).leaf_hashes() for tenant in sorted(view.refs))
            leaves = put_file(path, "leaves", bucket, packed, len(packed) // merkle.HASH_BYTES)
            buckets[bucket] = replace(files, hashes=leaves, ids=None)
        manifests.append(replace(snapshot.manifest, buckets=buckets, parent=parent))
        parent = manifests[-1].digest
    for manifest in manifests:
        manifest_path(path, manifest.version).write_bytes(sign_manifest(manifest, keyring()))
    for folder in ("tiles", "edges", "ids"):
        shutil.rmtree(path / folder, ignore_errors=True)


def remove(path, removals, now_ms=NOW + 2, *, dry_run=False, operation="purify"):
    return purify(
        path, open_store(path), removals, keyring(), run_id="run-1", now_ms=now_ms, config={"alpha": "0.6"},
        models={"nli": "fake"}, operation=operation, dry_run=dry_run,
    )  # fmt: skip


def quarantine(path, removals, now_ms=NOW + 2, **options):  # noqa: ANN003
    return remove(path, removals, now_ms, operation="quarantine", **options)


def put_back(path, entries, now_ms=NOW + 3, **options):  # noqa: ANN003
    return release(path, open_store(path), entries, keyring(), reason="a mistake", now_ms=now_ms, **options)


def open_store(path, **options):  # noqa: ANN003
    return open_snapshot(path, keyring().policy, **({"now_ms": NOW + 10} | options))


def ids(snapshot, tenant):
    return [item.entry_id for item in snapshot.entries(tenant)]


class Killed(BaseException):
    """The process died here: no handler runs to completion, and nothing touches the disk any more."""


class BrokenOs(SimpleNamespace):
    """`os` whose n-th changing call does not happen: it raises an error (a full disk) or kills the process."""

    CHANGING = ("open", "write", "fsync", "link", "replace", "mkdir", "unlink")

    def __init__(self, fail_at, error=None, *, after=False) -> None:
        super().__init__()
        self.calls = 0
        self._fail_at = fail_at
        self._error = error
        self._after = after
        self._dead = False

    def __getattr__(self, name) -> object:
        real = getattr(os, name)
        if name == "close":  # descriptors are the kernel's to close: a dead process leaks none
            return real
        if name not in self.CHANGING:
            return real

        def call(*arguments, **options):  # noqa: ANN002, ANN003
            if self._dead:
                raise Killed
            self.calls += 1
            if self.calls - 1 == self._fail_at:
                if self._error is not None:
                    raise self._error
                self._dead = True
                if name == "write":  # half of it reached the disk
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                elif self._after:
                    real(*arguments, **options)
                raise Killed
            return real(*arguments, **options)

        return call


def broken_os(monkeypatch, fail_at, error=None, *, after=False):
    fake = BrokenOs(fail_at, error, after=after)
    monkeypatch.setattr(durable, "os", fake)
    return fake
