"""The process dies at every file operation of an import, an append, a purge, a quarantine, a release, a vacuum, a pin.

The store then opens at the old or the new state, a deep verification finds nothing wrong, nothing acknowledged is lost,
and the next run goes through.
"""

import shutil

from memory_audit.snapshot.pin import read_pin, write_pin
from memory_audit.snapshot.publishing.publish import append_entries, create_store
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
    open_store,
    put_back,
    quarantine,
    remove,
)

LATER = NOW + 10
NARROW, WIDE = ("acme",), ("acme", "globex", "initech")
"""Tenants that an operation touches: more tenants, more buckets, more files, more moments to die at."""


def append(store, tenants):
    append_entries(store, [entry(tenant, "new") for tenant in tenants], keyring(), now_ms=LATER)


def purge(store, tenants):
    remove(store, {tenant: {"e0": "harm"} for tenant in tenants}, now_ms=LATER)


def hold(store, tenants):
    quarantine(store, {tenant: {"e0": "doubtful"} for tenant in tenants}, now_ms=LATER)


def let_go(store, tenants):
    put_back(store, {tenant: ["e0"] for tenant in tenants}, now_ms=LATER)


def erase(store, _tenants):
    vacuum(store, keyring(), now_ms=LATER, retention_ms=0, dry_run=False)


def create(store, tenants):
    create_store(store, [entry(tenant, "e0") for tenant in tenants], keyring(), now_ms=LATER, store_id="ab" * 16)


def repin(store, _tenants):
    write_pin(store.parent / "pin.json", open_store(store).pin())


OPERATIONS = {
    "append": append, "purge": purge, "quarantine": hold, "release": let_go, "vacuum": erase, "import": create,
    "pin": repin,
}  # fmt: skip


def crash_everywhere(name, moment, tmp_path, monkeypatch, tenants=NARROW):
    """Kill `name` at each operation in turn, "before" or "after" it took effect. Returns how often it was killed."""
    operation = OPERATIONS[name]
    template = tmp_path / "template"
    if name == "import":
        template.mkdir()
    else:
        make_history(template / "s")
    if name == "release":
        hold(template / "s", tenants)
    kills = 0
    while True:
        folder = shutil.copytree(template, tmp_path / f"kill-{kills}")
        fake = broken_os(monkeypatch, kills, after=moment == "after")
        try:
            operation(folder / "s", tenants)
            acknowledged = True
        except Killed:
            acknowledged = False
        monkeypatch.undo()
        check_survivor(name, folder / "s", tenants, acknowledged=acknowledged)
        shutil.rmtree(folder)
        if fake.calls <= kills:
            assert acknowledged
            assert kills > 3
            return kills
        kills += 1


def check_survivor(name, store, tenants, *, acknowledged):
    """The state after the crash, and after the next run."""
    before = {"import": 0, "release": 4}.get(name, 3)
    after = before if name == "pin" else before + 1
    present = list((store / "manifests").glob("[0-9]*.json")) if store.exists() else []
    newest = max((int(path.stem) for path in present), default=0)
    assert newest in ({after} if acknowledged else {before, after})
    if newest:
        verify_store(store, keyring().policy, now_ms=LATER, deep=True)
    if name == "pin":
        assert read_pin(store.parent / "pin.json") in (None, open_store(store).pin())
    elif newest == before:  # nothing stands in the way of doing it again
        OPERATIONS[name](store, tenants)
        assert verify_store(store, keyring().policy, now_ms=LATER, deep=True).version == after
    if name == "append":
        assert [ids(open_store(store), tenant)[-1] for tenant in tenants] == ["new"] * len(tenants)
