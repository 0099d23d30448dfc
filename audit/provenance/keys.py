"""Private keys on disk, and the keyring that signs with them.

A key folder holds `policy.json` (public: copy it to every verifier) and one `NAME.key` file per private key, readable
by its owner only, in the form of Go's note package. Which role a key has is the policy's word, not the file name's.
A folder without the root key is a working folder: the root is needed only to change the policy, and is best kept away.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args

from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.provenance import durable
from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.folder_lock import locked
from memory_audit.provenance.trust_policy import (
    ANY_PRINCIPAL,
    MAX_POLICY_BYTES,
    Revocation,
    Role,
    RoleName,
    TrustPolicy,
    sign_policy,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = [
    "MAX_KEY_FILE_BYTES", "NEXT", "OPEN_TO_OTHERS", "POLICY_FILE", "RETIRED", "Keyring", "generate_keys", "key_file",
    "load_keyring", "load_policy", "read_key", "read_keyring", "rotate_key", "save_keyring", "save_policy",
]  # fmt: skip

POLICY_FILE = "policy.json"

MAX_KEY_FILE_BYTES = 1_024

MAX_FILE_NAME_BYTES = 200
"""Of a key's file: what a rotation adds fits into the 255 that file systems take."""

NEXT, RETIRED = ".next", ".retired"
"""What a rotation adds to the names of keys that are not in use yet, or no more (`provenance.key_folder`)."""

OPEN_TO_OTHERS = stat.S_IWGRP | stat.S_IRWXO
"""What the mode of a secret's file may not have: its group may read (mounted secrets often are so) and nobody else, and
only the owner writes."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Keyring:
    """Private keys by role, with the policy that gives them their roles."""

    policy: TrustPolicy
    keys: Mapping[RoleName, tuple[PrivateKey, ...]]
    folder: Path | None = None
    """Where it was read from."""

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Keep the folder from being rotated, while what these keys signed is published.

        Raises:
            StalePlanError: it was rotated since the keys were read: they may be revoked from here on.
        """
        if self.folder is None:
            yield
            return
        with locked(self.folder, shared=True):
            if load_policy(self.folder / POLICY_FILE).digest != self.policy.digest:
                raise StalePlanError(f"the keys in {self.folder} were rotated since this began; start again")
            yield

    def __repr__(self) -> str:
        names = {role: [key.name for key in keys] for role, keys in self.keys.items()}
        return f"Keyring({names})"

    def signers(self, role: RoleName) -> tuple[PrivateKey, ...]:
        """Return the unrevoked keys of `role`, at least as many as its threshold.

        Raises:
            UsageError: too few are in the folder.
        """
        keys = tuple(key for key in self.keys[role] if key.public().key_id not in self.policy.revoked)
        threshold = self.policy.roles[role].threshold
        if len(keys) < threshold:
            raise UsageError(f"the key folder holds {len(keys)} usable {role} keys, the policy asks for {threshold}")
        return keys

    def writer_for(self, principal: str) -> PrivateKey:
        """Return the key that signs for `principal`: its own, else one that signs for all.

        Raises:
            UsageError: no key in the folder may sign for it.
        """
        principals = self.policy.roles["writer"].principals
        usable = [key for key in self.keys["writer"] if key.public().key_id not in self.policy.revoked]
        for wanted in (principal, ANY_PRINCIPAL):
            for key in usable:
                if wanted in principals[key.public().key_id]:
                    return key
        raise UsageError(f"no writer key in the key folder speaks for principal {principal!r:.80}")


def generate_keys(name: str = "memaudit") -> Keyring:
    """Draw one key per role and sign policy 1: the writer key speaks for every principal, as an importer does.

    Raises:
        UsageError: a name that no key can have.
    """
    keys = {role: _drawn(f"{name}/{role}") for role in get_args(RoleName)}
    roles: dict[RoleName, Role] = {}
    for role, key in keys.items():
        public = key.public()
        speaks_for = {public.key_id: frozenset({ANY_PRINCIPAL})} if role == "writer" else {}
        roles[role] = Role(threshold=1, keys={public.key_id: public}, principals=speaks_for)
    policy = sign_policy(version=1, roles=roles, revoked={}, root_keys=[keys["root"]])
    return Keyring(policy=policy, keys=MappingProxyType({role: (key,) for role, key in keys.items()}))


def _drawn(name: str) -> PrivateKey:
    try:
        key = PrivateKey.generate(name)
    except VerificationError as error:
        raise UsageError(str(error)) from None
    if len(key_file(key).encode()) > MAX_FILE_NAME_BYTES:
        raise UsageError(f"the name {name!r:.80} makes a file name longer than {MAX_FILE_NAME_BYTES} bytes")
    return key


def save_keyring(keyring: Keyring, folder: Path) -> None:
    """Write a new key folder.

    Raises:
        UsageError: there are keys or a policy; nothing is overwritten.
        IncompleteError: the disk is full.
    """
    files = {folder / key_file(key): key for keys in keyring.keys.values() for key in keys}
    if os.path.lexists(folder / POLICY_FILE):
        raise UsageError(_taken(folder / POLICY_FILE))
    if strays := sorted(folder.glob("*.key")):  # a stray key would lock the folder up
        raise UsageError(
            f"{strays[0]}: exists, and there is no {POLICY_FILE} beside it: `keys new` was interrupted here, or these "
            "are other keys. Remove what an interrupted one left (it signed nothing), or make new keys elsewhere "
            "(memaudit keys new FOLDER)"
        )
    durable.ensure_folder(folder)
    for path, key in files.items():
        if not durable.create(path, key.to_text().encode(), scratch=folder, mode=0o600):
            raise UsageError(_taken(path))
    if not durable.create(folder / POLICY_FILE, keyring.policy.envelope, scratch=folder):
        raise UsageError(_taken(folder / POLICY_FILE))


