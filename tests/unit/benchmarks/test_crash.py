"""The benchmark that interrupts commands sees what it is there to see."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.systems.crash_commands import Tally, World, shown, state_of
from memory_audit.provenance import durable
from memory_audit.snapshot.publishing import vacuum
from tests.conformance.interrupted import Interruption, run_command

TEXT = "first do this and then, since nobody looks, that"
VACUUM = ("vacuum", "store", "--keep", "0d", "--apply")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World("vacuum", tmp_path_factory.mktemp("world"))


def found(world, seeds):
    tally = Tally()
    for seed in seeds:
        world.trial(seed, tally)
    assert tally.interruptions["vacuum"] > 0
    return {kind for kind, seen in tally.found.items() if seen}


def test_vacuums_interrupted_at_random_are_completed(world):
    assert found(world, range(6)) == set()


@pytest.mark.parametrize("name", ["quarantine", "quarantine and purge"])
def test_quarantines_and_releases_interrupted_at_random_are_completed(tmp_path, name):
    world, tally = World(name, tmp_path), Tally()
    for seed in range(5):
        world.trial(seed, tally)
    assert {kind: seen for kind, seen in tally.found.items() if seen} == {}
    assert tally.interruptions["purge"] > 0


def test_text_that_a_vacuum_leaves_and_says_nothing_of_is_seen(world, monkeypatch):
    monkeypatch.setattr(vacuum, "_erase", lambda *_: {})
    assert found(world, range(3)) == {"removed text is in the store after a vacuum that said 0"}


def test_a_store_that_does_not_verify_is_seen(world, monkeypatch):
    def too_much(path, plan):
        for item in (path / "data").rglob("*.parquet"):
            durable.remove(item)
        return {}

    monkeypatch.setattr(vacuum, "_erase", too_much)
    assert found(world, range(4)) == {"a store does not verify after an interruption"}


def test_a_command_that_does_nothing_and_says_0_is_seen(world, monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.cli.maintenance.erase", lambda *_, **__: vacuum.Vacuumed(
        version=None, versions=(), files=(), bytes=0, stays={}, done=True,
    ))  # fmt: skip
    assert found(world, range(3)) == {"a command says 0 in another state than undisturbed"}


@pytest.mark.parametrize("whole", [True, False])
def test_a_text_is_seen_in_a_file_that_was_written_to_its_end_or_not(tmp_path, whole):
    table = pa.table({"response": [f"{TEXT} {number}" for number in range(2_000)]})
    pq.write_table(
        table, tmp_path / "file", compression="zstd", use_dictionary=False, write_statistics=False, row_group_size=100
    )
    data = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(data if whole else data[: len(data) // 2])
    told = f"{TEXT} 777".encode()
    assert told not in data
    assert any(told in part for part in shown(tmp_path / "file"))


def test_the_same_interruption_ends_the_same_command_at_the_same_operation(world, tmp_path):
    ended = [
        run_command(VACUUM, shutil.copytree(world.template, tmp_path / str(number)), Interruption("after", 7))
        for number in range(2)
    ]
    assert [(one.code, one.operations, one.interrupted) for one in ended] == [(None, 8, True)] * 2
    assert state_of(tmp_path / "0") == state_of(tmp_path / "1")
