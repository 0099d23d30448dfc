"""Commands that publish, and then cannot keep what they saw, or are killed: the same command ends well, once."""

from __future__ import annotations

import json

import pytest

from memory_audit.errors import IncompleteError, UsageError, VerificationError
from memory_audit.jobs.cli.main import INTERRUPTED
from memory_audit.snapshot.pin import read_pin, write_pin
from tests.unit.jobs.test_cli import AUDIT, CONFIG, bytes_of, event, memories, one_line, write_lines

PIN = ("--pin", "pins/pin.json")
NEW = ("import", "jsonl:memories.jsonl", "new", *PIN)
APPEND = ("import", "jsonl:more.jsonl", "store", *PIN)
NEW_ONLY = ("import", "jsonl:dump.jsonl", "store", "--new-only", *PIN)
FORGET = (
    "forget", "store", "m1", "m2", "--tenant", "acme", "--reason", "ticket 7", "--expires", "90d", "--backbone", "none",
    "--embedder", "none", "--apply", *PIN,
)  # fmt: skip
PURGE = ("purge", "run", "store", "--apply", *PIN)
PUBLISHING = [(NEW, "new", 1), (APPEND, "store", 2), (NEW_ONLY, "store", 2), (FORGET, "store", 2), (PURGE, "store", 2)]
NAMES = ["new store", "import", "import --new-only", "forget", "purge"]


@pytest.fixture
def desk(folder, set_up):
    """A store, and what else commands read."""
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "a-file").write_text("", encoding="utf-8")
    write_lines(folder / "memories.jsonl", memories())
    more = [{name: value for name, value in memories()[0].items() if name != "created_at_ms"} | {"entry_id": "m99"}]
    write_lines(folder / "more.jsonl", more)
    write_lines(folder / "dump.jsonl", memories() + more)
    write_lines(folder / "events.jsonl", [event()])
    set_up(("keys", "new"), ("import", "jsonl:memories.jsonl", "store"))
    return folder


def unkept(monkeypatch, version, error):
    """Keep no pin of a version or later ones."""
    write = write_pin

    def writing(path, pin):
        if pin.version >= version:
            raise error
        write(path, pin)

    monkeypatch.setattr("memory_audit.jobs.store.store_session.write_pin", writing)


def made_ready(words, run):
    if words[0] == "purge":
        assert run(*AUDIT)[0] == 0


@pytest.mark.parametrize("case", PUBLISHING, ids=NAMES)
def test_what_is_published_and_not_pinned_is_said_and_the_same_command_ends_it(desk, run, monkeypatch, case):
    words, store, version = case
    made_ready(words, run)
    with monkeypatch.context() as patch:
        unkept(patch, version, IncompleteError("cannot write the pin (no space left on device)"))
        code, _, err = run(*words)
        assert code == IncompleteError.exit_code
        assert f"version {version} of {store} is published, but what was seen of the store is not kept" in one_line(err)
        assert err.endswith("start the same command again\n")
    published = bytes_of(desk / store)
    code, _, err = run(*words)
    assert (code, err) == (0, "")
    assert bytes_of(desk / store) == published
    assert read_pin(desk / "pins" / "pin.json").version == version
    assert run("verify", store, "--deep", "--quiet", *PIN)[0] == 0


@pytest.mark.parametrize("case", PUBLISHING, ids=NAMES)
def test_what_is_published_by_a_command_that_is_killed_before_it_pins_is_ended_by_the_same_command(
    desk, run, monkeypatch, case
):
    words, store, version = case
    made_ready(words, run)
    with monkeypatch.context() as patch:
        unkept(patch, version, KeyboardInterrupt())
        assert run(*words)[0] == INTERRUPTED
    published = bytes_of(desk / store)
    assert run(*words, "--json")[0] == 0
    assert bytes_of(desk / store) == published
    assert read_pin(desk / "pins" / "pin.json").version == version


