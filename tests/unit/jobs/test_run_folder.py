"""A run on disk: what is written is found again, and nothing else is taken for a run."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit import parquet
from memory_audit.attribution.replays.ablation import Outcome
from memory_audit.errors import IncompleteError, UsageError, VerificationError
from memory_audit.generation import TokenUsage
from memory_audit.jobs.run.run_files import parse_marker
from memory_audit.jobs.run.run_folder import SHARD_ROWS, SHARD_SECONDS, RunFolder, _is_foreign
from memory_audit.jobs.run.shards import (
    VECTORS_SCHEMA,
    WEIGHTS_SCHEMA,
    pair_key,
    parse_vectors,
    parse_weights,
    text_key,
)
from memory_audit.provenance import durable

IDENTITY = {"configuration": "c", "snapshot": "s"}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
OUTCOMES = st.builds(
    Outcome,
    pair_id=st.text(alphabet="0123456789abcdef", min_size=1, max_size=3),
    event_id=TEXT,
    context=st.lists(TEXT, max_size=3).map(tuple),
    harm=st.none() | st.floats(0, 1),
    log_odds_nats=st.none() | st.floats(-30, 30),
    output=TEXT,
    answers=st.lists(TEXT, max_size=2).map(tuple),
    prompt_hash=TEXT,
    memoised=st.booleans(),
    usage=st.builds(
        TokenUsage,
        prompt_tokens=st.integers(0, 2**40),
        cached_tokens=st.integers(0, 9),
        completion_tokens=st.integers(0, 9),
    ),
    left_out=st.lists(TEXT, max_size=2).map(tuple),
    fits=st.booleans(),
)


def outcome(number):
    return Outcome(
        pair_id=f"{number:032x}", event_id="e", context=("m1",), harm=1.0, log_odds_nats=None, output="y",
        answers=("y",), prompt_hash="h", memoised=False, usage=TokenUsage(),
    )  # fmt: skip


@given(st.lists(OUTCOMES, max_size=6))
def test_outcomes_come_back_as_they_were_kept_and_the_last_of_a_name_counts(tmp_path_factory, outcomes):
    path = tmp_path_factory.mktemp("run") / "run"
    run = RunFolder(path, IDENTITY)
    for item in outcomes:
        run.add(item)
    run.flush()
    assert dict(RunFolder(path, IDENTITY).outcomes) == {item.pair_id: item for item in outcomes}


def test_outcomes_of_one_name_and_several_prompts_are_all_kept(tmp_path):
    run, (before, after) = (
        RunFolder(tmp_path / "run", IDENTITY),
        (replace(outcome(1), prompt_hash=prompt_hash) for prompt_hash in ("before", "after")),
    )
    assert run.outcomes_of(before.pair_id) == ()
    for item in (before, before, after, outcome(2)):
        run.add(item)
    run.flush()
    for found in (run, RunFolder(tmp_path / "run", IDENTITY)):
        assert found.outcomes_of(before.pair_id) == (after, before)
        assert found.outcomes_of(outcome(2).pair_id) == (outcome(2),)
        assert len(found.outcomes) == 2


def test_weights_and_models_come_back(tmp_path):
    run = RunFolder(tmp_path / "run", IDENTITY)
    run.record_models({"nli": "n@1"})
    run.record_models({"backbone": "b@1", "nli": "n@1"})
    run.add_weights({pair_key("a", "b"): 0.25})
    run.add_vectors(pa.array([text_key("a")]), np.array([[0.6, 0.8]], np.float32))
    again = RunFolder(tmp_path / "run", IDENTITY)
    assert again.weights == {pair_key("b", "a"): 0.25}
    assert again.vectors.of([text_key("a")]).tolist() == np.float32([[0.6, 0.8]]).tolist()
    assert again.models == {"backbone": "b@1", "nli": "n@1"}
    with pytest.raises(UsageError, match="holds answers of the nli n@1, not of n@2; choose another --out"):
        again.record_models({"nli": "n@2"})


@given(TEXT, TEXT, TEXT, TEXT)
def test_pairs_are_named_by_their_texts_in_either_order(a, b, c, d):
    same = {a, b} == {c, d} and (a == b) == (c == d)
    assert (pair_key(a, b) == pair_key(c, d)) == same


def test_a_shard_is_written_when_it_is_full_or_old(tmp_path, monkeypatch):
    run = RunFolder(tmp_path / "run", IDENTITY)

    def shards():
        return len(list((tmp_path / "run" / "replays").iterdir()))

    for number in range(SHARD_ROWS - 1):
        run.add(outcome(number))
    assert shards() == 0
    run.add(outcome(SHARD_ROWS))
    assert shards() == 1
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + SHARD_SECONDS + 1)
    run.add(outcome(SHARD_ROWS + 1))
    assert shards() == 2
    run.flush()
    assert shards() == 2


def test_other_identities_are_refused_by_the_name_of_what_differs(tmp_path):
    RunFolder(tmp_path / "run", IDENTITY)
    with pytest.raises(UsageError, match="holds a run with other snapshot; choose another --out or delete it"):
        RunFolder(tmp_path / "run", IDENTITY | {"snapshot": "t"})
    with pytest.raises(UsageError, match="holds a run with other configuration, events"):
        RunFolder(tmp_path / "run", {"snapshot": "s", "events": "e"})


def test_a_finished_run_is_not_to_be_deleted_and_a_purge_of_it_can_be_finished(tmp_path):
    RunFolder(tmp_path / "run", IDENTITY).write("result.json", b"{}")
    with pytest.raises(
        UsageError, match="holds a run with other snapshot; choose another --out; if a purge"
    ) as failure:
        RunFolder(tmp_path / "run", IDENTITY | {"snapshot": "t"})
    assert str(failure.value).endswith(f"finish it with: memaudit purge {tmp_path / 'run'} STORE --apply")
    with pytest.raises(UsageError, match=r"holds a run with other configuration; choose another --out$"):
        RunFolder(tmp_path / "run", IDENTITY | {"configuration": "d"})


def test_what_is_no_run_is_left_alone(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"x")
    (tmp_path / "file").write_text("x")
    for name in ("photos", "file"):
        with pytest.raises(UsageError, match="exists and is not a MemAudit run; choose another --out"):
            RunFolder(tmp_path / name, IDENTITY)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["a.jpg"]


def test_a_kill_before_the_first_file_leaves_a_folder_that_the_same_command_takes(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(_path, _target=None):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", kill)
        patch.setattr(os, "unlink", kill)
        with pytest.raises(Killed):
            RunFolder(tmp_path / "run", IDENTITY)
    (leftover,) = (tmp_path / "run").iterdir()
    assert leftover.name.endswith(".part")
    assert not RunFolder(tmp_path / "run", IDENTITY).outcomes


def at_once(path, monkeypatch, identities):
    """Start runs in one folder that all have seen it empty before any writes; returns what came of each."""
    barrier, real = threading.Barrier(len(identities)), durable.create

    def together(final, data, scratch):
        barrier.wait(10)
        return real(final, data, scratch=scratch)

    def start(identity):
        try:
            RunFolder(path, identity)
        except UsageError as error:
            return str(error)
        return "accepted"

    monkeypatch.setattr(durable, "create", together)
    with ThreadPoolExecutor(len(identities)) as pool:
        return list(pool.map(start, identities))


def test_of_two_different_runs_that_start_in_one_folder_at_once_one_is_refused(tmp_path, monkeypatch):
    identities = [IDENTITY, IDENTITY | {"snapshot": "t"}]
    found = at_once(tmp_path / "run", monkeypatch, identities)
    taken = found.index("accepted")
    assert found[1 - taken].endswith("holds a run with other snapshot; choose another --out or delete it")
    assert parse_marker((tmp_path / "run" / "run.json").read_bytes(), "run.json") == identities[taken]


def test_a_mount_without_hard_links_holds_runs_too(tmp_path, monkeypatch):
    def refused(_source, _target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    path = tmp_path / "run"
    run = RunFolder(path, IDENTITY)
    run.add(outcome(1))
    run.flush()
    assert len(RunFolder(path, IDENTITY).outcomes) == 1
    with pytest.raises(UsageError, match="configuration"):
        RunFolder(path, IDENTITY | {"configuration": "other"})


def test_two_starts_of_one_run_at_once_are_both_taken(tmp_path, monkeypatch):
    assert at_once(tmp_path / "run", monkeypatch, [IDENTITY] * 2) == ["accepted"] * 2


def test_a_folder_that_becomes_a_run_while_it_is_looked_at_is_no_foreign_one(tmp_path, monkeypatch):
    def look(path):
        monkeypatch.undo()
        RunFolder(path, IDENTITY)
        return _is_foreign(path)

    monkeypatch.setattr("memory_audit.jobs.run.run_folder._is_foreign", look)
    assert not RunFolder(tmp_path / "run", IDENTITY).outcomes


@pytest.mark.parametrize("name", ["notes.part", ".hidden", ".folder.part/a"])
def test_what_only_looks_like_a_leftover_is_another_s(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match="exists and is not a MemAudit run"):
        RunFolder(tmp_path, IDENTITY)


def test_an_empty_folder_becomes_a_run(tmp_path):
    assert not RunFolder(tmp_path, IDENTITY).outcomes
    assert not RunFolder(tmp_path, IDENTITY).outcomes


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b"5"])
def test_a_damaged_marker_is_refused(tmp_path, raw):
    RunFolder(tmp_path / "run", IDENTITY)
    (tmp_path / "run" / "run.json").write_bytes(raw)
    with pytest.raises(UsageError, match="not a run's marker"):
        RunFolder(tmp_path / "run", IDENTITY)


@pytest.mark.parametrize("raw", [b"", b"PAR1", b"x" * 100])
@pytest.mark.parametrize("kind", ["replays", "entailment", "embedding"])
def test_a_damaged_shard_is_refused_by_name_in_one_line(tmp_path, kind, raw):
    run = RunFolder(tmp_path / "run", IDENTITY)
    shard = run.path / kind / "0.parquet"
    shard.write_bytes(raw)
    with pytest.raises(VerificationError, match=r"0\.parquet: was changed, or not .*; delete it and resume") as failure:
        RunFolder(tmp_path / "run", IDENTITY)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("name", [".0123456789abcdef01234567.part", "0.partial"])
def test_what_a_kill_left_half_written_is_not_read(tmp_path, name):
    run = RunFolder(tmp_path / "run", IDENTITY)
    (run.path / "replays" / name).write_bytes(b"half")
    assert not RunFolder(tmp_path / "run", IDENTITY).outcomes


def test_a_shard_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    run, calls = RunFolder(tmp_path / "run", IDENTITY), []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor):
        calls.append(("fsync", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def renamed(source, target):
        calls.append(("replace", source.stat().st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    run.add_weights({pair_key("a", "b"): 0.25})
    (shard,) = (run.path / "entailment").iterdir()
    file, folder = shard.stat().st_ino, shard.parent.stat().st_ino
    assert calls == [("fsync", file), ("replace", file), ("fsync", folder)]


def test_what_could_not_be_written_is_tried_again_and_not_lost(tmp_path):
    run = RunFolder(tmp_path / "run", IDENTITY)
    folder = run.path / "replays"
    folder.rename(run.path / "away")
    run.add(outcome(1))
    with pytest.raises(IncompleteError, match="start the same command again"):
        run.flush()
    (run.path / "away").rename(folder)
    run.flush()
    assert list(RunFolder(tmp_path / "run", IDENTITY).outcomes) == [outcome(1).pair_id]


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(IncompleteError, match=r"the run cannot be started \(Not a directory\)"):
        RunFolder(tmp_path / "file" / "run", IDENTITY)


def test_finished_files_are_put_in_whole(tmp_path):
    run = RunFolder(tmp_path / "run", IDENTITY)
    assert run.write("result.json", b"{}").read_bytes() == b"{}"
    with pytest.raises(IncompleteError, match="free space and start the same command again"):
        run.write("no-such-folder/result.json", b"{}")


@pytest.mark.parametrize("raw", [b"[" * 5_000, b'{"config": 5}', b"9" * 5_000])
def test_a_marker_that_json_or_python_cannot_hold_is_refused(raw):
    with pytest.raises(UsageError, match="not a run's marker"):
        parse_marker(raw, "f")


def test_a_shard_without_a_value_or_of_other_columns_is_refused():
    other = pa.schema([("pair", pa.string()), ("contradiction", pa.string())])
    for row, schema in (({"pair": None}, WEIGHTS_SCHEMA), ({"pair": "ab", "contradiction": "0.5"}, other)):
        data = parquet.write(pa.Table.from_pylist([row], schema=schema))
        with pytest.raises(UsageError, match="delete it and resume"):
            parse_weights(data, "f")


@pytest.mark.parametrize("vectors", [[b"abc"], [b"abcd", b"abcdefgh"], [b"\x00\x00\xc0\x7f"]])
def test_embeddings_of_other_sizes_or_no_numbers_are_refused(vectors):
    rows = [{"text": f"{number}", "vector": vector} for number, vector in enumerate(vectors)]
    data = parquet.write(pa.Table.from_pylist(rows, schema=VECTORS_SCHEMA))
    with pytest.raises(UsageError, match="delete it and resume"):
        parse_vectors(data, "f")


@pytest.mark.parametrize("weight", [-0.1, 1.5, float("nan")])
def test_weights_that_are_none_are_refused(weight):
    data = parquet.write(pa.Table.from_pylist([{"pair": "ab", "contradiction": weight}], schema=WEIGHTS_SCHEMA))
    with pytest.raises(UsageError, match="a weight outside 0 to 1; delete it and resume"):
        parse_weights(data, "f")
