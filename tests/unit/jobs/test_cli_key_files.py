"""Keys at rest, as a user meets them: passphrases, keys of OpenSSL and keys in tokens, with all commands that sign."""

import json
import os
import pty
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest

from memory_audit.jobs import passphrases
from memory_audit.jobs.run.run_seal import Sealer, read_seal
from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.key_files.token import TokenKey, TokenSigner, generate_on_token, public_key_on_token
from memory_audit.provenance.keys import generate_keys, load_keyring, save_keyring
from memory_audit.provenance.policy_change import rotate_key
from tests.soft_token import PIN, soft_token
from tests.unit.jobs.test_cli_keys import files, shown

PASSPHRASE = "correct horse"  # noqa: S105
NAMES = ["memaudit-auditor.key", "memaudit-log.key", "memaudit-root.key", "memaudit-writer.key"]
NONE = ("--backbone", "none", "--embedder", "none")
FORGET = ("forget", "store", "m-1", "--tenant", "acme", "--reason", "x", *NONE)


@pytest.fixture
def keys(folder, set_up):
    set_up(("keys", "new"))
    return folder / "memaudit-keys"


@pytest.fixture
def encrypted(keys, run, monkeypatch):
    """A key folder whose passphrase is PASSPHRASE."""
    monkeypatch.setenv("MEMAUDIT_NEW_PASSPHRASE", PASSPHRASE)
    assert run("keys", "passphrase")[0] == 0
    return keys


@pytest.fixture
def secret(folder):
    """A file with PASSPHRASE."""
    path = folder / "secret"
    path.write_text(PASSPHRASE + "\n")
    path.chmod(0o600)
    return str(path)


def write(folder, entry_id="m-1", principal="bot"):
    line = {"entry_id": entry_id, "tenant": "acme", "principal": principal, "request": "q", "response": "r"}
    (folder / "m.jsonl").write_text(json.dumps(line))
    return "import", "jsonl:m.jsonl", "store"


def kept(run):
    return {key["name"]: key["kept"] for key in shown(run)["keys"] if not key["revoked"]}


def openssl(*words: str) -> str:
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl")
    return subprocess.run(["openssl", *words], capture_output=True, text=True, check=True, timeout=60).stdout


def one_line(error):
    assert error.count("\n") == 1, error
    return error


def test_new_keys_are_encrypted_where_there_is_a_passphrase(folder, run, secret):
    code, out, _ = run("--passphrase-file", secret, "keys", "new", "--json")
    assert (code, json.loads(out)["encrypted"]) == (0, True)
    assert all(b"BEGIN ENCRYPTED PRIVATE KEY" in (folder / "memaudit-keys" / name).read_bytes() for name in NAMES)
    assert {key["kept"] for key in shown(run)["keys"]} == {"passphrase"}
    assert run("--passphrase-file", secret, *write(folder))[0] == 0
    assert run("verify", "store")[0] == 0


def test_new_keys_without_one_are_plain_and_said_to_be(folder, run):
    code, out, _ = run("keys", "new")
    assert (code, "they are plain" in out, "`memaudit keys passphrase`" in out) == (0, True, True)


def test_openssl_opens_every_key_of_a_folder(encrypted, run, secret):
    known = {key["name"]: key["vkey"] for key in shown(run)["keys"]}
    for name in NAMES:
        text = openssl("pkey", "-in", str(encrypted / name), "-passin", f"file:{secret}", "-pubout")
        (encrypted.parent / "p.pem").write_text(text)
        assert known[f"memaudit/{name[9:-4]}"] in (encrypted / name).read_text()
        assert "BEGIN PUBLIC KEY" in text


def test_all_that_signs_signs_with_encrypted_keys(folder, encrypted, run, monkeypatch):
    def signs(*words: str) -> None:
        monkeypatch.setenv("MEMAUDIT_PASSPHRASE", PASSPHRASE)
        assert run(*words)[0] == 0

    signs(*write(folder))
    signs(*write(folder, "m-2"))
    signs(*FORGET, "--apply")
    signs("vacuum", "store", "--keep", "0d", "--apply")
    assert run("verify", "store")[0] == 0


def test_the_variable_is_not_left_to_processes_that_are_started(folder, encrypted, run, monkeypatch):
    monkeypatch.setenv("MEMAUDIT_PASSPHRASE", PASSPHRASE)
    assert run(*write(folder))[0] == 0
    assert "MEMAUDIT_PASSPHRASE" not in os.environ


