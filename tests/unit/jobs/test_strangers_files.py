"""Folders that somebody else filled: no command waits for ever, ends with a traceback, or takes gigabytes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memory_audit.errors import UsageError
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.cluster import submit
from memory_audit.jobs.run.run_files import ROLES
from memory_audit.models.loading import ModelSpecs, prepare
from memory_audit.models.weights.cache import folder_id
from memory_audit.provenance.keys import load_keyring
from memory_audit.snapshot.columns.tables import ENTRY_SCHEMA
from memory_audit.snapshot.layout import manifest_path, put_file
from memory_audit.snapshot.manifest import sign_manifest
from memory_audit.snapshot.reader import open_snapshot
from tests.audit_world import group_of
from tests.unit.jobs.test_cli import AUDIT, CONFIG, event, memories, one_line, write_lines

REPOSITORY = Path(__file__).parents[3]
MIB = 1 << 20
NOWHERE = "http://127.0.0.1:9"

waits = pytest.mark.timeout(120)
"""A command that waits fails its test then."""


@pytest.fixture
def store(folder, set_up):
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    write_lines(folder / "memories.jsonl", memories())
    write_lines(folder / "events.jsonl", [event()])
    set_up(("keys", "new"), ("import", "jsonl:memories.jsonl", "store"))
    return folder / "store"


@contextmanager
def nested(folder, levels=1_100):
    """Make folders below each other, more than Python follows by calls; they are gone before pytest removes its own."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        yield
    finally:
        subprocess.run(["rm", "-rf", folder / "d"], check=True)


COMMAND = """
import sys
from memory_audit.jobs.cli.main import main
try:
    main()
finally:
    status = open("/proc/self/status").read()
    open("most.txt", "w").write(status.partition("VmHWM:")[2].split()[0])
"""
"""What `getrusage` says of a child counts its parent's memory too: that of this process's own address space."""


