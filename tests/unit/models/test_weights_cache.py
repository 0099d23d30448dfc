"""The cache of model folders: resumable copies, one builder at a time, digests."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from memory_audit.errors import ModelError, UsageError
from memory_audit.models.weights.cache import (
    DIGEST_FILE,
    build_folder,
    check_joined,
    folder_id,
    is_finished,
    require_space,
    sha256_file,
)

ROOM = 1_000


def write_model(folder: Path, weights: bytes = b"weights") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)


def test_parts_are_checked_as_one_file(tmp_path: Path):
    parts = [tmp_path / name for name in ("one", "two")]
    for part in parts:
        part.write_bytes(part.name.encode() * 3)
    steps: list[tuple[str, int, int]] = []
    whole = b"oneoneonetwotwotwo"
    check_joined(parts, hashlib.sha256(whole).hexdigest(), "tiny", lambda *step: steps.append(step))
    assert steps[-1] == ("checking the parts of tiny", len(whole), len(whole))
    with pytest.raises(ModelError, match=r"^tiny: its parts have sha256 .* expected 00; reinstall"):
        check_joined(parts[::-1], "00", "tiny", lambda *_: None)


def test_a_build_that_fails_leaves_no_model_and_the_next_begins_anew(cache: Path):
    def fail() -> None:
        with build_folder("tiny", ROOM) as (work, _final):
            (work / "half").write_text("done so far")
            raise RuntimeError("cut off")

    with pytest.raises(RuntimeError, match="cut off"):
        fail()
    assert not (cache / "models" / "tiny").exists()
    with build_folder("tiny", ROOM) as (work, final):
        assert not any(work.iterdir())
        write_model(work / "out")
    assert (final / "model.safetensors").read_bytes() == b"weights"
    assert not work.exists()


def test_a_folder_without_its_digest_file_is_built_again(cache: Path):
    write_model(cache / "models" / "tiny", b"torn")
    with build_folder("tiny", ROOM) as (work, final):
        write_model(work / "out", b"whole")
    assert (final / "model.safetensors").read_bytes() == b"whole"


KILLED = """
import os, signal
from memory_audit.models.weights.cache import build_folder
with build_folder("tiny", 1000) as (work, final):
    (work / "out").mkdir()
    (work / "out" / "model.safetensors").write_bytes(b"half of the wei")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_build_that_is_killed_leaves_no_model_and_the_next_one_is_whole(cache: Path):
    assert subprocess.run([sys.executable, "-c", KILLED], check=False).returncode == -signal.SIGKILL
    assert not any((cache / "models").iterdir())
    with build_folder("tiny", ROOM) as (work, final):
        assert not any(work.iterdir())
        write_model(work / "out")
    assert (final / "model.safetensors").read_bytes() == b"weights"
    assert [path.name for path in cache.rglob("*half*")] == []


ORPHAN = """
import os, pathlib, signal, subprocess, sys
from memory_audit.models.weights.cache import build_folder
with build_folder("tiny", 1000) as (work, final):
    (work / "out").mkdir()
    late = "import pathlib, sys; sys.stdin.read(); pathlib.Path(sys.argv[1]).write_bytes(b'half')"
    child = [sys.executable, "-c", late, str(work / "out" / "model.safetensors")]
    subprocess.Popen(child, stdin=0, stdout=1, stderr=subprocess.DEVNULL)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_build_had_started_and_lives_on_writes_into_no_later_one(cache: Path):
    killed = subprocess.Popen([sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert killed.wait() == -signal.SIGKILL
    with build_folder("tiny", ROOM) as (work, final):
        write_model(work / "out")
        killed.communicate()  # the child goes on, and has ended when what it writes to is closed
        assert (work / "out" / "model.safetensors").read_bytes() == b"weights"
    assert (final / "model.safetensors").read_bytes() == b"weights"
    assert not any((cache / "building").iterdir())


BUILDER = """
import sys, time
from pathlib import Path
from memory_audit.models.weights.cache import DIGEST_FILE, build_folder
with build_folder("tiny", 1000) as (work, final):
    if not (final / DIGEST_FILE).is_file():
        with open(sys.argv[1], "a") as log:
            log.write("built\\n")
        time.sleep(0.3)
        (work / "out").mkdir()
        (work / "out" / "config.json").write_text("{}")