def test_a_wrong_passphrase_and_none_are_one_line_and_write_nothing(folder, encrypted, run, monkeypatch):
    words = write(folder)
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "memaudit/log needs its passphrase" in one_line(err)
    monkeypatch.setenv("MEMAUDIT_PASSPHRASE", "wrong horse")
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "memaudit-log.key: the passphrase is wrong, or the file is damaged" in one_line(err)
    assert "horse" not in err
    assert not (folder / "store").exists()


def test_an_audit_that_cannot_open_its_key_does_not_run_unsealed(folder, encrypted, run, secret):
    assert run("--passphrase-file", secret, *write(folder))[0] == 0
    (folder / "e.jsonl").write_text("")
    code, _, err = run("audit", "store", "--events", "e.jsonl", "--out", "run", "--local")
    assert (code, "memaudit/auditor needs its passphrase" in err) == (2, True)


def test_a_passphrase_in_a_file_that_others_may_read_is_refused(folder, encrypted, run, secret):
    os.chmod(secret, 0o644)  # noqa: PTH101
    code, _, err = run("--passphrase-file", secret, *write(folder))
    assert (code, "the passphrase is open to others: chmod 600 it" in one_line(err)) == (2, True)


@pytest.mark.parametrize("text", [b"", b"\n", b"x" * 1_100])
def test_a_file_without_a_passphrase_is_told(folder, encrypted, run, secret, text):
    with open(secret, "wb") as file:  # noqa: PTH123
        file.write(text)
    code, _, err = run("--passphrase-file", secret, *write(folder))
    assert (code, "expected 1 to 1,024" in one_line(err)) == (2, True)


def test_each_key_has_its_own_passphrase_from_a_folder(folder, keys, run):
    secrets = folder / "secrets"
    secrets.mkdir()
    for name in NAMES:
        (secrets / name[:-4]).write_text(f"of {name}")
        (secrets / name[:-4]).chmod(0o600)
    assert run("keys", "passphrase", "--new-passphrase-file", "secrets")[0] == 0
    (secrets / "memaudit-root").unlink()
    assert run("--passphrase-file", "secrets", *write(folder))[0] == 0
    code, _, err = run("--passphrase-file", "secrets", "keys", "rotate", "log", "store", "--apply")
    assert (code, "secrets/memaudit-root: cannot read the passphrase" in one_line(err)) == (2, True)


def test_a_passphrase_is_changed_and_taken_off(folder, encrypted, run, monkeypatch):
    before = load_keyring(encrypted).policy
    monkeypatch.setenv("MEMAUDIT_PASSPHRASE", PASSPHRASE)
    monkeypatch.setenv("MEMAUDIT_NEW_PASSPHRASE", "another")
    assert run("keys", "passphrase")[0] == 0
    assert load_keyring(encrypted, lambda _: b"another").signers("root")
    monkeypatch.setenv("MEMAUDIT_PASSPHRASE", "another")
    code, out, _ = run("keys", "passphrase", "--none", "--json")
    assert (code, json.loads(out)) == (0, {"encrypted": False, "files": NAMES})
    assert load_keyring(encrypted).signers("root")
    assert load_keyring(encrypted).policy == before


def test_a_folder_of_an_earlier_version_is_rewritten_whole(folder, run, monkeypatch):
    keyring = generate_keys()
    save_keyring(keyring, folder / "memaudit-keys")
    for (key,) in keyring.keys.values():
        assert isinstance(key, PrivateKey)
        (folder / "memaudit-keys" / f"{key.name.replace('/', '-')}.key").write_text(key.to_text())
    assert run(*write(folder))[0] == 0
    monkeypatch.setenv("MEMAUDIT_NEW_PASSPHRASE", PASSPHRASE)
    assert run("keys", "passphrase")[0] == 0
    held = files(folder / "memaudit-keys")
    assert sorted(held) == [*NAMES, "policy.json"]
    assert not any(b"PRIVATE+KEY" in data for data in held.values())
    assert {stat.S_IMODE((folder / "memaudit-keys" / name).stat().st_mode) for name in NAMES} == {0o600}
    again = load_keyring(folder / "memaudit-keys", lambda _: PASSPHRASE.encode())
    assert [key.sign(b"m") for key in again.signers("log")] == [keyring.keys["log"][0].sign(b"m")]


def test_one_wrong_passphrase_rewrites_no_key(keys, encrypted, run, monkeypatch):
    before = files(encrypted)
    monkeypatch.setenv("MEMAUDIT_PASSPHRASE", "wrong")
    monkeypatch.setenv("MEMAUDIT_NEW_PASSPHRASE", "another")
    code, _, err = run("keys", "passphrase")
    assert (code, files(encrypted)) == (2, before)
    assert "the passphrase is wrong" in one_line(err)


