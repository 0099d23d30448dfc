"""A rotation in a key folder, whole and cut off at any step."""

import contextlib
import stat

import pytest

from audit.errors import UsageError
from audit.provenance import durable, key_folder
from audit.provenance.key_folder import install_rotation, settle
from audit.provenance.keys import generate_keys, load_keyring, rotate_key, save_keyring


@pytest.fixture(params=["root", "writer", "log"])
def rotation(request, tmp_path):
    """A folder, its keyring, and that after a rotation."""
    before = generate_keys()
    save_keyring(before, tmp_path / "k")
    return tmp_path / "k", before, rotate_key(before, request.param, "memaudit/new", logs={}, manifests={})


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
            patch.setattr(key_folder.durable, name, counted(getattr(durable, name)))
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
