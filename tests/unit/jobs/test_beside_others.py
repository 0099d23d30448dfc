"""Commands beside a publisher: what others publish, pin and erase meanwhile is no attack; a rollback is one still."""

# ruff: noqa: ANN002, ANN003 - what the tests pass is passed on

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from memory_audit.errors import StalePlanError, VerificationError
from memory_audit.jobs.clock import now_ms
from memory_audit.provenance.keys import load_keyring
from memory_audit.snapshot.export_jsonl import memory_line
from memory_audit.snapshot.pin import read_pin, write_pin
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.publishing.vacuum import vacuum
from memory_audit.snapshot.reader import VerifiedSnapshot, open_snapshot
from tests.unit.snapshot.stores import entry

PIN = ("--pin", "pin.json")
GATE = ("gate", "explain", "store", "--tenant", "acme", "--entry", "m0", *PIN)
CHECK = ("guard", "check", "writes.jsonl", "store", "--mode", "behaviour", "--embedder", "fake", *PIN)
ESTIMATE = (
    "lineage", "estimate", "store", "--tenant", "acme", "--out", "edges.jsonl", "--embedder", "fake", "--method",
    "words", *PIN,
)  # fmt: skip
AUDIT = ("audit", "store", "--events", "events.jsonl", "--out", "run", "--local", "--quiet", *PIN)
READERS = [
    ("export", "store", *PIN), ("verify", "store", *PIN), ("verify", "store", "--deep", *PIN), GATE, CHECK, ESTIMATE,
    AUDIT,
]  # fmt: skip
NAMES = [" ".join(words[:3]) for words in READERS]

PUBLISHER = """
import itertools, sys
from pathlib import Path
from memory_audit.provenance.keys import load_keyring
from memory_audit.snapshot.export_jsonl import memory_line
from memory_audit.snapshot.pin import write_pin
from memory_audit.snapshot.publishing.publish import append_entries
from memory_audit.snapshot.reader import open_snapshot
from memory_audit.snapshot.publishing.vacuum import vacuum
from memory_audit.jobs.clock import now_ms
from tests.unit.snapshot.stores import entry

folder, keyring = Path(sys.argv[1]), load_keyring(Path(sys.argv[1]) / "memaudit-keys")
for number in itertools.count():
    if (folder / "stop").exists():
        break
    append_entries(folder / "store", [entry(f"t{number % 3}", f"p{number}")], keyring, now_ms=now_ms())
    if number % 3 == 2:
        vacuum(folder / "store", keyring, now_ms=now_ms(), retention_ms=0, dry_run=False)
    write_pin(folder / "pin.json", open_snapshot(folder / "store", keyring.policy, now_ms=now_ms()).pin())
    print(number, flush=True)
"""
"""Appends, erases what is older, and pins for all on this machine, as fast as it can."""


