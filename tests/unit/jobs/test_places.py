"""What a command writes where its user says replaces no file of a store, no key, and nothing that was signed."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from memory_audit.errors import UsageError
from memory_audit.jobs.run.purge.attestation import ATTESTATION_FILE
from tests.unit.jobs.test_cli import AUDIT, CONFIG, bytes_of, event, memories, never, one_line, write_lines

EXPORT = ("export", "store", "--out")
REPORT = ("report", "run", "--format", "json", "--out")
ESTIMATE = ("lineage", "estimate", "store", "--tenant", "acme", "--embedder", "fake", "--method", "words", "--out")
CHECK = ("guard", "check", "memories.jsonl", "store", "--mode", "behaviour", "--embedder", "fake")
LOG = (*CHECK, "--log")
CACHE = (*CHECK[:-3], "behaviour+hazards", "--backbone", "openai:http://127.0.0.1:9#m", "--cache")
RUN = (*AUDIT[:-3], "OUT", "--local", "--quiet")

OF_A_STORE = [
    "store/manifests/1.json", "store/manifests/2.json", "store/manifests/mine.jsonl", "store/data/mine.jsonl",
    "store/scratch/mine.jsonl", "store/checkpoints/b=82/mine.jsonl", "here/../store/data/mine.jsonl",
    "linked/manifests/1.json", "linked-data/mine.jsonl", "linked-manifest.json",
]  # fmt: skip
OF_KEYS = [
    "memaudit-keys/policy.json", "memaudit-keys/memaudit-log.key", "memaudit-keys/mine.jsonl",
    "memaudit-keys/mine.key", "linked-keys/policy.json",
]  # fmt: skip
SIGNED = ["policy.json", "here/log.key", "pin.json", f"run/{ATTESTATION_FILE}", "run/run.json", "run/hazards.json"]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return tmp_path_factory.mktemp("template") / "desk"


@pytest.fixture
def desk(folder, run, template):
    """A store, keys, a finished and purged run, a policy and a pin of one's own, and links to some of these."""
    if template.exists():
        shutil.copytree(template, folder, symlinks=True, dirs_exist_ok=True)
        return folder
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    write_lines(folder / "memories.jsonl", memories())
    write_lines(folder / "events.jsonl", [event()])
    assert run("keys", "new")[0] == 0
    assert run("import", "jsonl:memories.jsonl", "store", "--pin", "pin.json")[0] == 0
    assert run(*AUDIT, "--apply", "--pin", "pin.json")[0] == 0
    shutil.copy(folder / "memaudit-keys" / "policy.json", folder / "policy.json")
    (folder / "here").mkdir()
    shutil.copy(folder / "memaudit-keys" / "memaudit-log.key", folder / "here" / "log.key")
    for name, target in (
        ("linked", "store"), ("linked-data", "store/data"), ("linked-manifest.json", "store/manifests/1.json"),
        ("linked-keys", "memaudit-keys"), ("linked-log", "store/manifests/4.json"),
    ):  # fmt: skip
        (folder / name).symlink_to(target)
    shutil.copytree(folder, template, symlinks=True)
    return folder


def refused(run, desk, *words):  # noqa: ANN002
    before = bytes_of(desk)
    code, out, err = run(*words)
    assert (code, out) == (UsageError.exit_code, "")
    assert bytes_of(desk) == before
    return one_line(err)


@pytest.mark.parametrize("place", OF_A_STORE + OF_KEYS + SIGNED)
def test_no_export_replaces_or_joins_what_is_of_a_store_of_keys_or_signed(desk, run, place):
    said = refused(run, desk, *EXPORT, place)
    assert "choose another" in said


@pytest.mark.parametrize("words", [REPORT, ESTIMATE], ids=["report", "estimate"])
@pytest.mark.parametrize(
    "place", ["store/manifests/1.json", "memaudit-keys/policy.json", "pin.json", "store/data/mine"]
)
def test_no_other_output_does_either(desk, run, monkeypatch, words, place):
    monkeypatch.setattr("memory_audit.jobs.cli.lineage.estimate_edges", never)
    refused(run, desk, *words, place)


@pytest.mark.parametrize("name", ["result.json", "models.json", "run.json"])
def test_no_report_replaces_the_run_that_it_is_of(desk, run, name):
    assert "choose another name" in refused(run, desk, *REPORT, f"run/{name}")
    assert run(*REPORT, "run/report.json")[0] == 0