def key_file(key: PrivateKey) -> str:
    """Return the name of a key's file in a key folder."""
    return f"{key.name.replace('/', '-')}.key"


def _taken(path: Path) -> str:
    return (
        f"{path}: exists, and no key is overwritten: use these keys (--keys {path.parent}), or make new ones elsewhere "
        "(memaudit keys new FOLDER)"
    )


def load_keyring(folder: Path) -> Keyring:
    """Read a key folder; a rotation that is under way in it is waited for.

    Raises:
        UsageError: no such folder, or a key file that others may read.
        VerificationError: a damaged key or policy, or a key that the policy does not know.
    """
    load_policy(folder / POLICY_FILE)  # says what is wrong with the folder, where that is so
    with locked(folder, shared=True):
        return read_keyring(folder)


def read_keyring(folder: Path) -> Keyring:
    """Read a key folder that the caller has locked. Raises like `load_keyring`."""
    policy = load_policy(folder / POLICY_FILE)
    roles = policy.roles_by_key()
    for path in (*folder.glob(f"*.key{NEXT}"), *folder.glob(f"*.key{RETIRED}")):
        if read_key(path).public().key_id in roles:
            raise UsageError(
                f"{folder}: a rotation of its keys was interrupted ({path.name}): `memaudit keys rotate ROLE STORE… "
                "--apply` finishes it"
            )
    keys: dict[RoleName, list[PrivateKey]] = {role: [] for role in get_args(RoleName)}
    for path in sorted(folder.glob("*.key")):
        if path.stat().st_mode & OPEN_TO_OTHERS:
            raise UsageError(f"private key {path.name} is open to others: chmod 600 it")
        key = read_key(path)
        role = roles.get(key.public().key_id)
        if role is None:
            raise VerificationError(f"private key {path.name}: {POLICY_FILE} gives key {key.name} no role")
        keys[role].append(key)
    return Keyring(
        policy=policy, keys=MappingProxyType({role: tuple(items) for role, items in keys.items()}), folder=folder
    )


def read_key(path: Path) -> PrivateKey:
    """Read a private key's file.

    Raises:
        VerificationError: it is damaged.
    """
    data = durable.read_bounded(path, MAX_KEY_FILE_BYTES, f"private key {path.name}")
    return PrivateKey.from_text(data.decode("utf-8", "replace"), f"private key {path.name}")


def load_policy(path: Path) -> TrustPolicy:
    """Read an installed policy file.

    Raises:
        UsageError: no such file.
        VerificationError: it does not verify.
    """
    if not path.is_file():
        raise UsageError(f"no policy file {path}: make keys with `memaudit keys new`, or name the publisher's policy")
    return TrustPolicy.read(durable.read_bounded(path, MAX_POLICY_BYTES, path.name), path.name)


def save_policy(policy: TrustPolicy, path: Path) -> None:
    """Install a policy, replacing the one it was rotated from.

    Raises:
        IncompleteError: the disk is full; the old policy is intact.
    """
    durable.replace(path, policy.envelope)


def rotate_key(
    keyring: Keyring, role: RoleName, name: str, *, logs: Mapping[str, int], manifests: Mapping[str, int]
) -> Keyring:
    """Draw a new key for a role, and sign the next policy: the role's old keys are revoked from these positions on.

    Root keys leave no history to keep, so they are dropped instead: the new policy is signed by old and new.

    Args:
        keyring: Holds the root keys, and becomes the old keyring.
        role: Whose keys change.
        name: Name of the new key.
        logs: Origin to the first leaf index that the old keys may no longer sign; a log not named is refused whole.
        manifests: Store id to the first manifest version that the old keys may no longer sign.

    Raises:
        UsageError: the root keys are not in the folder; no key can have that name; the policy would be too large; the
            role needs several signatures, or its writers speak for some principals only: one new key cannot give the
            former, and must not speak for more than the latter did. Sign the next policy with `sign_policy`.
        VerificationError: a position that no policy can carry.
    """
    needed = keyring.policy.roles[role].threshold
    if needed > 1:
        raise UsageError(f"role {role} needs {needed} signatures, and a rotation draws one key: sign a policy yourself")
    roots = keyring.signers("root")
    old = keyring.policy.roles[role]
    for key_id, speaks_for in old.principals.items():
        if key_id not in keyring.policy.revoked and ANY_PRINCIPAL not in speaks_for:
            raise UsageError(
                f"writer key {old.keys[key_id].name} speaks for some principals only, and a new key would speak for "
                "all: sign a policy yourself"
            )
    key = _drawn(name)
    public = key.public()
    principals = {public.key_id: frozenset({ANY_PRINCIPAL})} if role == "writer" else {}
    revoked = dict(keyring.policy.revoked)
    if role == "root":
        new = Role(threshold=1, keys={public.key_id: public})
        roots = (*roots, key)
    else:
        new = Role(
            threshold=old.threshold, keys={**old.keys, public.key_id: public},
            principals={**old.principals, **principals},
        )  # fmt: skip
        for key_id in old.keys:
            revoked.setdefault(key_id, Revocation(logs=dict(logs), manifests=dict(manifests)))
    policy = sign_policy(
        version=keyring.policy.version + 1, roles={**keyring.policy.roles, role: new}, revoked=revoked,
        root_keys=list(roots), previous=keyring.policy,
    )  # fmt: skip
    kept = () if role == "root" else keyring.keys[role]
    return Keyring(policy=policy, keys=MappingProxyType({**keyring.keys, role: (*kept, key)}), folder=keyring.folder)
