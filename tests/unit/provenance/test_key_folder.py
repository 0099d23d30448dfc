"""A rotation in a key folder, whole and cut off at any step."""

import contextlib
import os
import stat
import threading

import pytest

from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.provenance import durable
from memory_audit.provenance.folder_lock import locked
from memory_audit.provenance.key_folder import install_rotation, settle
from memory_audit.provenance.keys import Keyring, draw_key, generate_keys, load_keyring, save_keyring
from memory_audit.provenance.policy_change import rotate_key
from memory_audit.provenance.trust_policy import Role, sign_policy


@pytest.fixture(params=["root", "writer", "log"])
def rotation(request, tmp_path):
    """A folder, its keyring, and that after a rotation."""
    before = generate_keys()
    save_keyring(before, tmp_path / "k")
    return tmp_path / "k", before, rotate_key(before, request.param, draw_key("memaudit/new"), logs={}, manifests={})


def test_a_rotation_is_what_the_folder_then_holds(rotation):
    folder, before, after = rotation
    install_rotation(folder, before, after)
    again = load_keyring(folder)
    assert again.policy == after.policy
    assert {role: set(keys) for role, keys in again.keys.items()} == {
        role: set(keys) for role, keys in after.keys.items()
    }
    assert stat.S_IMODE((folder / "memaudit-new.key").stat().st_mode) == 0o600
    assert not settle(folder)
    assert load_keyring(folder).policy == after.policy


def test_a_key_file_of_that_name_is_not_overwritten(rotation):
    folder, before, after = rotation
    (folder / "memaudit-new.key").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"memaudit-new\.key: exists.*--name"):
        install_rotation(folder, before, after)
    assert (folder / "memaudit-new.key").read_bytes() == b"mine"


@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_a_new_key_is_not_waited_for(rotation):
    folder, before, after = rotation
    install_rotation(folder, before, after)
    (folder / "memaudit-new.key").rename(folder / "memaudit-new.key.next")
    os.mkfifo(folder / "memaudit-new.key")
    with pytest.raises(VerificationError, match=r"private key memaudit-new\.key: not a file"):
        settle(folder)


def test_a_retired_key_of_that_name_is_not_overwritten(tmp_path):
    before = generate_keys()
    save_keyring(before, tmp_path / "k")
    retired = tmp_path / "k" / "memaudit-root.key.retired"
    retired.write_text(draw_key("memaudit/old").to_text())
    after = rotate_key(before, "root", draw_key("memaudit/new"), logs={}, manifests={})
    with pytest.raises(UsageError, match=r"retired: exists"):
        install_rotation(tmp_path / "k", before, after)
    assert load_keyring(tmp_path / "k").policy == before.policy


def test_keys_that_were_rotated_meanwhile_publish_nothing(rotation):
    folder, before, after = rotation
    stale = load_keyring(folder)
    with stale.unchanged():
        pass
    install_rotation(folder, before, after)
    with pytest.raises(StalePlanError, match="were rotated since this began; start again"), stale.unchanged():
        raise AssertionError
    with load_keyring(folder).unchanged():
        pass


def test_a_rotation_waits_for_what_is_being_published(rotation):
    folder, _, _ = rotation
    done = []

    def rotate():
        with locked(folder):
            done.append("locked")

    with load_keyring(folder).unchanged():
        waiting = threading.Thread(target=rotate)
        waiting.start()
        waiting.join(0.2)
        assert done == []
    waiting.join(10)
    assert done == ["locked"]


def test_an_interrupted_rotation_is_named_to_whoever_needs_the_keys(rotation):
    folder, before, after = rotation
    install_rotation(folder, before, after)
    (folder / "memaudit-new.key").rename(folder / "memaudit-new.key.next")
    with pytest.raises(UsageError, match=r"was interrupted \(memaudit-new\.key\.next\): `memaudit keys rotate"):
        load_keyring(folder)


def test_a_writer_that_speaks_for_some_is_not_followed_by_one_that_speaks_for_all():
    first = generate_keys()
    old = first.policy.roles["writer"]
    narrow = Role(threshold=1, keys=old.keys, principals={key_id: frozenset({"alice"}) for key_id in old.keys})
    policy = sign_policy(
        version=2, roles={**first.policy.roles, "writer": narrow}, revoked={}, previous=first.policy,
        root_keys=list(first.keys["root"]),
    )  # fmt: skip
    with pytest.raises(UsageError, match="speaks for some principals only"):
        rotate_key(Keyring(policy=policy, keys=first.keys), "writer", draw_key("memaudit/new"), logs={}, manifests={})


def test_a_policy_that_readers_would_refuse_is_not_signed():
    logs = {f"memaudit/{'0' * 32}/{'t' * 150}{number}": 1 for number in range(80_000)}
    with pytest.raises(UsageError, match=r"would have [0-9,]+ bytes, readers take"):
        rotate_key(generate_keys(), "log", draw_key("memaudit/new"), logs=logs, manifests={})


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("steps", range(12))
def test_killed_at_any_step_either_policy_holds_with_its_keys(rotation, steps, monkeypatch):
    folder, before, after = rotation
    left = steps

    def counted(act):
        def step(*arguments: object, **options: object):
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return act(*arguments, **options)

        return step

    with monkeypatch.context() as patch:
        for name in ("create", "replace", "remove"):
            patch.setattr(durable, name, counted(getattr(durable, name)))
        with contextlib.suppress(Killed):
            install_rotation(folder, before, after)
    finished = settle(folder)
    held = load_keyring(folder)
    expected = after if held.policy == after.policy else before
    assert held.policy == expected.policy
    for role, keys in expected.keys.items():
        assert set(held.keys[role]) == set(keys)
        held.signers(role)
    assert not finished or expected is after
    assert sorted(path.name for path in folder.glob("*.next")) == []
    if expected is before:  # it can be made again
        install_rotation(folder, before, after)
        assert load_keyring(folder).policy == after.policy
