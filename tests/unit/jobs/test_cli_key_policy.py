"""Several keys a role, thresholds and writers of their own, by command."""

import json

import pytest

from memory_audit.provenance.keys import draw_key, load_keyring
from tests.unit.jobs.test_cli_key_files import FORGET, keys, one_line, write
from tests.unit.jobs.test_cli_keys import files, shown

__all__ = ["keys"]


def names(run, role, *, revoked=False):
    return [key["name"] for key in shown(run)["keys"] if key["role"] == role and key["revoked"] == revoked]


def test_a_key_is_shown_first_and_added_then(keys, run):
    before = files(keys)
    code, out, _ = run("keys", "add", "log")
    assert (code, files(keys)) == (0, before)
    assert "would add the log key memaudit/log-2" in out
    assert "add --apply" in out
    code, out, _ = run("keys", "add", "log", "--apply", "--json")
    assert (code, json.loads(out)["added"], json.loads(out)["policy"]) == (0, True, 2)
    assert names(run, "log") == ["memaudit/log", "memaudit/log-2"]
    assert len(load_keyring(keys).signers("log")) == 2


def test_two_of_three_auditors_take_a_memory_out(folder, keys, run):
    for _ in range(2):
        assert run("keys", "add", "auditor", "--apply")[0] == 0
    assert run("keys", "threshold", "auditor", "2", "--no-store", "--apply")[0] == 0
    assert run(*write(folder))[0] == 0
    (keys / "memaudit-auditor.key").unlink()  # one is elsewhere
    assert run(*FORGET, "--apply")[0] == 0
    assert run("verify", "store", "--deep")[0] == 0
    (keys / "memaudit-auditor-2.key").unlink()
    code, _, err = run("vacuum", "store", "--apply")
    assert (code, "holds 1 usable auditor keys, the policy asks for 2" in one_line(err)) == (2, True)


def test_a_threshold_that_a_store_does_not_meet_is_not_raised(folder, keys, run):
    assert run(*write(folder))[0] == 0
    assert run("keys", "add", "log", "--apply")[0] == 0
    before = files(keys)
    code, _, err = run("keys", "threshold", "log", "2", "store", "--apply")
    assert (code, files(keys)) == (2, before)
    assert "store would verify no more" in one_line(err)
    assert "signed by 1" in err
    code, _, err = run("keys", "threshold", "log", "2", "--apply")
    assert (code, "name the stores that the log key signed" in one_line(err)) == (2, True)


def test_a_threshold_is_raised_where_enough_keys_signed(folder, keys, run):
    assert run("keys", "add", "log", "--apply")[0] == 0
    assert run(*write(folder))[0] == 0
    assert run("keys", "threshold", "log", "2", "store", "--apply")[0] == 0
    assert run("verify", "store")[0] == 0
    assert run(*write(folder, "m-2"))[0] == 0
    assert run("keys", "threshold", "log", "1", "--apply")[0] == 0
    assert run("verify", "store")[0] == 0


def test_two_roots_sign_every_policy(keys, run):
    assert run("keys", "add", "root", "--apply")[0] == 0
    assert run("keys", "threshold", "root", "2", "--apply")[0] == 0
    assert run("keys", "add", "log", "--apply")[0] == 0
    (keys / "memaudit-root.key").unlink()
    code, _, err = run("keys", "add", "log", "--apply")
    assert (code, "holds 1 usable root keys, the policy asks for 2" in one_line(err)) == (2, True)


def test_a_writer_of_its_own_signs_what_its_principal_wrote(folder, keys, run):
    assert run("keys", "add", "writer", "--principal", "alice", "--name", "acme/alice", "--apply")[0] == 0
    (keys / "memaudit-writer.key").unlink()
    assert run(*write(folder, principal="alice"))[0] == 0
    assert run("verify", "store")[0] == 0
    code, _, err = run(*write(folder, "m-2", principal="bob"))
    assert (code, "speaks for principal 'bob'" in one_line(err)) == (2, True)
    (row,) = (key for key in shown(run)["keys"] if key["name"] == "acme/alice")
    assert row["principals"] == ["alice"]


