"""A change of policy in a key folder: new key, new policy and old root key change places in steps that can be undone.

1. A new private key is written as NAME.key.next, and an old root key, which the next policy names no more, set aside as
   NAME.key.retired.
2. `policy.json` is replaced: this is the change.
3. NAME.key.next becomes NAME.key.

Killed between two steps, `settle` finishes it where the policy was replaced, and takes it back where it was not; either
way it removes half-written copies of keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.provenance import durable
from memory_audit.provenance.key_files.key_file import MAX_KEY_FILE_BYTES, encode_key, read_key
from memory_audit.provenance.keys import (
    NEXT,
    POLICY_FILE,
    RETIRED,
    by_file_name,
    key_file,
    load_policy,
    save_policy,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.trust_policy import RoleName

__all__ = ["install_rotation", "settle"]


def install_rotation(
    folder: Path, before: Keyring, after: Keyring, passphrase: Callable[[str], bytes | None] = lambda _: None
) -> None:
    """Write what a function of `policy_change` made of a folder's keyring; the folder is locked by the caller.

    Args:
        folder: Where it is.
        before: Its keyring.
        after: That which it is to hold.
        passphrase: Gives that of a new key, by the key's name; None leaves it plain.

    Raises:
        UsageError: a file that would be written exists; nothing was changed.
        IncompleteError: the disk is full, or another operating system error; `settle` says what holds.
    """
    known = {key.public().key_id for keys in before.keys.values() for key in keys}
    new = [key for keys in after.keys.values() for key in keys if key.public().key_id not in known]
    roles, named = after.policy.roles_by_key(), by_file_name(before.policy)
    places = {folder / key_file(key): encode_key(key, passphrase) for key in new}
    for path in places:
        if path.exists():
            raise UsageError(f"{path}: exists, and no key is overwritten: give the new key another --name")
    held = {path: read_key(path, named=named).public() for path in sorted(folder.glob("*.key"))}
    dropped = {path: key for path, key in held.items() if key.key_id not in roles}
    for path in dropped:
        if (taken := _named(path, RETIRED)).exists():
            raise UsageError(f"{taken}: exists, and no key is overwritten: move it elsewhere")
    for path, data in places.items():
        durable.replace(_named(path, NEXT), data, mode=0o600)
    for path, key in dropped.items():
        _move(path, _named(path, RETIRED), vkey=key.vkey)
    save_policy(after.policy, folder / POLICY_FILE)
    for path in places:
        _move(_named(path, NEXT), path)


def settle(folder: Path) -> frozenset[RoleName]:
    """Finish a rotation that was interrupted after its policy was in place, or take back one before.

    The folder is locked by the caller.

    Returns:
        The roles whose rotation was finished.

    Raises:
        UsageError, VerificationError: the folder's policy or a key of the rotation cannot be read.
        IncompleteError: an operating system error.
    """
    durable.remove_leftovers(folder)  # first: once the last file is in its place, nobody knows of a rotation any more
    policy = load_policy(folder / POLICY_FILE)
    roles = policy.roles_by_key()
    finished: set[RoleName] = set()
    for path in sorted(folder.glob(f"*.key{NEXT}")):
        role = roles.get(read_key(path).public().key_id)
        if role is None:  # it never signed anything
            durable.remove(path)
        else:
            _move(path, path.with_suffix(""))
            finished.add(role)
    for path in sorted(folder.glob(f"*.key{RETIRED}")):
        if read_key(path).public().key_id in roles:
            _move(path, path.with_suffix(""))
    return frozenset(finished)


def _named(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def _move(path: Path, to: Path, *, vkey: str = "") -> None:
    """Give a key's file another name.

    Args:
        path: The file.
        to: Its new name.
        vkey: Whose it is, for a PEM that does not say it, and that no policy will name any more.

    Raises:
        UsageError: there is another key of that name; neither is touched.
        VerificationError: what is there is no file, or larger than a key.
    """
    data = durable.read_bounded(path, MAX_KEY_FILE_BYTES, f"private key {path.name}")
    if vkey and data.startswith(b"-----BEGIN "):
        data = f"{vkey}\n".encode() + data
    if not durable.create(to, data, scratch=to.parent, mode=0o600) and (
        durable.read_bounded(to, MAX_KEY_FILE_BYTES, f"private key {to.name}") != data
    ):
        raise UsageError(f"{to}: exists, and no key is overwritten: move it, then start again")
    durable.remove(path)