def child(*words):  # noqa: ANN002
    """Run a command in a process of its own, of bounded memory; returns exit code, standard error and the most MiB."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, text=True,
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, check=False, preexec_fn=limit,
    )  # fmt: skip
    return done.returncode, done.stderr, int(Path("most.txt").read_text(encoding="ascii")) / 1_024


def test_folders_nested_too_deep_in_a_store_are_left_over_and_it_verifies(store, run):
    with nested(store / "data"):
        code, out, err = run("verify", "store")
    assert (code, err) == (0, "")
    assert "no part of any version" in out
    assert "\n  data/d/d/d/" in out


@waits
@pytest.mark.parametrize("name", ["run.json", "models.json", *(f"{kind}/0.parquet" for kind in ROLES)])
def test_a_pipe_in_a_run_folder_is_refused_and_not_waited_for(store, run, name, set_up):
    set_up(AUDIT)
    folder = store.parent / "run"
    place = (folder if name == "run.json" else group_of(folder)) / name
    (group_of(folder) / "finished.json").unlink()
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    code, _, err = run(*AUDIT)
    assert code == 2
    assert f"/{name}: " in one_line(err)
    assert "(not a file)" in err


@waits
def test_a_pipe_in_place_of_a_result_is_not_waited_for_and_the_result_written_anew(store, run, set_up):
    set_up(AUDIT)
    place = store.parent / "run" / "result.json"
    result = place.read_bytes()
    place.unlink()
    os.mkfifo(place)
    assert run(*AUDIT)[0] == 0
    assert json.loads(place.read_bytes())["tenants"] == json.loads(result)["tenants"]


@waits
@pytest.mark.parametrize("kind", [kind for kind in ROLES if kind != "replays"])
def test_a_pipe_in_an_earlier_run_is_passed_over(store, run, kind, set_up):
    set_up(AUDIT)
    os.mkfifo(group_of(store.parent / "run") / kind / "0.parquet")
    code, out, _ = run("audit", "store", "--events", "events.jsonl", "--out", "tonight", "--local", "--reuse", "run")
    assert code == 0
    assert f"/{kind}: 1 file not read" in out


def test_a_link_to_a_device_in_a_run_folder_is_not_read(store, set_up):
    set_up(AUDIT)
    (group_of(store.parent / "run") / "models.json").unlink()
    (group_of(store.parent / "run") / "models.json").symlink_to("/dev/zero")
    code, err, _ = child(*AUDIT)
    assert code == 2
    assert "/models.json: cannot be read (not a file)" in one_line(err)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (r'taxonomy: "a\0b"', r"memaudit.yaml: taxonomy is 'a\x00b', expected a name without NUL"),
        (r'backbone: "a/b\0"', r"memaudit.yaml: backbone is 'a/b\x00', expected"),
        (r'nli: "\0"', r"memaudit.yaml: nli is '\x00', expected"),
        ('embedder: ""', "memaudit.yaml: embedder is '', expected"),
        (r'backbone_key_env: "A\0"', r"memaudit.yaml: backbone_key_env is 'A\x00', expected"),
        (r'agent: {kind: "a\0:b"}', r"agent 'a\x00:b' is neither a built-in name nor an import path"),
        ('agent: {kind: ":b"}', "agent ':b' is neither a built-in name nor an import path"),
        ('agent: {kind: "..a:b"}', "agent '..a:b' is neither a built-in name nor an import path"),
        ("nli: ~nobody-of-that-name/x", "'~nobody-of-that-name/x': names no model"),
        (f"nli: {'x' * 5_000}", ": names no model ("),
        (f"taxonomy: {'x' * 5_000}", "cannot be read (File name too long)"),
    ],
)
def test_a_name_in_the_configuration_that_no_file_can_have_is_one_line(store, run, setting, message):
    name = setting.split(":")[0]
    lines = [line for line in CONFIG.splitlines() if not line.startswith(f"{name}:")]
    (store.parent / "memaudit.yaml").write_text("\n".join([*lines, setting]), encoding="utf-8")
    code, _, err = run(*AUDIT)
    assert code == 2
    assert message in one_line(err)
    assert not (store.parent / "run").exists()


def publish(store, **changes):  # noqa: ANN003
    """Sign a successor of the newest manifest, as whoever holds the log's key can."""
    keyring = load_keyring(store.parent / "memaudit-keys")
    newest = open_snapshot(store, keyring.policy, now_ms=now_ms()).manifest
    (bucket, files), *_ = newest.buckets.items()
    successor = replace(
        newest, version=newest.version + 1, parent=newest.digest, operation="append", created_ms=now_ms(),
        **({"buckets": {bucket: replace(files, **changes)}} if "entries" not in changes else changes),
    )  # fmt: skip
    manifest_path(store, successor.version).write_bytes(sign_manifest(successor, keyring))


@pytest.mark.parametrize("kind", ["hashes", "checkpoints", "data"])
def test_a_file_that_is_only_stated_is_not_made_room_for(store, run, kind):
    keyring = load_keyring(store.parent / "memaudit-keys")
    (files,) = open_snapshot(store, keyring.policy, now_ms=now_ms()).manifest.buckets.values()
    stated = replace(files.data[0] if kind == "data" else getattr(files, kind), size=1 << 39)
    publish(store, **{kind: (stated,) if kind == "data" else stated})
    code, _, err = run("verify", "store")
    assert code == 4
    assert "'size' is 549755813888, expected 0 to 1073741824" in one_line(err)


ROWS = 1_500


