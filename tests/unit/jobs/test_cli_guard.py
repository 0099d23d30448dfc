"""What `memaudit guard serve` saw of a store is kept while it runs, so that a store that goes back is refused later."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from memory_audit.errors import VerificationError
from memory_audit.jobs.store.store_session import remember
from memory_audit.provenance.keys import save_policy
from memory_audit.snapshot.pin import read_pin, write_pin
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from tests.unit.snapshot.stores import STORE_ID, entry, keyring, open_store


@pytest.fixture
def store(folder):
    """A store of one version, whose policy is installed."""
    save_policy(keyring().policy, folder / "policy.json")
    create_store(folder / "store", [entry("acme", "e1", created_at_ms=1)], keyring(), now_ms=1, store_id=STORE_ID)
    return folder / "store"


def publish(store, entry_id):
    append_entries(store, [entry("acme", entry_id, created_at_ms=1)], keyring(), now_ms=1)


@pytest.fixture
def serve(store, run, monkeypatch):
    """Serve while something is done; returns exit code, standard output and standard error."""

    def command(while_served, *words):  # noqa: ANN002
        def end_after_it():
            try:
                while_served()
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        monkeypatch.setattr(
            "memory_audit.jobs.guard.server._say", lambda _: threading.Thread(target=end_after_it).start()
        )
        return run(
            "guard", "serve", "store", "--trust", "policy.json", "--pin", "pin.json", "--mode", "behaviour",
            "--embedder", "fake", "--port", "0", "--refresh-s", "0.02", *words,
        )  # fmt: skip

    return command


def wait_for(true):
    for _ in range(500):
        if true():
            return
        time.sleep(0.02)
    pytest.fail("it did not come about")


def test_a_store_that_goes_back_to_before_the_guard_ended_is_refused_at_its_next_start(store, serve):
    pin = store.parent / "pin.json"

    def while_served():
        for number in (2, 3):
            publish(store, f"e{number}")
            wait_for(lambda: read_pin(pin).version == number)  # noqa: B023 - called at once

    assert serve(while_served)[0] == 0
    (store / "manifests" / "3.json").unlink()
    code, _, err = serve(lambda: pytest.fail("a store that went back was served"))
    assert (code, "version 2 is below the pinned 3 (rollback)" in err) == (4, True)


def test_a_later_version_that_another_process_saw_stays_pinned(store):
    pin, seen = store.parent / "pin.json", open_store(store)
    publish(store, "e2")
    write_pin(pin, open_store(store).pin())
    remember(seen, pin)
    assert read_pin(pin).version == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"digest": "0" * 64}, "equivocation"), ({"store_id": "0" * 32}, "the pin is of store 0000"),
        ({"store_id": "0" * 32, "version": 9}, "the pin is of store 0000"),
    ],
)  # fmt: skip
def test_a_pin_that_contradicts_what_was_seen_is_told(store, changes, message):
    pin, seen = store.parent / "pin.json", open_store(store)
    write_pin(pin, replace(seen.pin(), **changes))
    kept = pin.read_bytes()
    with pytest.raises(VerificationError, match=message):
        remember(seen, pin)
    assert pin.read_bytes() == kept


def test_a_tenant_may_be_spelled_in_either_unicode_form(store, serve):
    append_entries(store, [entry("caf\u00e9", "e1", created_at_ms=2)], keyring(), now_ms=2)
    for spelled in ("caf\u00e9", "cafe\u0301"):
        assert serve(lambda: None, "--tenant", spelled)[0] == 0


TOKEN = "a token of enough letters"  # noqa: S105 - a test's own


@pytest.fixture
def with_token(store, run):
    """Serve with a token file of a mode, at a port that there is not; returns the line that says what is wrong."""

    def command(mode, text=TOKEN):
        file = store.parent / "token"
        file.write_text(text)
        file.chmod(mode)
        code, _, err = run("guard", "serve", "store", "--token-file", "token", "--port", "70000")
        assert (code, err.count("\n")) == (2, 1)
        return err.removeprefix("memaudit: ").strip()

    return command


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o602])
def test_a_token_that_others_may_read_or_write_is_refused(with_token, mode):
    assert with_token(mode) == "token: the token is open to others: chmod 600 it"


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640])
def test_a_token_of_its_owner_and_group_is_taken(with_token, mode):
    assert with_token(mode, f"{TOKEN}\n") == "--port is 70000, expected 0 to 65535"


@pytest.mark.parametrize("text", ["", "short", "x" * 5_000, "y" * 100_000, f"{TOKEN}\n{TOKEN}"])
def test_a_token_has_bounds(with_token, text):
    assert with_token(0o600, text) == "the guard's token must have 16 to 4,096 printable ASCII characters"


def test_a_token_may_come_from_a_pipe(with_token, store, run):
    reads, writes = os.pipe()
    os.write(writes, TOKEN.encode())
    os.close(writes)
    code, _, err = run("guard", "serve", "store", "--token-file", f"/dev/fd/{reads}", "--port", "70000")
    os.close(reads)
    assert (code, "--port is 70000" in err) == (2, True)
