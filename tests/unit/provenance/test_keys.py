"""Key folders."""

import stat

import pytest

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.keys import generate_keys, load_keyring, load_policy, save_keyring, save_policy


@pytest.fixture
def folder(tmp_path):
    save_keyring(generate_keys(), tmp_path / "keys")
    return tmp_path / "keys"


def test_a_key_folder_round_trips(tmp_path):
    keyring = generate_keys("acme")
    save_keyring(keyring, tmp_path / "k")
    again = load_keyring(tmp_path / "k")
    assert dict(again.keys) == dict(keyring.keys)
    assert again.policy == keyring.policy
    assert again.writer_for("anyone").name == "acme/writer"


def test_private_keys_are_readable_by_their_owner_only(folder):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert {mode for name, mode in modes.items() if name.endswith(".key")} == {0o600}
    assert len(modes) == 5


def test_an_open_key_file_is_refused(folder):
    (folder / "memaudit-log.key").chmod(0o644)
    with pytest.raises(UsageError, match=r"memaudit-log\.key is open to others: chmod 600"):
        load_keyring(folder)


def test_a_folder_without_the_root_key_still_signs(folder):
    (folder / "memaudit-root.key").unlink()
    keyring = load_keyring(folder)
    assert keyring.signers("log")[0].name == "memaudit/log"
    with pytest.raises(UsageError, match="0 usable root keys"):
        keyring.signers("root")


def test_existing_keys_are_never_overwritten(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UsageError, match=r"policy\.json: exists, and no key .*: use .*--keys .*memaudit keys new"):
        save_keyring(generate_keys(), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_an_interrupted_start_left_is_named(folder):
    (folder / "policy.json").unlink()
    with pytest.raises(UsageError, match=r"memaudit-auditor\.key: exists, and there is no policy\.json beside it"):
        save_keyring(generate_keys("other"), folder)
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize("name", ["a+b", "é" * 150])
def test_a_name_that_no_key_can_have_is_refused(name):
    with pytest.raises(UsageError, match=r"name"):
        generate_keys(name)


def test_a_key_without_a_role_is_refused(folder):
    stranger = folder / "stranger.key"
    stranger.write_text(PrivateKey.generate("stranger").to_text())
    stranger.chmod(0o600)
    with pytest.raises(VerificationError, match="gives key stranger no role"):
        load_keyring(folder)


def test_a_damaged_key_is_refused_without_showing_it(folder):
    path = folder / "memaudit-log.key"
    text = path.read_text()
    path.write_text(text[:-9] + "AAAA" + text[-5:])
    with pytest.raises(VerificationError, match="damaged private key") as failure:
        load_keyring(folder)
    assert text[-20:-9] not in str(failure.value)


def test_a_missing_policy_says_how_to_get_one(tmp_path):
    with pytest.raises(UsageError, match="no policy file"):
        load_policy(tmp_path / "policy.json")


def test_a_policy_is_installed_in_one_step(tmp_path):
    policy = generate_keys().policy
    save_policy(policy, tmp_path / "policy.json")
    assert load_policy(tmp_path / "policy.json") == policy


def test_a_keyring_never_shows_seeds():
    keyring = generate_keys()
    (key,) = keyring.keys["log"]
    assert isinstance(key, PrivateKey)
    assert key.seed.hex() not in repr(keyring)
    assert "memaudit/log" in repr(keyring)


def test_refused_keys_leave_the_folder_as_it_was(folder):
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(UsageError, match="no key is overwritten"):
        save_keyring(generate_keys("other"), folder)  # other file names, and the same policy file
    assert sorted(path.name for path in folder.iterdir()) == before
    assert load_keyring(folder).signers("log")