def test_an_empty_new_passphrase_is_no_way_to_take_it_off(encrypted, run, monkeypatch):
    before = files(encrypted)
    for value in ("", None):
        monkeypatch.setenv("MEMAUDIT_PASSPHRASE", PASSPHRASE)
        monkeypatch.delenv("MEMAUDIT_NEW_PASSPHRASE", raising=False)
        if value is not None:
            monkeypatch.setenv("MEMAUDIT_NEW_PASSPHRASE", value)
        assert (run("keys", "passphrase")[0], files(encrypted)) == (2, before)


def test_a_rotated_key_is_encrypted_as_the_others_are(folder, encrypted, run, secret):
    assert run("--passphrase-file", secret, *write(folder))[0] == 0
    assert run("--passphrase-file", secret, "keys", "rotate", "log", "store", "--apply")[0] == 0
    assert kept(run)["memaudit/log-2"] == "passphrase"
    assert run("--passphrase-file", secret, "keys", "rotate", "root", "--apply")[0] == 0
    assert b"ENCRYPTED" in (encrypted / "memaudit-root.key.retired").read_bytes()
    assert run("--passphrase-file", secret, *write(folder, "m-2"))[0] == 0


@pytest.mark.parametrize("cipher", [(), ("-aes-256-cbc", "-pass", f"pass:{PASSPHRASE}")])
def test_a_key_that_openssl_made_is_taken_and_signs(folder, keys, run, cipher, monkeypatch):
    assert run(*write(folder))[0] == 0
    (folder / "o.pem").write_text(openssl("genpkey", "-algorithm", "ed25519", *cipher))
    (folder / "o.pem").chmod(0o600)
    monkeypatch.setenv("MEMAUDIT_PASSPHRASE", PASSPHRASE)
    assert run("keys", "rotate", "log", "store", "--from", "o.pem", "--apply")[0] == 0
    assert kept(run)["memaudit/log-2"] == "passphrase"
    monkeypatch.setenv("MEMAUDIT_PASSPHRASE", PASSPHRASE)
    assert run(*write(folder, "m-2"))[0] == 0
    assert run("verify", "store")[0] == 0


def test_a_key_that_openssl_wrote_anew_is_read_in_its_place(folder, encrypted, run, secret):
    path = encrypted / "memaudit-log.key"
    path.write_text(openssl("pkey", "-in", str(path), "-passin", f"file:{secret}"))
    path.chmod(0o600)
    assert kept(run)["memaudit/log"] == "plain"
    path.write_text(openssl("pkey", "-in", str(path), "-aes256", "-passout", f"file:{secret}"))
    assert kept(run)["memaudit/log"] == "passphrase"
    assert run("--passphrase-file", secret, *write(folder))[0] == 0


def test_keys_of_another_type_and_two_keys_are_refused(folder, keys, run):
    before = files(keys)
    made = openssl("genpkey", "-algorithm", "ed25519")
    for text, line in (
        (openssl("genpkey", "-algorithm", "rsa"), "a key of type RSA, expected Ed25519"),
        (made * 2, "2 PEM blocks, expected one private key"),
        ("hello\n", "not a private key file of MemAudit, nor a PEM"),
    ):
        (folder / "o.pem").write_text(text)
        (folder / "o.pem").chmod(0o600)
        code, _, err = run("keys", "add", "log", "--from", "o.pem", "--apply")
        assert (code in {2, 4}, files(keys)) == (True, before)
        assert line in one_line(err)
    (folder / "o.pem").write_text(made)
    (folder / "o.pem").chmod(0o640)
    assert run("keys", "add", "log", "--from", "o.pem", "--apply")[0] == 0  # a group may read, as with mounted secrets
    (folder / "o.pem").chmod(0o644)
    assert "is open to others" in run("keys", "add", "log", "--from", "o.pem", "--apply")[2]


def test_a_passphrase_that_is_typed_is_asked_for_once_a_key(folder, encrypted, run, monkeypatch):
    asked = []

    def typed(prompt):
        asked.append(prompt)
        return PASSPHRASE

    monkeypatch.setattr(passphrases, "_is_terminal", lambda: True)
    monkeypatch.setattr("getpass.getpass", typed)
    assert run(*write(folder))[0] == 0
    assert asked == ["passphrase or PIN of memaudit/log: ", "passphrase or PIN of memaudit/writer: "]