def test_a_purge_that_was_not_pinned_is_ended_though_others_published_since(desk, run, monkeypatch):
    made_ready(PURGE, run)
    with monkeypatch.context() as patch:
        unkept(patch, 2, KeyboardInterrupt())
        assert run(*PURGE)[0] == INTERRUPTED
    assert run("import", "jsonl:more.jsonl", "store", "--pin", "elsewhere.json")[0] == 0
    code, out, _ = run(*PURGE)
    assert (code, "version 2 published with 10 memories" in out) == (0, True)
    assert read_pin(desk / "pins" / "pin.json").version == 3


@pytest.mark.parametrize("case", PUBLISHING, ids=NAMES)
@pytest.mark.parametrize(
    ("place", "code"), [("a-file/pin.json", UsageError.exit_code), ("/proc/none/pin.json", IncompleteError.exit_code)]
)
def test_where_no_pin_can_be_kept_nothing_is_published(desk, run, case, place, code):
    words, store, _ = case
    made_ready(words, run)
    before = bytes_of(desk / store)
    found, _, err = run(*words[:-1], place)
    assert (found, "--pin names another file" in one_line(err)) == (code, True)
    assert bytes_of(desk / store) == before


def test_a_new_store_does_not_take_the_place_of_one_that_is_pinned_and_gone(desk, run):
    assert run(*APPEND)[0] == 0
    (desk / "store").rename(desk / "elsewhere")
    code, _, err = run("import", "jsonl:dump.jsonl", "store", *PIN)
    assert code == VerificationError.exit_code
    assert "pin pins/pin.json: remembers version 2 of store" in one_line(err)
    assert not (desk / "store").exists()


def test_memories_that_are_there_as_they_are_need_no_import(desk, run):
    assert run(*APPEND)[0] == 0
    before = bytes_of(desk / "store")
    for name in ("memories.jsonl", "more.jsonl"):  # the latter say not when they were made
        code, out, _ = run("import", f"jsonl:{name}", "store", *PIN)
        assert (code, "nothing new for store, version 2" in out) == (0, True)
    code, out, _ = run(*APPEND, "--json")
    assert (code, json.loads(out)["imported"], json.loads(out)["known"]) == (0, 0, 1)
    assert bytes_of(desk / "store") == before


@pytest.mark.parametrize(
    "change",
    [
        {"response": "another"}, {"principal": "u9"}, {"source": "user"}, {"created_at_ms": 5}, {"entry_id": "m98"},
        {"metadata": {"a": "b"}}, {"parents": [["m1", 0.5]]}, {"request": "another"}, {"tenant": "globex"},
    ],
)  # fmt: skip
def test_one_memory_that_is_there_otherwise_refuses_the_file(desk, run, change):
    write_lines(desk / "again.jsonl", [*memories()[:-1], memories()[-1] | change])
    before = bytes_of(desk / "store" / "manifests")
    code, _, err = run("import", "jsonl:again.jsonl", "store")
    assert (code, "ids are used once" in one_line(err)) == (UsageError.exit_code, True)
    assert bytes_of(desk / "store" / "manifests") == before


def test_a_memory_that_was_removed_does_not_count_as_there(desk, run):
    assert run(*FORGET)[0] == 0
    code, _, err = run("import", "jsonl:memories.jsonl", "store")
    assert (code, "ids are used once" in one_line(err)) == (UsageError.exit_code, True)


@pytest.mark.parametrize("change", [("--reason", "ticket 8"), ("--expires", "91d"), ("--operator-wide",)])
def test_another_removal_of_what_is_removed_is_a_mistake(desk, run, change):
    assert run(*FORGET)[0] == 0
    before = bytes_of(desk / "store")
    assert run(*FORGET)[0] == 0
    code, _, err = run(*FORGET, *change)
    assert (code, "no live entry 'm1'" in one_line(err)) == (UsageError.exit_code, True)
    assert bytes_of(desk / "store") == before
