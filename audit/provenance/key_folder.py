"""A rotation in a key folder: new key, new policy and old root key change places in steps that can be undone.

1. The new private key is written as NAME.key.next, and an old root key, which the next policy names no more, set aside
   as NAME.key.retired.
2. `policy.json` is replaced: this is the rotation.
3. NAME.key.next becomes NAME.key.

Killed between two steps, `settle` finishes it where the policy was replaced, and takes it back where it was not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.errors import UsageError
from audit.provenance import durable
from audit.provenance.ed25519 import PrivateKey
from audit.provenance.keys import MAX_KEY_FILE_BYTES, POLICY_FILE, key_file, load_policy, save_policy

if TYPE_CHECKING:
    from pathlib import Path

    from audit.provenance.keys import Keyring

__all__ = ["install_rotation", "settle"]

NEXT, RETIRED = ".next", ".retired"


def install_rotation(folder: Path, before: Keyring, after: Keyring) -> None:
    """Write what `audit.provenance.keys.rotate_key` made of a folder's keyring.

    Raises:
        UsageError: a file of the new key's name exists; nothing was changed.
        IncompleteError: the disk is full, or another operating system error; `settle` says what holds.
    """
    known = {key.public().key_id for keys in before.keys.values() for key in keys}
    new = [key for keys in after.keys.values() for key in keys if key.public().key_id not in known]
    listed = {key_id for role in after.policy.roles.values() for key_id in role.keys}
    places = {folder / key_file(key): key for key in new}
    for path in places:
        if path.exists():
            raise UsageError(f"{path}: exists, and no key is overwritten: give the new key another --name")
    for path, key in places.items():
        durable.replace(_named(path, NEXT), key.to_text().encode(), mode=0o600)
    for path in sorted(folder.glob("*.key")):
        if _key_id(path) not in listed:
            _move(path, _named(path, RETIRED))
    save_policy(after.policy, folder / POLICY_FILE)
    for path in places:
        _move(_named(path, NEXT), path)


def settle(folder: Path) -> bool:
    """Finish a rotation that was interrupted after its policy was in place, or take back one before.

    Returns:
        True where one was finished.

    Raises:
        UsageError, VerificationError: the folder's policy or a key of the rotation cannot be read.
        IncompleteError: an operating system error.
    """
    policy = load_policy(folder / POLICY_FILE)
    listed = {key_id for role in policy.roles.values() for key_id in role.keys}
    finished = False
    for path in sorted(folder.glob(f"*.key{NEXT}")):
        if _key_id(path) in listed:
            _move(path, path.with_suffix(""))
            finished = True
        else:  # it never signed anything
            durable.remove(path)
    for path in sorted(folder.glob(f"*.key{RETIRED}")):
        if _key_id(path) in listed:
            _move(path, path.with_suffix(""))
    return finished


def _named(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def _key_id(path: Path) -> str:
    data = durable.read_bounded(path, MAX_KEY_FILE_BYTES, f"private key {path.name}")
    return PrivateKey.from_text(data.decode("utf-8", "replace"), f"private key {path.name}").public().key_id


def _move(path: Path, to: Path) -> None:
    durable.create(to, durable.read_bounded(path, MAX_KEY_FILE_BYTES, path.name), scratch=to.parent, mode=0o600)
    durable.remove(path)