def test_a_new_passphrase_is_typed_twice(folder, run, monkeypatch):
    answers = ["one", "another"]
    monkeypatch.setattr(passphrases, "_is_terminal", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda _: answers.pop(0))
    code, _, err = run("keys", "new")
    assert (code, "two different passphrases: nothing was written" in one_line(err)) == (2, True)
    assert not (folder / "memaudit-keys").exists()
    answers += ["one", "one"]
    assert run("keys", "new")[0] == 0
    assert answers == []
    assert load_keyring(folder / "memaudit-keys", lambda _: b"one").signers("root")


@pytest.mark.timeout(100)
def test_a_real_terminal_is_asked_past_standard_input_and_shows_nothing(folder, encrypted, run):
    write(folder)
    program = "from memory_audit.jobs.command import main; main()"
    child, terminal = pty.fork()
    if child == 0:
        with open("m.jsonl", "rb") as memories:  # noqa: PTH123
            os.dup2(memories.fileno(), 0)
        os.execv(sys.executable, [sys.executable, "-c", program, "import", "jsonl:-", "store"])  # noqa: S606
    seen, answered, until = b"", 0, time.monotonic() + 80
    try:
        while time.monotonic() < until:
            try:
                seen += os.read(terminal, 4_096)
            except OSError:  # the other end is closed
                break
            if seen.count(b"passphrase or PIN of") > answered:
                answered += 1
                os.write(terminal, PASSPHRASE.encode() + b"\n")
    finally:
        os.close(terminal)
        if time.monotonic() >= until:
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert (code, answered) == (0, 2), seen
    assert PASSPHRASE.encode() not in seen
    assert run("verify", "store")[0] == 0


@pytest.fixture
def uri(tmp_path_factory):
    with soft_token(tmp_path_factory.mktemp("softhsm")) as uri:
        yield uri


@pytest.mark.tool("softhsm")
def test_all_roles_sign_from_a_token(folder, keys, run, uri, monkeypatch):
    monkeypatch.setenv("MEMAUDIT_PASSPHRASE_FILE", str(folder / "pin"))
    (folder / "pin").write_text(PIN)
    (folder / "pin").chmod(0o600)
    assert run(*write(folder))[0] == 0
    for role in ("writer", "log", "auditor", "root"):
        words = ("keys", "rotate", role, "store", "--token", uri(role), "--generate")
        before = files(keys)
        assert (run(*words)[0], files(keys)) == (0, before)
        assert run(*words, "--apply")[0] == 0
    assert set(kept(run).values()) == {"token"}
    assert run(*write(folder, "m-2"))[0] == 0
    assert run(*FORGET, "--apply")[0] == 0
    assert run("redate", "store", "--apply")[0] == 0
    assert run("verify", "store", "--deep")[0] == 0
    assert run("keys", "add", "log", "--apply")[0] == 0  # signed by the root key in the token


@pytest.mark.tool("softhsm")
def test_a_key_in_a_token_is_no_use_without_it(folder, keys, run, uri, monkeypatch):
    monkeypatch.setenv("MEMAUDIT_PASSPHRASE", PIN)
    assert run("keys", "rotate", "log", "--no-store", "--token", uri("log"), "--generate", "--apply")[0] == 0
    path = keys / "memaudit-log-2.key"
    assert path.read_text().splitlines()[1] == uri("log")
    path.write_text(path.read_text().replace("object=log", "object=lost"))
    monkeypatch.setenv("MEMAUDIT_PASSPHRASE", PIN)
    code, _, err = run(*write(folder))
    assert (code, "memaudit-log-2.key: the token has no such key" in one_line(err)) == (2, True)
    assert not (folder / "store").exists()


@pytest.mark.tool("softhsm")
def test_a_run_is_sealed_and_continued_by_a_key_in_a_token(folder, uri):
    key, name = TokenKey.parse(uri("auditor"), "f"), "memaudit/auditor-2"

    def pin() -> bytes:
        return PIN.encode()

    generate_on_token(key, pin, "f")
    auditor = TokenSigner.open(key, public_key_on_token(key, name, pin, "f"), pin, "f")
    keyring = rotate_key(generate_keys(), "auditor", auditor, logs={}, manifests={})
    codes = [Sealer(keyring).codes({"run": "r"}).of("replays", "m", b"x") for _ in range(2)]
    assert codes[0] == codes[1] != Sealer().codes({"run": "r"}).of("replays", "m", b"x")
    sealer = Sealer(keyring)
    sealer.write(folder, "result.json", b"x")
    sealed = read_seal(sealer.seal(folder, "ab" * 16, 1), keyring.policy, "f")
    assert (sealed.version, list(sealed.files)) == (1, ["result.json"])