@pytest.fixture
def desk(folder, set_up):
    """A store of two versions, seen by this user, with what commands ask of it."""
    (folder / "memaudit.yaml").write_text(
        "harm: {kind: regex, pattern: HARM}\nbackbone: fake\nnli: fake\nembedder: fake"
    )
    rows = [
        {"tenant": tenant, "entry_id": f"m{n}", "principal": "bot", "source": "user", "request": f"case {n}",
         "response": f"answer {n}", "created_at_ms": 1_000 + n}
        for tenant in ("acme", "globex") for n in range(3)
    ]  # fmt: skip
    (folder / "memories.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "more.jsonl").write_text(json.dumps({**rows[0], "entry_id": "m9"}))
    (folder / "writes.jsonl").write_text(json.dumps({**rows[0], "entry_id": "w1"}))
    benign = {
        "event_id": "e1",
        "tenant": "acme",
        "ts_ms": 1,
        "query": "case 1",
        "output": "-",
        "harm": {"label": "benign"},
    }
    (folder / "events.jsonl").write_text(json.dumps(benign))
    imports = (("import", f"jsonl:{name}", "store", *PIN) for name in ("memories.jsonl", "more.jsonl"))
    set_up(("keys", "new"), *imports)
    return folder


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something each time when what a command saw is about to be kept: it has read all it reads by then."""

    def when_pinned(behaviour, times=1):
        pin, left = VerifiedSnapshot.pin, [behaviour] * times

        def pinned(snapshot):
            if left:
                left.pop()()
            return pin(snapshot)

        monkeypatch.setattr(VerifiedSnapshot, "pin", pinned)

    return when_pinned


def publish(desk, number=0, *, keep=True):
    """Publish a version, without the older ones unless they are to be kept, and pin it as another command would."""
    keyring = load_keyring(desk / "memaudit-keys")
    append_entries(desk / "store", [entry("acme", f"other{number}")], keyring, now_ms=now_ms())
    if not keep:
        vacuum(desk / "store", keyring, now_ms=now_ms(), retention_ms=0, dry_run=False)
    newest = open_snapshot(desk / "store", keyring.policy, now_ms=now_ms())
    with contextlib.suppress(VerificationError):
        write_pin(desk / "pin.json", newest.pin())
    return newest.version


def before_pinning(monkeypatch, behaviour):
    """Do something once, when the pin is read for the last time: it is about to be compared with what was seen."""
    read, known = read_pin, []

    def reading(path):
        if known == [True]:
            behaviour()
        found = read(path)
        known.append(found is not None)
        return found

    monkeypatch.setattr("memory_audit.jobs.store.store_session.read_pin", reading)


@pytest.mark.parametrize("words", READERS, ids=NAMES)
def test_what_others_publish_and_pin_while_the_store_is_opened_does_not_fail_the_command(desk, run, monkeypatch, words):
    read, left = read_pin, [publish]

    def reading(path):
        if left:
            left.pop()(desk)
        return read(path)

    monkeypatch.setattr("memory_audit.jobs.store.store_session.read_pin", reading)
    code, _, err = run(*words)
    assert (code, "rollback" in err) == (0, False)
    assert read_pin(desk / "pin.json").version == 3


@pytest.mark.parametrize("words", READERS, ids=NAMES)
@pytest.mark.parametrize("keep", [True, False], ids=["", "erased"])
def test_what_others_publish_and_pin_while_a_command_runs_does_not_fail_it(desk, run, monkeypatch, words, keep):
    before_pinning(monkeypatch, lambda: publish(desk, keep=keep))
    code, _, err = run(*words)
    assert (code, "rollback" in err) == (0, False)
    assert read_pin(desk / "pin.json").version == (3 if keep else 4)  # what the others saw


@pytest.mark.parametrize("words", READERS, ids=NAMES)
def test_a_store_that_goes_back_while_a_command_runs_is_refused(desk, run, monkeypatch, words):
    def roll_back():
        publish(desk)
        (desk / "store" / "manifests" / "3.json").unlink()

    before_pinning(monkeypatch, roll_back)
    code, _, err = run(*words)
    assert (code, "version 2 is below the pinned 3 (rollback)" in err) == (VerificationError.exit_code, True)
    assert read_pin(desk / "pin.json").version == 3


def test_a_store_that_shows_another_history_while_a_command_runs_is_refused(desk, run, monkeypatch):
    """As where a reader is shown a branch, and everybody else goes on with the other."""
    keyring = load_keyring(desk / "memaudit-keys")
    manifests = desk / "store" / "manifests"
    branch = (manifests / "2.json").read_bytes()
    (manifests / "2.json").unlink()
    append_entries(desk / "store", [entry("acme", "m8"), entry("acme", "m7")], keyring, now_ms=now_ms())
    publish(desk)
    others = {name: (manifests / name).read_bytes() for name in ("2.json", "3.json")}
    (desk / "pin.json").unlink()
    (manifests / "3.json").unlink()
    (manifests / "2.json").write_bytes(branch)
    assert run("export", "store", *PIN)[0] == 0

    def swap():
        for name, data in others.items():
            (manifests / name).write_bytes(data)
        (desk / "pin.json").unlink()
        write_pin(desk / "pin.json", open_snapshot(desk / "store", keyring.policy, now_ms=now_ms()).pin())

    before_pinning(monkeypatch, swap)
    code, _, err = run("export", "store", *PIN)
    assert (code, "history rewritten" in err) == (VerificationError.exit_code, True)


def test_a_pin_that_others_move_between_two_looks_at_it_is_left_alone(desk, run, meanwhile):
    numbers = count()
    meanwhile(lambda: publish(desk, next(numbers)), times=3)
    assert run("export", "store", *PIN)[0] == 0
    assert run("verify", "store", *PIN)[0] == 0


def test_an_export_whose_version_is_erased_on_the_way_is_to_be_started_again(desk, run, monkeypatch):
    from memory_audit.jobs.cli import export as cli_export  # noqa: PLC0415

    line = memory_line
    left = [lambda: publish(desk, keep=False)]

    def writing(memory):
        if left:
            left.pop()()
        return line(memory)

    monkeypatch.setattr(cli_export, "memory_line", writing)
    (desk / "left.jsonl").write_text("before")
    code, out, err = run("export", "store", "--out", "left.jsonl", *PIN)
    assert (code, out, "a vacuum erased version 2 while it was read" in err) == (StalePlanError.exit_code, "", True)
    assert (desk / "left.jsonl").read_text() == "before"
    assert run("export", "store", "--out", "left.jsonl", *PIN)[0] == 0


def test_an_import_beside_another_one_adds_to_it(desk, run, monkeypatch):
    from memory_audit.jobs.store import import_memories as importing  # noqa: PLC0415

    append = append_entries
    left = [lambda: publish(desk)]

    def appending(*arguments, **named):
        if left:
            left.pop()()
        return append(*arguments, **named)

    monkeypatch.setattr(importing, "append_entries", appending)
    (desk / "yet.jsonl").write_text((desk / "more.jsonl").read_text().replace("m9", "m10"))
    code, out, _ = run("import", "jsonl:yet.jsonl", "store", *PIN, "--json")
    assert (code, json.loads(out)["version"]) == (0, 4)


def test_two_dumps_with_the_same_new_memory_do_not_blame_its_id(desk, run, monkeypatch):
    from memory_audit.jobs.store import import_memories as importing  # noqa: PLC0415

    append = append_entries
    (desk / "dump.jsonl").write_text((desk / "more.jsonl").read_text().replace("m9", "m10"))

    def appending(*arguments, **named):
        append(*arguments, **named)  # the other one is faster
        return append(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(importing, "append_entries", appending)
        code, _, err = run("import", "jsonl:dump.jsonl", "store", "--new-only", *PIN)
    assert (code, "someone else published" in err) == (StalePlanError.exit_code, True)
    code, out, _ = run("import", "jsonl:dump.jsonl", "store", "--new-only", *PIN)
    assert (code, "nothing new for store, version 3" in out) == (0, True)


def test_readers_beside_a_process_that_publishes_erases_and_pins_see_no_attack(desk, run):
    publisher = subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, str(desk)], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    try:
        codes = {}
        for number in range(4):
            assert publisher.stdout.readline()  # it lives, and has published
            for words in (
                ("verify", "store", *PIN),
                ("verify", "store", "--deep", *PIN),
                ("export", "store", *PIN),
                GATE,
            ):
                code, _, err = run(*words)
                codes[number, words] = code, err
    finally:
        (desk / "stop").touch()
        out, _ = publisher.communicate(timeout=60)
    assert publisher.returncode == 0
    assert [found for found in codes.values() if found[0] not in {0, StalePlanError.exit_code}] == []
    assert any(code == 0 for code, _ in codes.values())
    assert len(out.splitlines()) > 1
