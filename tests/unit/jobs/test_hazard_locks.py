"""Locks of what a run removes; most of it is tested from the command line (`test_cli_forget_guard`)."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from audit.config import AuditConfig
from audit.errors import IncompleteError, ModelError
from audit.result import AuditResult, EntryScore, TenantResult
from jobs.hazard_locks import read_locks, write_locks
from jobs.progress import Reporter


def result(hazards: str, *, removed: bool) -> AuditResult:
    score = EntryScore(
        entry_id="m1", cmis=None, cas=None, cmis_normalised=0.0, cas_normalised=0.0, ds=0.0, rank=1, cas_flagged=False,
        removed=removed, reason="harm" if removed else "",
    )  # fmt: skip
    return AuditResult(
        run_id="r", store="s", snapshot_version=1, snapshot_digest="d", started_ms=0, seconds=0.0,
        config={"hazards": hazards}, models={}, counters={},
        tenants=(TenantResult(tenant="acme", entries=1, events=(), probes=(), scores=(score,), edges=()),),
    )  # fmt: skip


class Dead:
    """An executor whose embedder is gone."""

    def embed(self, texts):
        raise ModelError("the embedder died")


def test_a_model_that_dies_while_locks_are_read_says_that_the_replays_are_kept(tmp_path):
    reporter = Reporter(Console(file=io.StringIO()))
    with pytest.raises(ModelError, match=r"^the embedder died; finished replays are kept: start the same command"):
        write_locks(None, result("margins", removed=True), AuditConfig(), Dead(), tmp_path, reporter)


def test_a_run_that_stopped_before_its_locks_says_which_command_goes_on(tmp_path):
    with pytest.raises(IncompleteError, match=r"were not read .* start the same audit again") as failure:
        read_locks(tmp_path, result("margins", removed=True))
    assert str(failure.value).endswith(f"memaudit audit … --out {tmp_path}, and then purge")


@pytest.mark.parametrize(("hazards", "removed"), [("off", True), ("margins", False), ("off", False)])
def test_a_run_without_hazards_or_removals_needs_no_locks(tmp_path, hazards, removed):
    assert read_locks(tmp_path, result(hazards, removed=removed)) == ({}, {})