@pytest.mark.parametrize(
    "place",
    [
        "store/manifests/3.json", "store/data/log", "memaudit-keys/policy.json", "memaudit-keys/log", "pin.json",
        "policy.json", "linked-log",
    ],
)  # fmt: skip
def test_no_decision_log_is_written_into_these(desk, run, place):
    refused(run, desk, *LOG, place)


@pytest.mark.parametrize("place", ["store/scratch/cache", "memaudit-keys/cache"])
def test_no_cache_is_made_among_these(desk, run, place):
    refused(run, desk, *CACHE, place)


@pytest.mark.parametrize("place", ["store/manifests/3.json", "store/data/pin.json", "linked-data/pin.json"])
@pytest.mark.parametrize(
    "words",
    [("verify", "store"), ("import", "jsonl:memories.jsonl", "new"), ("export", "store")],
    ids=lambda w: w[0],
)
def test_no_pin_lies_in_a_store(desk, run, words, place):
    assert "lies among the files of the store" in refused(run, desk, *words, "--pin", place)
    assert not (desk / "new").exists()


@pytest.mark.parametrize(
    "place", ["store/scratch", "store/data/run", "store/manifests/run", "memaudit-keys", "linked-data"]
)
def test_no_run_is_started_among_these(desk, run, place):
    refused(run, desk, *[place if word == "OUT" else word for word in RUN])
    assert not (desk / place / "run.json").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("keys", "new", "store/data/keys"), ("import", "jsonl:memories.jsonl", "store/manifests"),
        ("import", "jsonl:memories.jsonl", "linked-data/new"), ("demo", "store/scratch", "--local"),
    ],
)  # fmt: skip
def test_nothing_new_is_made_inside_a_store(desk, run, monkeypatch, words):
    monkeypatch.setattr("memory_audit.jobs.demo.prepare_models", never)
    assert "lies among the files of the store" in refused(run, desk, *words)


def test_no_export_replaces_a_decision_log_and_a_guard_goes_on_with_its_own(desk, run):
    write_lines(desk / "writes.jsonl", [{**memories()[3], "entry_id": "w1"}])
    words = (
        "guard",
        "check",
        "writes.jsonl",
        "store",
        "--mode",
        "behaviour",
        "--embedder",
        "fake",
        "--log",
        "log.jsonl",
    )
    for lines in (1, 2):
        assert run(*words)[0] == 0
        assert len((desk / "log.jsonl").read_text().splitlines()) == lines
    assert "is a decision log" in refused(run, desk, *EXPORT, "log.jsonl")


def test_an_output_that_was_written_before_is_replaced(desk, run):
    for words in ((*EXPORT, "out"), (*EXPORT, "out", "--removed"), (*REPORT, "out"), (*EXPORT, "out")):
        assert run(*words)[0] == 0
    assert (desk / "out").read_text().count("\n") == 10


def test_what_a_memory_says_makes_no_output_look_signed(desk, run):
    text = '{"payload":"x"} "format": "memaudit pin v1" PRIVATE+KEY+ {"allowed": true'
    rows = [{**memories()[0], "tenant": "{", "entry_id": text, "request": text, "response": text, "principal": text,
             "metadata": {"format": "memaudit pin v1"}}]  # fmt: skip
    write_lines(desk / "hostile.jsonl", rows)
    assert run("import", "jsonl:hostile.jsonl", "other")[0] == 0
    for _ in range(2):
        assert run("export", "other", "--out", "out.jsonl")[0] == 0
    assert json.loads((desk / "out.jsonl").read_text())["request"] == text


def test_a_store_in_the_folder_at_hand_leaves_room_beside_it(desk, run):
    (desk / "at-hand").mkdir()
    os.chdir(desk / "at-hand")
    words = ("--keys", "../memaudit-keys", "--pin", "pin.json")
    assert run("import", "jsonl:../memories.jsonl", ".", *words)[0] == 0
    assert run("export", ".", "--out", "left.jsonl", *words)[0] == 0
    assert "lies among the files of the store" in run("export", ".", "--out", "data/left.jsonl", *words)[2]


def test_folders_that_are_only_named_like_a_stores_are_free(desk, run):
    (desk / "data").mkdir()
    assert run(*EXPORT, "data/left.jsonl")[0] == 0
