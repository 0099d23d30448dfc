"""`memaudit keys`: what a user sees and what then holds."""

import json

import pytest

from memory_audit.provenance.keys import load_keyring


@pytest.fixture
def keys(folder, run):
    """A key folder, and a store of one memory beside it."""
    assert run("keys", "new")[0] == 0
    signed(folder, run, "m-1")
    return folder / "memaudit-keys"


def signed(folder, run, entry_id):
    line = {"entry_id": entry_id, "tenant": "acme", "request": "q", "response": f"answer {entry_id}"}
    (folder / "m.jsonl").write_text(json.dumps(line))
    assert run("import", "jsonl:m.jsonl", "store")[0] == 0


def shown(run):
    code, out, _ = run("keys", "show", "--json")
    assert code == 0
    return json.loads(out)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_rotation_is_shown_first_and_changes_nothing(keys, run):
    before = files(keys)
    code, out, _ = run("keys", "rotate", "writer", "store")
    assert (code, files(keys)) == (0, before)
    assert "would make a new writer key memaudit/writer-2" in out
    assert "add --apply" in out


def test_a_store_lives_on_under_the_new_keys_of_all_roles(folder, keys, run):
    for number, role in enumerate(("writer", "log", "auditor"), 2):
        assert run("keys", "rotate", role, "store", "--apply")[0] == 0
        signed(folder, run, f"m-{number}")
    assert run("keys", "rotate", "root", "--apply")[0] == 0
    words = ("forget", "store", "m-1", "--tenant", "acme", "--reason", "x", "--backbone", "none", "--embedder", "none")
    assert run(*words, "--apply")[0] == 0
    assert run("verify", "store")[0] == 0
    found = shown(run)
    assert found["version"] == 5
    assert {(key["role"], key["name"]) for key in found["keys"] if not key["revoked"]} == {
        ("writer", "memaudit/writer-2"), ("log", "memaudit/log-3"), ("auditor", "memaudit/auditor-4"),
        ("root", "memaudit/root-5"),
    }  # fmt: skip
    assert all(key["private"] for key in found["keys"])
    assert len(list(keys.glob("*.key"))) == 7
    assert len(list(keys.glob("*.retired"))) == 1


def test_a_store_that_is_not_named_verifies_no_more(folder, keys, run):
    (folder / "m.jsonl").write_text(json.dumps({"entry_id": "o", "tenant": "acme", "request": "q", "response": "r"}))
    assert run("import", "jsonl:m.jsonl", "other")[0] == 0
    assert run("keys", "rotate", "log", "store", "--apply")[0] == 0
    assert run("verify", "store")[0] == 0
    assert run("verify", "other")[0] == 4


def test_two_stores_are_kept_by_one_rotation(folder, keys, run):
    (folder / "m.jsonl").write_text(json.dumps({"entry_id": "o", "tenant": "acme", "request": "q", "response": "r"}))
    assert run("import", "jsonl:m.jsonl", "other")[0] == 0
    assert run("keys", "rotate", "log", "store", "other", "--apply")[0] == 0
    assert [run("verify", name)[0] for name in ("store", "other")] == [0, 0]


def test_a_second_rotation_of_a_role_counts_on_from_the_policy(keys, run):
    for _ in range(2):
        assert run("keys", "rotate", "log", "store", "--apply")[0] == 0
    assert [key["name"] for key in shown(run)["keys"] if key["role"] == "log"] == [
        "memaudit/log", "memaudit/log-2", "memaudit/log-3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["writer"], "name the stores that the writer key signed"),
        (["rooot", "store"], "role is 'rooot', expected one of root, writer, log, auditor"),
        (["log", "nowhere"], "nowhere"),
        (["log", "store", "--name", "a+b"], "a+b"),
        (["log", "store", "store", "--pin", "pin.json"], "--pin is one store's"),
    ],
)
def test_a_rotation_that_cannot_be_made_changes_nothing(keys, run, arguments, line):
    before = files(keys)
    code, _, err = run("keys", "rotate", *arguments, "--apply")
    assert (code, files(keys)) == (2, before)
    assert line in err


def test_a_rotation_without_the_root_key_says_what_is_missing(keys, run):
    (keys / "memaudit-root.key").unlink()
    code, _, err = run("keys", "rotate", "log", "store", "--apply")
    assert (code, "0 usable root keys" in err) == (2, True)


def test_an_interrupted_rotation_is_finished_and_no_second_one_made(keys, run):
    assert run("keys", "rotate", "log", "store", "--apply")[0] == 0
    (keys / "memaudit-log-2.key").rename(keys / "memaudit-log-2.key.next")
    code, out, _ = run("keys", "rotate", "log", "store", "--apply")
    assert (code, "an interrupted change of these keys was finished" in out) == (0, True)
    assert load_keyring(keys).policy.version == 2


def test_another_interrupted_rotation_is_finished_and_the_one_asked_for_made(keys, run):
    assert run("keys", "rotate", "log", "store", "--apply")[0] == 0
    (keys / "memaudit-log-2.key").rename(keys / "memaudit-log-2.key.next")
    before = files(keys)
    code, _, err = run("keys", "rotate", "root")
    assert (code, "was interrupted" in err, files(keys)) == (2, True, before)
    code, out, _ = run("keys", "rotate", "root", "--apply", "--json")
    assert (code, json.loads(out)["role"], json.loads(out)["policy"]) == (0, "root", 3)
    assert [key.name for key in load_keyring(keys).keys["root"]] == ["memaudit/root-3"]


def test_stores_that_were_seen_and_not_named_are_told(folder, keys, run):
    (folder / "m.jsonl").write_text(json.dumps({"entry_id": "o", "tenant": "acme", "request": "q", "response": "r"}))
    assert run("import", "jsonl:m.jsonl", "other")[0] == 0
    store_id = json.loads(run("verify", "other", "--json")[1])["store_id"]
    _, out, _ = run("keys", "rotate", "log", "store")
    assert f"not named: store {store_id}, which you have seen" in out
    assert "not named" not in run("keys", "rotate", "log", "store", "other")[1]


def test_what_a_revoked_key_signed_is_said_to_be_that(folder, keys, run):
    (folder / "m.jsonl").write_text(json.dumps({"entry_id": "o", "tenant": "acme", "request": "q", "response": "r"}))
    assert run("import", "jsonl:m.jsonl", "other")[0] == 0
    assert run("keys", "rotate", "log", "store", "--apply")[0] == 0
    code, _, err = run("verify", "other")
    assert (code, "signed by memaudit/log, which policy 2 revokes for all of this store" in err) == (4, True)


def test_a_name_that_looks_like_markup_is_shown_as_it_is(folder, run):
    assert run("keys", "new", "other", "--name", "[red]acme[/red]")[0] == 0
    assert "[red]acme[/red]/" in "".join(run("keys", "show", "--keys", "other")[1].split()).replace("│", "")


def test_the_table_names_every_key_and_what_became_of_it(keys, run):
    assert run("keys", "rotate", "writer", "store", "--apply")[0] == 0
    code, out, _ = run("keys", "show")
    assert (code, "trust policy 2" in out) == (0, True)
    assert (out.count("held here"), out.count("revoked")) == (4, 1)
