"""What an earlier run gives to another one, and what is not taken from it."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from memory_audit.errors import UsageError, VerificationError
from memory_audit.jobs.run.embeddings import embed_texts, vectors_of
from memory_audit.jobs.run.reuse import EarlierRun
from memory_audit.jobs.run.run_folder import RunFolder
from memory_audit.jobs.run.shards import read_shard, text_key
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.fakes import FakeEmbedder
from memory_audit.request import RUN_FORMAT


@pytest.fixture
def last_night(tmp_path):
    run = RunFolder(tmp_path / "run", {"format": RUN_FORMAT})
    run.record_models({"nli": "n@1", "embedder": "e@1"})
    run.add_weights({"a": 0.25, "b": 0.5})
    run.add_vectors(pa.array(["t", "u"]), np.array([[1, 1], [0, 0]], np.float32))
    return run.path


class Told(Reporter):
    """Keeps what it said."""

    def __init__(self) -> None:
        self.printed = io.StringIO()
        super().__init__(Console(file=self.printed, width=400))


def keys_of(shards) -> list[str]:
    return [key for shard in shards for key in shard.keys.to_pylist()]


def test_what_is_asked_for_is_given_and_counted_and_nothing_is_written(last_night):
    before = {path: path.stat().st_mtime_ns for path in last_night.rglob("*")}
    earlier = EarlierRun(last_night)
    assert earlier.weights({"b", "c"}, "n@1") == {"b": 0.5}
    assert keys_of(earlier.vectors("e@1", 2)) == ["t", "u"]
    assert earlier.taken["comparisons"] == 1
    assert {path: path.stat().st_mtime_ns for path in last_night.rglob("*")} == before


def test_what_is_asked_for_in_several_rounds_is_read_once(last_night, monkeypatch):
    earlier, read = EarlierRun(last_night), []
    monkeypatch.setattr("memory_audit.jobs.run.reuse.read_shard", lambda path: read.append(path) or read_shard(path))
    assert earlier.weights({"a"}, "n@1") == {"a": 0.25}
    assert earlier.vectors("e@1", 2) is earlier.vectors("e@1", 2)
    first = len(read)
    assert earlier.weights({"b"}, "n@1") == {"b": 0.5}
    assert len(read) == first > 0


def test_what_another_model_said_is_not_given_and_that_is_said(last_night):
    told = Told()
    with told:
        assert not EarlierRun(last_night).weights({"b"}, "n@2")
        assert not EarlierRun(last_night).vectors("e@2", 2)
    assert "nothing is taken over of the nli of" in told.printed.getvalue()
    assert "it is n@1, not n@2" in told.printed.getvalue()


def test_embeddings_of_another_size_are_not_given(last_night):
    assert not EarlierRun(last_night).vectors("e@1", 3)


def test_a_damaged_shard_costs_what_it_held_and_is_said(last_night):
    (last_night / "entailment" / "0.parquet").write_bytes(b"no parquet")
    told = Told()
    with told:
        assert EarlierRun(last_night).weights({"a", "b"}, "n@1") == {"a": 0.25, "b": 0.5}
    assert "1 file not read: damaged, or not written with these keys" in told.printed.getvalue()


def taken_over(folder, last_night, texts):
    """Embed texts in a run beside the last one; return the run and how many texts a model was asked for."""
    embedder = Embedder()
    run = RunFolder(folder, {"format": RUN_FORMAT, "night": "second"}, earlier=EarlierRun(last_night))
    embed_texts(texts, SimpleNamespace(embedder=embedder), run)
    return run, embedder.asked


class Embedder(FakeEmbedder):
    """Counts texts."""

    asked = 0

    def embed(self, texts):
        self.asked += len(texts)
        return super().embed(texts)


@pytest.fixture
def embedded(tmp_path):
    run = RunFolder(tmp_path / "first", {"format": RUN_FORMAT})
    embed_texts(TEXTS, SimpleNamespace(embedder=FakeEmbedder()), run)
    return run


TEXTS = [f"memory {number} of refunds" for number in range(600)]


@pytest.mark.parametrize("links", [True, False])
def test_a_shard_that_is_wanted_whole_is_linked_or_copied_and_is_the_new_run_s_own(
    tmp_path, embedded, monkeypatch, links
):
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EXDEV, "another device")))
    run, asked = taken_over(tmp_path / "second", embedded.path, [*TEXTS, "a new one"])
    assert asked == 1
    theirs, ours = ({path.stat().st_ino for path in (each.path / "embedding").iterdir()} for each in (embedded, run))
    assert len(theirs & ours) == (len(theirs) if links else 0)
    shutil.rmtree(embedded.path)
    again = RunFolder(run.path, {"format": RUN_FORMAT, "night": "second"})
    assert vectors_of(TEXTS, again).tolist() == FakeEmbedder().embed(TEXTS).tolist()


def test_what_is_no_longer_wanted_is_not_carried_on(tmp_path, embedded):
    run, asked = taken_over(tmp_path / "second", embedded.path, TEXTS[1:])
    assert asked == 0
    assert run.vectors.missing([text_key(text) for text in TEXTS]).tolist() == [0]
    assert vectors_of(TEXTS[1:], run).tolist() == FakeEmbedder().embed(TEXTS[1:]).tolist()


def test_what_is_not_held_in_memory_is_read_again_and_looked_at_again(tmp_path, embedded, monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.run.vectors.HELD_BYTES", 0)
    monkeypatch.setattr("memory_audit.jobs.run.reuse.HELD_BYTES", 0)
    run, asked = taken_over(tmp_path / "second", embedded.path, TEXTS[:-1])
    assert asked == 0
    assert vectors_of(TEXTS[:-1], run).tolist() == FakeEmbedder().embed(TEXTS[:-1]).tolist()
    for shard in (run.path / "embedding").iterdir():
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.unlink()
        shard.write_bytes(data)
    with pytest.raises(VerificationError, match="was changed"):
        vectors_of(TEXTS[:-1], run)


@pytest.mark.parametrize(
    ("marker", "why"), [(None, "no run there"), ({}, "of the format 'none'"), ({"format": "memaudit run v9"}, "v9")]
)
def test_what_is_no_run_of_this_format_is_refused(tmp_path, marker, why):
    if marker is not None:
        (tmp_path / "run.json").write_text(json.dumps(marker))
    with pytest.raises(UsageError, match=why):
        EarlierRun(tmp_path)
