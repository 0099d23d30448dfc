"""Locks of what a run removes; most of it is tested from the command line (`test_cli_forget_guard`)."""

from __future__ import annotations

from contextlib import closing

import pytest

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.config import AuditConfig
from memory_audit.errors import IncompleteError, ModelError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.run.block_records import read_block_records, write_block_records
from memory_audit.jobs.run.run_audit import audit_all
from memory_audit.models.fakes import FakeBehaviourReader, FakeGenerator
from memory_audit.report.tables import summary_of
from memory_audit.result import AuditResult, TenantResult
from tests.audit_world import CONFIG, FAKES, NOW_MS, harmful_events, make_snapshot, request_of


def result(hazards: str, *, removed: bool) -> AuditResult:
    tenant = TenantResult(
        tenant="acme", entries=1, events=(), probes=(), scores=(), edges=(),
        removal=RemovalSet(attributed={"m1": "harm"} if removed else {}),
    )  # fmt: skip
    return AuditResult(
        run_id="r", store="s", snapshot_version=1, snapshot_digest="d", started_ms=0, seconds=0.0,
        config={"hazards": hazards}, models={}, counters={},
        tenants=(summary_of(tenant, "findings/00"),),
    )  # fmt: skip


class Dead:
    """An executor whose embedder is gone."""

    @property
    def embedder(self):
        raise ModelError("the embedder died")


def test_a_model_that_dies_while_locks_are_read_says_that_the_replays_are_kept(tmp_path):
    with pytest.raises(ModelError, match=r"^the embedder died; finished replays are kept: start the same command"):
        write_block_records(None, result("margins", removed=True), AuditConfig(), Dead(), tmp_path)


def test_a_run_that_stopped_before_its_locks_says_which_command_goes_on(tmp_path):
    with pytest.raises(IncompleteError, match=r"were not read .* start the same audit again") as failure:
        read_block_records(tmp_path, result("margins", removed=True), None)
    assert str(failure.value).endswith(f"memaudit audit … --out {tmp_path}, and then purge")


def locked(snapshot, folder, reader, monkeypatch):
    """Audit and keep the locks, on a machine with this reader of behaviours; returns the locks and what was asked."""
    monkeypatch.setattr("memory_audit.jobs.run.block_records.load_behaviour_reader", lambda _: reader)
    generator, request = FakeGenerator(), request_of(snapshot, harmful_events())
    with closing(LocalExecutor(FAKES, generator)) as executor:
        found, _ = audit_all(request, executor, folder, now_ms=NOW_MS)
        write_block_records(snapshot, found, CONFIG, executor, folder)
    return (folder / "hazards.json").read_bytes(), generator.requests


def test_locks_without_acts_are_read_again_once_a_reader_is_installed(tmp_path, monkeypatch):
    snapshot = make_snapshot(tmp_path / "memory")
    without, _ = locked(snapshot, tmp_path / "run", None, monkeypatch)
    assert locked(snapshot, tmp_path / "run", None, monkeypatch) == (without, 0)  # nothing changed, nothing is asked
    whole, _ = locked(snapshot, tmp_path / "fresh", FakeBehaviourReader(), monkeypatch)
    assert locked(snapshot, tmp_path / "run", FakeBehaviourReader(), monkeypatch)[0] == whole != without
    assert locked(snapshot, tmp_path / "run", FakeBehaviourReader(), monkeypatch) == (whole, 0)
    assert locked(snapshot, tmp_path / "run", None, monkeypatch) == (whole, 0)  # what is there is not given up


def test_locks_with_the_acts_of_another_reader_are_read_again(tmp_path, monkeypatch):
    snapshot = make_snapshot(tmp_path / "memory")
    newer = FakeBehaviourReader(("skip", "upload"))
    before, _ = locked(snapshot, tmp_path / "run", FakeBehaviourReader(), monkeypatch)
    fresh, _ = locked(snapshot, tmp_path / "fresh", newer, monkeypatch)
    assert locked(snapshot, tmp_path / "run", newer, monkeypatch)[0] == fresh != before
    assert locked(snapshot, tmp_path / "run", newer, monkeypatch) == (fresh, 0)


@pytest.mark.parametrize(("hazards", "removed"), [("off", True), ("read", False), ("off", False)])
def test_a_run_without_hazards_or_removals_needs_no_locks(tmp_path, hazards, removed):
    assert read_block_records(tmp_path, result(hazards, removed=removed), None) == ({}, {})
