"""What an earlier run gives to another one, and what is not taken from it."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console

from memory_audit.errors import UsageError
from memory_audit.jobs.progress import Reporter
from memory_audit.jobs.run.reuse import EarlierRun
from memory_audit.jobs.run.run_folder import RunFolder
from memory_audit.jobs.run.shards import read_shard
from memory_audit.request import RUN_FORMAT


@pytest.fixture
def last_night(tmp_path):
    run = RunFolder(tmp_path / "run", {"format": RUN_FORMAT})
    run.record_models({"nli": "n@1", "embedder": "e@1"})
    run.add_weights({"a": 0.25, "b": 0.5})
    run.add_vectors({"t": np.ones(2, np.float32), "u": np.zeros(2, np.float32)})
    return run.path


class Told(Reporter):
    """Keeps what it said."""

    def __init__(self) -> None:
        self.printed = io.StringIO()
        super().__init__(Console(file=self.printed, width=400))


def merged(parts) -> dict:
    return {key: value for part in parts for key, value in part.items()}


def test_what_is_asked_for_is_given_in_pieces_and_said_and_nothing_is_written(last_night):
    before = {path: path.stat().st_mtime_ns for path in last_night.rglob("*")}
    earlier, told = EarlierRun(last_night), Told()
    with told:
        assert merged(earlier.weights({"b", "c"}, "n@1")) == {"b": 0.5}
        assert merged(earlier.vectors(["t", "x", "y"], "e@1", 2)).keys() == {"t"}
    said = told.printed.getvalue()
    assert f"1 of 2 comparisons are those of {last_night}" in said
    assert f"1 of 3 embeddings are those of {last_night}" in said
    assert {path: path.stat().st_mtime_ns for path in last_night.rglob("*")} == before


def test_what_is_asked_for_in_several_rounds_is_read_once(last_night, monkeypatch):
    earlier, read = EarlierRun(last_night), []
    monkeypatch.setattr("memory_audit.jobs.run.reuse.read_shard", lambda path: read.append(path) or read_shard(path))
    assert merged(earlier.weights({"a"}, "n@1")) == {"a": 0.25}
    first = len(read)
    assert merged(earlier.weights({"b"}, "n@1")) == {"b": 0.5}
    assert len(read) == first > 0


def test_what_another_model_said_is_not_given_and_that_is_said(last_night):
    told = Told()
    with told:
        assert not merged(EarlierRun(last_night).weights({"b"}, "n@2"))
        assert not merged(EarlierRun(last_night).vectors({"t"}, "e@2", 2))
    assert "nothing is taken over of the nli of" in told.printed.getvalue()
    assert "it is n@1, not n@2" in told.printed.getvalue()


def test_embeddings_of_another_size_are_not_given(last_night):
    assert not merged(EarlierRun(last_night).vectors({"t"}, "e@1", 3))


def test_a_damaged_shard_costs_what_it_held_and_is_said(last_night):
    (last_night / "entailment" / "0.parquet").write_bytes(b"no parquet")
    told = Told()
    with told:
        assert merged(EarlierRun(last_night).weights({"a", "b"}, "n@1")) == {"a": 0.25, "b": 0.5}
    assert "1 file not read: damaged, or not written with these keys" in told.printed.getvalue()


@pytest.mark.parametrize(
    ("marker", "why"), [(None, "no run there"), ({}, "of the format 'none'"), ({"format": "memaudit run v9"}, "v9")]
)
def test_what_is_no_run_of_this_format_is_refused(tmp_path, marker, why):
    if marker is not None:
        (tmp_path / "run.json").write_text(json.dumps(marker))
    with pytest.raises(UsageError, match=why):
        EarlierRun(tmp_path)