def test_a_data_file_that_decodes_to_far_more_than_its_size_is_not_decoded(store):
    """Its 20 kB, of memories that are one text over and over, decode to 195 MB."""
    keyring = load_keyring(store.parent / "memaudit-keys")
    newest = open_snapshot(store, keyring.policy, now_ms=now_ms()).manifest
    ((bucket, files),) = newest.buckets.items()
    row = {
        "tenant": "acme", "leaf_index": 0, "entry_id": "m", "principal": "p", "source": "agent",
        "request": "x" * 65_000, "response": "y" * 65_000, "created_at_ms": 1, "parents": [], "metadata": [],
        "key_id": "k", "signature": b"s" * 64,
    }  # fmt: skip
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_pylist([row] * ROWS, schema=ENTRY_SCHEMA), sink, compression="zstd", use_dictionary=False,
        write_statistics=False, store_schema=False,
    )  # fmt: skip
    data = bytes(sink.getvalue())
    assert len(data) < 100_000
    honest = child("verify", "store")[2]
    publish(store, entries=ROWS, buckets={bucket: replace(files, data=(put_file(store, "data", bucket, data, ROWS),))})
    for command in ("verify", "export"):
        code, err, most = child(command, "store")
        assert most < honest + 60, "MiB"
        assert code == 4
        assert "bytes that decode to 19" in one_line(err)


@pytest.mark.parametrize("kind", ROLES)
def test_a_shard_that_decodes_to_far_more_than_its_size_is_not_decoded(store, run, kind, set_up):
    set_up(AUDIT)
    shard = next((group_of(store.parent / "run") / kind).glob("*.parquet"))
    name = {"replays": "output", "entailment": "pair", "embedding": "vector"}[kind]
    table = pq.read_table(shard)
    rows = [{**table.to_pylist()[0], name: b"\0" * 400_000 if kind == "embedding" else "x" * 400_000}] * 100
    pq.write_table(
        pa.Table.from_pylist(rows, schema=table.schema), shard, compression="zstd", use_dictionary=False,
        write_statistics=False, store_schema=False,
    )  # fmt: skip
    assert shard.stat().st_size < 20_000
    code, _, err = run(*AUDIT)
    assert code == 4  # it does not bear the run's code, and is not decoded
    assert "delete it and resume" in one_line(err)


@waits
def test_what_no_upload_would_end_at_is_refused_before_any_cluster_is_asked(tmp_path):
    (tmp_path / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / ".venv").mkdir()
    os.mkfifo(tmp_path / ".venv" / "left-out")
    (tmp_path / "nowhere").symlink_to("gone")

    def refusal():
        with pytest.raises(UsageError) as refused:
            submit(NOWHERE, ["true"], submission_id="a", working_dir=tmp_path)
        return str(refused.value)

    assert "no Ray cluster answers" in refusal()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert refusal() == f"{pipe}: is no file, and uploading it would not end; name another working folder"
    pipe.unlink()
    pipe.symlink_to("/dev/zero")
    assert "is no file" in refusal()
    pipe.unlink()
    pipe.symlink_to(".")
    assert "too many folders below" in refusal()
    pipe.unlink()
    with nested(tmp_path):
        assert "too many folders below" in refusal()


@waits
def test_a_model_folder_with_what_is_no_file_is_refused_before_a_library_opens_it(tmp_path):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "weights.safetensors").write_bytes(b"w")
    specs = ModelSpecs(backbone="fake", nli=str(tmp_path), embedder="fake")
    prepare(specs)
    os.mkfifo(tmp_path / "tokenizer.json")
    for look in (lambda: prepare(specs), lambda: folder_id(tmp_path)):
        with pytest.raises(UsageError, match=r"tokenizer\.json: is no file, and no part of a model"):
            look()
    (tmp_path / "tokenizer.json").unlink()
    with nested(tmp_path), pytest.raises(UsageError, match="folders nested too deep for a model"):
        folder_id(tmp_path)


def test_a_models_settings_are_not_read_beyond_a_bound(tmp_path):
    from memory_audit.models.nli.nli_model import label_columns  # noqa: PLC0415 - of an extra

    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 36)
    with pytest.raises(UsageError, match="no readable config"):
        label_columns(tmp_path)
