"""Offboarding: nothing of a tenant stays in the store, a receipt does, and others are as before."""

from __future__ import annotations

import json
import shutil

import pytest

from memory_audit.errors import HeldError, UsageError
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.store.lease import leased
from memory_audit.provenance.keys import load_policy
from memory_audit.snapshot.reader import open_snapshot
from memory_audit.snapshot.verify import verify_store
from tests.conformance.interrupted import Interruption, run_command
from tests.unit.jobs.test_cli import bytes_of, memories, one_line, write_lines

OFFBOARD = ("offboard", "store", "acme", "--receipt", "receipt.json", "--reason", "contract ended")
VERIFY = ("verify", "store", "--deep", "--quiet", "--attestation", "receipt.json")


@pytest.fixture
def desk(folder, set_up):
    """A store of two tenants."""
    others = [{**memory, "tenant": "globex"} for memory in memories(3)]
    write_lines(folder / "memories.jsonl", [*memories(4), *others])
    set_up(("keys", "new"), ("import", "jsonl:memories.jsonl", "store"))
    return folder


def shown(desk):
    policy = load_policy(desk / "memaudit-keys/policy.json")
    verify_store(desk / "store", policy, now_ms=now_ms(), deep=True)
    snapshot = open_snapshot(desk / "store", policy, now_ms=now_ms())
    return {tenant: [entry.entry_id for entry in snapshot.entries(tenant)] for tenant in snapshot.tenants}


def test_a_dry_run_changes_nothing(desk, run):
    before = bytes_of(desk / "store")
    code, out, _ = run(*OFFBOARD)
    assert (code, "would erase 4 memories of acme" in out) == (0, True)
    assert (bytes_of(desk / "store"), (desk / "receipt.json").exists()) == (before, False)


def test_all_of_a_tenant_goes_and_the_receipt_proves_it(desk, run):
    code, out, _ = run(*OFFBOARD, "--apply", "--json")
    assert (code, json.loads(out)["removed"]) == (0, ["m0", "m1", "m2", "m3"])
    assert shown(desk) == {"acme": [], "globex": ["m0", "m1", "m2"]}
    assert run(*VERIFY)[0] == 0
    assert b"POISON" not in b"".join(bytes_of(desk / "store").values())
    assert b"POISON" not in (desk / "receipt.json").read_bytes()
    before = bytes_of(desk / "store")
    assert run(*OFFBOARD, "--apply")[0] == 0  # again: nothing is left to do
    assert bytes_of(desk / "store") == before


@pytest.mark.parametrize("tenant", ["nobody", "\x1b[2J"])
def test_an_unknown_tenant_is_one_line(desk, run, tenant):
    code, _, err = run("offboard", "store", tenant, "--receipt", "receipt.json", "--apply")
    assert (code, "has no tenant" in one_line(err)) == (UsageError.exit_code, True)
    assert "\x1b[2J" not in err
    assert not (desk / "receipt.json").exists()


def test_what_a_receipt_must_not_replace_stays(desk, run):
    key = (desk / "memaudit-keys/policy.json").read_bytes()
    code, _, err = run("offboard", "store", "acme", "--receipt", "memaudit-keys/policy.json", "--apply")
    assert (code, "choose another" in one_line(err)) == (UsageError.exit_code, True)
    assert (desk / "memaudit-keys/policy.json").read_bytes() == key
    assert len(shown(desk)["acme"]) == 4


def test_it_waits_for_nobody_unless_it_is_told(desk, run):
    with leased(desk / "store", "nightly"):
        code, _, err = run(*OFFBOARD, "--apply")
    assert (code, "is held by another command (memaudit nightly" in one_line(err)) == (HeldError.exit_code, True)


@pytest.mark.slow
def test_one_that_was_killed_anywhere_is_finished_by_the_same_command(desk, tmp_path_factory):
    room = tmp_path_factory.mktemp("stores")
    begun, undisturbed = (shutil.copytree(desk, room / name) for name in ("begun", "undisturbed"))
    operations = run_command((*OFFBOARD, "--apply"), undisturbed).operations
    for number in range(0, operations, 3):
        place = shutil.copytree(begun, room / str(number))
        assert run_command((*OFFBOARD, "--apply"), place, Interruption("before", number)).code is None
        again = run_command((*OFFBOARD, "--apply"), place)
        assert (again.code, again.err) == (0, "")
        assert shown(place) == {"acme": [], "globex": ["m0", "m1", "m2"]}
        assert run_command(VERIFY, place).code == 0
        assert b"POISON" not in b"".join(bytes_of(place / "store").values())
        shutil.rmtree(place)