def test_a_key_that_another_holds_is_added_by_its_vkey(folder, keys, run):
    other = draw_key("acme/auditor-b").public()
    (folder / "theirs").write_text(other.vkey + "\n")
    assert run("keys", "add", "auditor", "--from", "theirs", "--apply")[0] == 0
    assert names(run, "auditor") == ["acme/auditor-b", "memaudit/auditor"]
    code, _, err = run("keys", "rotate", "auditor", "--no-store", "--from", "theirs", "--apply")
    assert (code, "a rotation needs the private key" in one_line(err)) == (2, True)


def test_a_key_is_revoked_and_its_past_stays(folder, keys, run):
    assert run(*write(folder))[0] == 0
    assert run("keys", "add", "log", "--apply")[0] == 0
    before = files(keys)
    code, out, _ = run("keys", "revoke", "log", "memaudit/log", "store")
    assert (code, files(keys)) == (0, before)
    assert "memaudit/log signs nothing more" in out
    assert "store: valid up to version 1, 1 log" in out
    assert run("keys", "revoke", "log", "memaudit/log", "store", "--apply")[0] == 0
    assert (names(run, "log"), names(run, "log", revoked=True)) == (["memaudit/log-2"], ["memaudit/log"])
    assert run("verify", "store")[0] == 0
    assert run(*write(folder, "m-2"))[0] == 0


def test_a_key_is_named_by_the_start_of_its_id(keys, run):
    assert run("keys", "add", "log", "--apply")[0] == 0
    (key_id,) = (key["key_id"] for key in shown(run)["keys"] if key["name"] == "memaudit/log")
    assert run("keys", "revoke", "log", key_id[:8], "--no-store", "--apply")[0] == 0
    assert names(run, "log") == ["memaudit/log-2"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("add", "log", "--principal", "alice"), "role log speaks for no principal"),
        (("add", "writer"), "say whom the writer speaks for"),
        (("add", "log", "--generate"), "a key comes from one place"),
        (("add", "log", "--from", "x", "--token", "y"), "a key comes from one place"),
        (("add", "log", "--from", "nowhere"), "key file nowhere: missing"),
        (("add", "log", "--token", "y"), "expected a PKCS#11 URI"),
        (("add", "log", "--name", "memaudit/log"), "exists, and no key is overwritten"),
        (("add", "log", "--name", "a b"), "no spaces"),
        (("revoke", "log", "memaudit/log", "--no-store"), "0 would be left: add one first"),
        (("revoke", "log", "memaudit/none", "--no-store"), "no log keys are called 'memaudit/none'"),
        (("revoke", "log", "memaudit/log"), "name the stores that the log key signed"),
        (("threshold", "log", "2", "--no-store"), "threshold 2 of role log, expected 1 to 1"),
        (("threshold", "writer", "1", "--no-store"), "threshold of role writer is 1"),
        (("threshold", "king", "1"), "role is 'king', expected one of root, writer, log, auditor"),
    ],
)
def test_what_cannot_be_is_one_line_and_changes_nothing(keys, run, words, line):
    before = files(keys)
    code, out, err = run("keys", *words, "--apply")
    assert (code in {2, 4}, out, files(keys)) == (True, "", before)
    assert line in one_line(err)


def test_an_interrupted_addition_is_finished_and_not_made_twice(keys, run):
    assert run("keys", "add", "log", "--apply")[0] == 0
    (keys / "memaudit-log-2.key").rename(keys / "memaudit-log-2.key.next")
    code, out, _ = run("keys", "add", "log", "--apply")
    assert (code, "an interrupted change of these keys was finished: log" in out) == (0, True)
    assert load_keyring(keys).policy.version == 2
