"""What a store removed is found at its source by id, by words and by what it teaches; all else is not."""

# ruff: noqa: ANN002, ANN003 - what is handed on

from __future__ import annotations

import json

import pytest

from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.guard.guarded_store import GuardedStore
from memory_audit.jobs.cli import verify
from memory_audit.jobs.cli.shared import FINDINGS
from memory_audit.jobs.connect import address
from memory_audit.jobs.connect.check_removed import check_removed
from memory_audit.provenance.keys import save_keyring
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from tests.unit.guard.blocked import BEHAVIOURS, EMBEDDER, HARMFUL, PARAPHRASE, SAFE
from tests.unit.guard.test_block_list import purged
from tests.unit.jobs.connect.fake_system import FakeSystem, Options
from tests.unit.snapshot.stores import NOW, entry, keyring, open_store, remove

BOB = "user=bob"


@pytest.fixture
def store(tmp_path):
    """A store of bob's: `m1` removed with its words and behaviour, `m2` by its id alone, `m3` live."""
    texts = {"m1": HARMFUL, "m2": "gone without a word", "m3": "a calm note on parcels"}
    made = tmp_path / "store"
    create_store(made, [entry(BOB, name, request="", response=text) for name, text in texts.items()], keyring(),
                 now_ms=NOW)  # fmt: skip
    purged(made, BOB, "m1")
    remove(made, {BOB: {"m2": "asked for"}})
    return made


@pytest.fixture
def look(store, tmp_path):
    """Look for what was removed in these rows: id, text, owner."""

    def check(*rows, **options):
        lines = ({"id": name, "text": text, "owner": owner} for name, text, owner in rows)
        (tmp_path / "memories").write_text("\n".join(map(json.dumps, lines)))
        source = FakeSystem(tmp_path / "memories", Options())
        return check_removed(
            source, "fake:memories", open_store(store), tenant=None, principal="import", now_ms=NOW + 10, **options
        )

    return check


def told(checked):
    return [(one.record_id, one.by, one.removed_id) for one in checked.returned]


def test_ids_and_words_are_found_without_a_model(look):
    found = look(
        ("m1", SAFE, "bob"), ("m2", "anything", "bob"), ("new", f"  {HARMFUL.upper()}", "bob"),
        ("x", PARAPHRASE, "bob"), ("m3", "a calm note on parcels", "bob"), ("other", HARMFUL, "eve"),
        ("y", "z" * 70_000, "bob"),
    )  # fmt: skip
    assert told(found) == [("m1", "id", "m1"), ("m2", "id", "m2"), ("new", "text", "m1")]
    assert (found.records, found.unknown, found.unjudged, found.ids_only) == (7, 1, 1, 1)


def test_restatements_are_found_by_the_guards_readers(look, store):
    guarded = GuardedStore(
        store, keyring().policy, embed=EMBEDDER.embed, embedder=EMBEDDER.model_id, behaviours=BEHAVIOURS,
        settings=GuardSettings(mode="behaviour"), clock_ms=lambda: NOW + 10,
    )  # fmt: skip
    found = look(
        ("x", PARAPHRASE, "bob"), ("y", "a calm note on tea", "bob"), ("z", PARAPHRASE, "eve"), guarded=guarded
    )
    guarded.close()
    assert told(found) == [("x", "restated", "m1")]
    assert found.returned[0].reason == "behaviour restated"


def test_a_record_whose_later_version_is_live_is_not_back(look, store):
    append_entries(store, [entry(BOB, "m2@2", request="", response="edited, and fine")], keyring(), now_ms=NOW + 5)
    assert told(look(("m2", "edited, and fine", "bob"))) == []


@pytest.fixture
def desk(folder, store, monkeypatch):
    """The working folder of a command whose clock is that of the store."""
    monkeypatch.setattr(address, "SYSTEMS", {"fake": "tests.unit.jobs.connect.fake_system:FakeSystem"})
    monkeypatch.setattr(verify, "now_ms", lambda: NOW + 10)
    save_keyring(keyring(), folder / "memaudit-keys")
    return store.parent


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["fake:clean"], 0, "1 looked at, 0 back of what was removed"),
        (["fake:clean", "fake:back"], FINDINGS, "'m2' of 'user=bob': removed id as 'm2'"),
        (["fake:odd"], 3, "1 memory could not be judged"),
        (["fake:none"], 2, "nothing there"),
        (["jsonl:x"], 2, "guard check"),
        (["fake:clean", "--read", "all"], 2, "--read is 'all'"),
    ],
)
def test_a_scheduler_learns_of_it_by_the_exit_code(desk, run, words, code, said):
    for name, row in {"clean": ("m3", "fine"), "back": ("m2", "any"), "odd": ("m9", "z" * 70_000)}.items():
        (desk / name).write_text(json.dumps({"id": row[0], "text": row[1], "owner": "bob"}))
    ended, out, err = run("check-removed", "store", *words)
    assert (ended, said in out + err) == (code, True), out + err
