"""Locks of what a run removes; most of it is tested from the command line (`test_cli_forget_guard`)."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from audit.config import AuditConfig
from audit.errors import ModelError
from jobs import hazard_locks
from jobs.hazard_locks import write_locks
from jobs.progress import Reporter


class Dead:
    """An executor whose embedder is gone."""

    def embed(self, texts):
        raise ModelError("the embedder died")


def test_a_model_that_dies_while_locks_are_read_says_that_the_replays_are_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(hazard_locks, "removals_of", lambda _: {"acme": {"m1": "harm"}})
    reporter = Reporter(Console(file=io.StringIO()))
    with pytest.raises(ModelError, match=r"^the embedder died; finished replays are kept: start the same command"):
        write_locks(None, None, AuditConfig(), Dead(), tmp_path, reporter)
