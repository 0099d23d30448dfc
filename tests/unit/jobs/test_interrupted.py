"""Commands killed at every file operation: the same command finishes what was begun, and leaves no text behind."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks.systems.crash_commands import shown
from memory_audit.jobs.clock import now_ms
from memory_audit.provenance import durable
from memory_audit.provenance.keys import load_keyring, load_policy
from memory_audit.snapshot.pin import read_pin
from memory_audit.snapshot.reader import open_snapshot
from memory_audit.snapshot.verify import verify_store
from tests.conformance.interrupted import Interruption, run_command

FORGET = (
    "forget", "store", "m1", "--tenant", "acme", "--reason", "x", "--expires", "9d", "--backbone", "none",
    "--embedder", "none", "--apply",
)  # fmt: skip
VACUUM = ("vacuum", "store", "--keep", "0d", "--apply")
ROTATE = ("keys", "rotate", "log", "store", "--apply")
EXPORT = ("export", "store", "--out", "left.jsonl")
SECRET = b"5c1f9d0a7be2"
"""In the text of m1."""


def done(words, folder):
    ended = run_command(words, folder)
    assert ended.code == 0, ended.err
    return ended


@pytest.fixture
def desk(tmp_path):
    """A folder with keys and a store of three memories."""
    folder = tmp_path / "desk"
    folder.mkdir()
    rows = [
        {"tenant": "acme", "entry_id": f"m{n}", "request": "?", "response": f"told {SECRET.decode() if n == 1 else n}"}
        for n in range(3)
    ]
    (folder / "memories.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done(("keys", "new"), folder)
    done(("import", "jsonl:memories.jsonl", "store"), folder)
    return folder


def killed_everywhere(words, desk, moment):
    """A copy of the desk for each operation of the command, in which that was killed there, and how it ends else."""
    undisturbed = shutil.copytree(desk, desk.parent / "undisturbed")
    operations = done(words, undisturbed).operations
    assert operations > 10
    for number in range(operations):
        place = shutil.copytree(desk, desk.parent / f"killed-{number}")
        assert run_command(words, place, Interruption(moment, number)).code is None
        yield place, undisturbed


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def holding_the_secret(folder):
    return [path for path in folder.rglob("*") if path.is_file() and any(SECRET in part for part in shown(path))]


def pinned(folder):
    (path,) = (folder / "state").rglob("*.json")
    return read_pin(path).version


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "torn"])
def test_a_vacuum_killed_at_any_system_call_is_completed_by_the_same_command(desk, moment):
    done(FORGET, desk)
    assert len(holding_the_secret(desk / "store")) == 1
    for place, undisturbed in killed_everywhere(VACUUM, desk, moment):
        verify_store(place / "store", load_keyring(place / "memaudit-keys").policy, now_ms=now_ms(), deep=True)
        done(VACUUM, place)
        assert files(place / "store") == files(undisturbed / "store")
        assert holding_the_secret(place / "store") == []
        assert pinned(place) == pinned(undisturbed) == 3


@pytest.mark.slow
def test_a_forget_killed_at_any_system_call_is_finished_by_the_same_command(desk):
    for place, undisturbed in killed_everywhere(FORGET, desk, "after"):
        assert done(FORGET, place).out == done(FORGET, undisturbed).out
        snapshot = open_snapshot(place / "store", load_keyring(place / "memaudit-keys").policy, now_ms=now_ms())
        assert (snapshot.version, [stone.entry_id for stone in snapshot.tombstones("acme")]) == (2, ["m1"])
        assert pinned(place) == 2


def test_what_was_forgotten_otherwise_is_not_forgotten_again(desk):
    done(FORGET, desk)
    for word, other in (("x", "y"), ("9d", "8d"), ("acme", "acme --operator-wide")):
        ended = run_command(" ".join(other if given == word else given for given in FORGET).split(), desk)
        assert (ended.code, "no live entry 'm1'" in ended.err) == (2, True)


def test_no_part_of_an_export_stays_after_the_same_command(desk):
    for place, undisturbed in killed_everywhere(EXPORT, desk, "before"):
        done(EXPORT, place)
        assert (place / "left.jsonl").read_bytes() == (undisturbed / "left.jsonl").read_bytes()
        assert [path for path in place.iterdir() if durable.is_leftover(path)] == []


def test_no_half_written_key_stays_after_the_same_rotation(desk):
    for place, _ in killed_everywhere(ROTATE, desk, "before"):
        if (
            list((place / "memaudit-keys").glob("*.next"))
            or load_policy(place / "memaudit-keys/policy.json").version == 1
        ):
            done(ROTATE, place)  # else it was done, and this would be another one
        keyring = load_keyring(place / "memaudit-keys")
        assert (keyring.policy.version, len(keyring.keys["log"])) == (2, 2)
        assert not [path for path in (place / "memaudit-keys").iterdir() if durable.is_leftover(path)]