"""


def test_two_processes_at_once_build_once(cache: Path, tmp_path: Path):
    log = tmp_path / "log"
    processes = [subprocess.Popen([sys.executable, "-c", BUILDER, str(log)]) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert log.read_text() == "built\n"
    assert (cache / "models" / "tiny" / DIGEST_FILE).is_file()


def test_too_little_disk_is_said_before_anything_is_written(cache: Path, monkeypatch: pytest.MonkeyPatch):
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 - the shape shutil returns
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10**12, 0, 1_000_000_000))
    with pytest.raises(UsageError, match=r"1\.0 GB free, 5\.2 GB needed to assemble big; .*MEMAUDIT_CACHE"):
        build_folder("big", 5_000_000_000).__enter__()
    assert not (cache / "building" / "big").exists()


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MEMAUDIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot write to the cache .*file .*set MEMAUDIT_CACHE"):
        build_folder("tiny", ROOM).__enter__()


def test_room_that_is_there_is_enough(tmp_path: Path):
    require_space(tmp_path, 1, "test")


def test_id_of_a_folder_follows_its_bytes(cache: Path, tmp_path: Path):
    write_model(tmp_path / "a" / "model", b"one")
    write_model(tmp_path / "b" / "model", b"one")
    write_model(tmp_path / "c" / "model", b"two")
    first, same, other = (folder_id(tmp_path / name / "model") for name in "abc")
    assert first == same != other
    assert first.startswith("model@")
    (tmp_path / "a" / "model" / "model.safetensors").write_bytes(b"more than one")
    assert folder_id(tmp_path / "a" / "model") != first


@pytest.mark.parametrize(
    "name", ["sentence_bert_config.json", "config_sentence_transformers.json", "vocab.txt", "merges.txt", "spm.model"]
)
def test_id_of_a_folder_follows_its_vocabulary_and_how_it_pools(cache: Path, tmp_path: Path, name: str):
    folder = tmp_path / "model"
    write_model(folder)
    ids = {folder_id(folder)}
    for content in ("one", "another"):
        (folder / name).write_text(content)
        ids.add(folder_id(folder))
    assert len(ids) == 3


def test_notes_alone_are_no_model(cache: Path, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("soon")
    with pytest.raises(ModelError, match="no weights"):
        folder_id(tmp_path)


def test_id_of_a_packaged_folder_is_what_earlier_versions_gave_it(cache: Path):
    """Caches and results are named by it: a machine that builds the folder anew must find them."""
    with build_folder("tiny", ROOM) as (work, final):
        write_model(work / "out")
        (work / "out" / "vocab.txt").write_text("a\nb\n")
    lines = [f"{sha256_file(final / name)}  {name}\n" for name in ("config.json", "model.safetensors")]
    assert folder_id(final) == f"tiny@{hashlib.sha256(''.join(lines).encode()).hexdigest()[:16]}"


def test_id_of_a_packaged_folder_is_read_not_computed(cache: Path):
    with build_folder("tiny", ROOM) as (work, final):
        write_model(work / "out")
    before = folder_id(final)
    (final / "model.safetensors").unlink()
    assert folder_id(final) == before


def test_a_folder_with_nothing_in_it_has_no_id(cache: Path, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"no weights and no config\.json"):
        folder_id(tmp_path / "empty")


def test_id_of_a_folder_follows_weights_of_the_same_size_and_time(cache: Path, tmp_path: Path):
    folder = tmp_path / "model"
    write_model(folder, b"one")
    first, times = folder_id(folder), (folder / "model.safetensors").stat()
    (folder / "model.safetensors").write_bytes(b"two")
    os.utime(folder / "model.safetensors", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert folder_id(folder) != first


def test_a_copy_of_a_packaged_folder_has_an_id_of_its_own(cache: Path, tmp_path: Path):
    with build_folder("tiny", ROOM) as (work, final):
        write_model(work / "out")
    copy = tmp_path / "tiny"
    shutil.copytree(final, copy)
    first = folder_id(copy)
    (copy / "model.safetensors").write_bytes(b"tuned")
    assert folder_id(copy) not in {first, folder_id(final)}
    (copy / DIGEST_FILE).unlink()
    (copy / "model.safetensors").write_bytes(b"weights")
    assert folder_id(copy) == first


def test_id_of_a_folder_follows_what_is_read_in_the_folders_of_its_modules(cache: Path, tmp_path: Path):
    folder = tmp_path / "model"
    write_model(folder)
    modules = [{"path": ""}, {"path": "0_Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    for name in ("0_Transformer", "checkpoint"):
        (folder / name).mkdir()
        (folder / name / "sentence_bert_config.json").write_text("256")
    first = folder_id(folder)
    (folder / "checkpoint" / "sentence_bert_config.json").write_text("16")
    assert folder_id(folder) == first
    (folder / "0_Transformer" / "sentence_bert_config.json").write_text("16")
    assert folder_id(folder) != first


@pytest.mark.parametrize("record", ["", '{"name": "tiny"}', "[]", '{"name": "tiny", "sha256": 5}'])
def test_a_record_that_cannot_be_read_is_as_none(cache: Path, tmp_path: Path, record: str):
    write_model(tmp_path / "model")
    known = folder_id(tmp_path / "model")
    [cached] = (cache / "digests").iterdir()
    cached.write_text(record)
    assert folder_id(tmp_path / "model") == known
    for _ in range(2):
        with build_folder("tiny", ROOM) as (work, final):
            assert not is_finished(final)
            write_model(work / "out")
        assert is_finished(final)
        (final / DIGEST_FILE).write_text(record)


def test_an_id_does_not_need_a_cache_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_model(tmp_path / "model")
    (tmp_path / "file").touch()
    monkeypatch.setenv("MEMAUDIT_CACHE", str(tmp_path / "file"))
    assert folder_id(tmp_path / "model").startswith("model@")


def test_a_model_is_on_the_disk_before_it_has_its_name(cache: Path, monkeypatch: pytest.MonkeyPatch):
    synced = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(Path(f"/proc/self/fd/{file}").readlink()), sync(file)))
    with build_folder("tiny", ROOM) as (work, final):
        write_model(work / "out")
    out = work / "out"
    assert set(synced[:-1]) == {out, *(out / name for name in ("config.json", "model.safetensors", DIGEST_FILE))}
    assert synced[-1] == final.parent
