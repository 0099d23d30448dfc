"""A night killed with SIGKILL anywhere: the same command ends it, in the same state."""

from __future__ import annotations

import json
import shutil

import pytest

from memory_audit.jobs.clock import now_ms
from memory_audit.provenance.keys import load_policy
from memory_audit.snapshot.reader import open_snapshot
from memory_audit.snapshot.verify import verify_store
from tests.conformance.interrupted import Interruption, run_command
from tests.unit.jobs.nightly.conftest import WITHIN, record, write_job

NIGHT = ("nightly", "nightly.yaml", "--quiet")
VERIFY = ("verify", "store", "--quiet", "--attestation")
STRIDE = 9
"""Every so many file operations: each step has more of them."""


def state(folder):
    """What counts of a finished night."""
    policy = load_policy(folder / "memaudit-keys/policy.json")
    snapshot = open_snapshot(folder / "store", policy, now_ms=now_ms())
    verify_store(folder / "store", policy, now_ms=now_ms(), deep=True)
    steps = record(folder)["steps"]
    attested = run_command((*VERIFY, steps["purge"]["attestation"]), folder)
    return {
        "nights": sorted(path.name for path in (folder / "nights").iterdir()),
        "version": snapshot.version,
        "live": [entry.entry_id for entry in snapshot.entries("acme")],
        "gone": [stone.entry_id for stone in snapshot.tombstones("acme")],
        "attested": (attested.code, attested.err),
        "removed": steps["purge"]["removed"],
        "verdicts": steps["audit"]["verdicts"],
        "ended": steps["end"],
        "mail": sorted(path.name for path in (folder / "outbox").iterdir() if path.suffix == ".eml"),
        "leases": [path.name for path in (folder / "store/scratch").glob("lease-*")],
        "pin": [json.loads(path.read_bytes())["version"] for path in (folder / "state").rglob("*.json")],
    }


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_night_killed_at_any_file_operation_is_ended_by_the_same_command(desk, moment, tmp_path_factory):
    write_job(desk, WITHIN + "notify: {mail: {folder: outbox, to: a@b.example, sender: c@d.example}}\n")
    room = tmp_path_factory.mktemp("nights")
    begun, undisturbed = (shutil.copytree(desk, room / name) for name in ("begun", "undisturbed"))
    ended = run_command(NIGHT, undisturbed)
    assert (ended.code, ended.err) == (0, "")
    expected = state(undisturbed)
    assert (expected["gone"], expected["attested"]) == (["m3", "m7"], (0, ""))
    killed_after = set()
    for number in range(0 if moment == "before" else STRIDE // 2, ended.operations, STRIDE):
        place = shutil.copytree(begun, room / str(number))
        assert run_command(NIGHT, place, Interruption(moment, number)).code is None
        nights = list((place / "nights").glob("*/night.json")) if (place / "nights").exists() else []
        killed_after.add(len(json.loads(nights[0].read_bytes())["steps"]) if nights else -1)
        again = run_command(NIGHT, place)
        assert (again.code, again.err) == (0, "")
        done = state(place)
        if done["nights"] == ["night-000001", "night-000002"]:  # it was killed after its end
            continue
        assert done == expected
        shutil.rmtree(place)
    assert killed_after >= {0, 1, 2, 3, 4}  # in each of the first five steps
