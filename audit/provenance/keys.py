"""Private keys on disk, and the keyring that signs with them.

A key folder holds `policy.json` (public: copy it to every verifier) and one `NAME.key` file per private key, readable
by its owner only (`memory_audit.provenance.key_files.key_file`). Which role a key has is the policy's word, not the
file name's. A folder without the root key is a working folder: the root is needed only to change the policy, and is
best kept away.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args

from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.provenance import durable
from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.folder_lock import locked
from memory_audit.provenance.key_files.key_file import (
    Secrets,
    check_private,
    encode_key,
    no_secrets,
    read_key,
    unlocked,
)  # fmt: skip
from memory_audit.provenance.trust_policy import (
    ANY_PRINCIPAL,
    MAX_POLICY_BYTES,
    Role,
    RoleName,
    TrustPolicy,
    sign_policy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from memory_audit.provenance.ed25519 import PublicKey, Signer

__all__ = [
    "NEXT", "POLICY_FILE", "RETIRED", "Keyring", "by_file_name", "draw_key", "generate_keys", "key_file",
    "load_keyring", "load_policy", "read_keyring", "save_keyring", "save_policy",
]  # fmt: skip

POLICY_FILE = "policy.json"

MAX_FILE_NAME_BYTES = 200
"""Of a key's file: what a rotation adds fits into the 255 that file systems take."""

NEXT, RETIRED = ".next", ".retired"
"""What a rotation adds to the names of keys that are not in use yet, or no more (`provenance.key_folder`)."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Keyring:
    """Private keys by role, with the policy that gives them their roles."""

    policy: TrustPolicy
    keys: Mapping[RoleName, tuple[Signer, ...]]
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

    def holds(self, role: RoleName) -> bool:
        """Tell whether as many unrevoked keys of `role` are here as its threshold asks for; none is unlocked."""
        return len(self._usable(role)) >= self.policy.roles[role].threshold

    def signers(self, role: RoleName) -> tuple[Signer, ...]:
        """Return the unrevoked keys of `role`, at least as many as its threshold, unlocked.

        Raises:
            UsageError: too few are in the folder, or one cannot be unlocked.
            VerificationError: one is not the key that its file says.
            IncompleteError: a token failed.
        """
        keys = self._usable(role)
        threshold = self.policy.roles[role].threshold
        if len(keys) < threshold:
            raise UsageError(f"the key folder holds {len(keys)} usable {role} keys, the policy asks for {threshold}")
        return tuple(map(unlocked, keys))

    def writer_for(self, principal: str) -> Signer:
        """Return the key that signs for `principal`: its own, else one that signs for all.

        Raises:
            UsageError: no key in the folder may sign for it; or as `signers`.
        """
        principals = self.policy.roles["writer"].principals
        usable = self._usable("writer")
        for wanted in (principal, ANY_PRINCIPAL):
            for key in usable:
                if wanted in principals[key.public().key_id]:
                    return unlocked(key)
        raise UsageError(f"no writer key in the key folder speaks for principal {principal!r:.80}")

    def _usable(self, role: RoleName) -> tuple[Signer, ...]:
        return tuple(key for key in self.keys[role] if key.public().key_id not in self.policy.revoked)


def generate_keys(name: str = "memaudit") -> Keyring:
    """Draw one key per role and sign policy 1: the writer key speaks for every principal, as an importer does.

    Raises:
        UsageError: a name that no key can have.
    """
    keys = {role: draw_key(f"{name}/{role}") for role in get_args(RoleName)}
    roles: dict[RoleName, Role] = {}
    for role, key in keys.items():
        public = key.public()
        speaks_for = {public.key_id: frozenset({ANY_PRINCIPAL})} if role == "writer" else {}
        roles[role] = Role(threshold=1, keys={public.key_id: public}, principals=speaks_for)
    policy = sign_policy(version=1, roles=roles, revoked={}, root_keys=[keys["root"]])
    return Keyring(policy=policy, keys=MappingProxyType({role: (key,) for role, key in keys.items()}))


def draw_key(name: str) -> PrivateKey:
    """Draw a key that a key folder can hold.

    Raises:
        UsageError: no key can have that name.
    """
    try:
        key = PrivateKey.generate(name)
    except VerificationError as error:
        raise UsageError(str(error)) from None
    if len(key_file(key).encode()) > MAX_FILE_NAME_BYTES:
        raise UsageError(f"the name {name!r:.80} makes a file name longer than {MAX_FILE_NAME_BYTES} bytes")
    return key


def save_keyring(keyring: Keyring, folder: Path, passphrase: Callable[[str], bytes | None] = lambda _: None) -> None:
    """Write a new key folder.

    Args:
        keyring: Its keys, and its policy.
        folder: Where it is to be.
        passphrase: Gives that of a key, by the key's name; None leaves it plain.

    Raises:
        UsageError: there are keys or a policy; nothing is overwritten.
        IncompleteError: the disk is full.
    """
    keys = {folder / key_file(key): key for keys in keyring.keys.values() for key in keys}
    if os.path.lexists(folder / POLICY_FILE):
        raise UsageError(_taken(folder / POLICY_FILE))
    if strays := sorted(folder.glob("*.key")):  # a stray key would lock the folder up
        raise UsageError(
            f"{strays[0]}: exists, and there is no {POLICY_FILE} beside it: `keys new` was interrupted here, or these "
            "are other keys. Remove what an interrupted one left (it signed nothing), or make new keys elsewhere "
            "(memaudit keys new FOLDER)"
        )
    files = {path: encode_key(key, passphrase) for path, key in keys.items()}
    durable.ensure_folder(folder)
    for path, data in files.items():
        if not durable.create(path, data, scratch=folder, mode=0o600):
            raise UsageError(_taken(path))
    if not durable.create(folder / POLICY_FILE, keyring.policy.envelope, scratch=folder):
        raise UsageError(_taken(folder / POLICY_FILE))


def key_file(key: Signer | PublicKey) -> str:
    """Return the name of a key's file in a key folder."""
    return f"{key.name.replace('/', '-')}.key"


def by_file_name(policy: TrustPolicy) -> Callable[[str], PublicKey | None]:
    """Return what finds the key of a policy that a file in a key folder is named after."""

    def find(name: str) -> PublicKey | None:
        name = name.removesuffix(NEXT).removesuffix(RETIRED)
        listed = (key for role in policy.roles.values() for key in role.keys.values())
        return next((key for key in listed if key_file(key) == name), None)

    return find


def _taken(path: Path) -> str:
    return (
        f"{path}: exists, and no key is overwritten: use these keys (--keys {path.parent}), or make new ones elsewhere "
        "(memaudit keys new FOLDER)"
    )


def load_keyring(folder: Path, secrets: Secrets = no_secrets) -> Keyring:
    """Read a key folder; a rotation that is under way in it is waited for.

    Args:
        folder: Where it is.
        secrets: Gives the passphrase of a key, or the PIN of its token, when it first signs.

    Raises:
        UsageError: no such folder, or a key file that others may read.
        VerificationError: a damaged key or policy, or a key that the policy does not know.
    """
    load_policy(folder / POLICY_FILE)  # says what is wrong with the folder, where that is so
    with locked(folder, shared=True):
        return read_keyring(folder, secrets)


def read_keyring(folder: Path, secrets: Secrets = no_secrets) -> Keyring:
    """Read a key folder that the caller has locked. Args and raises like `load_keyring`."""
    policy = load_policy(folder / POLICY_FILE)
    roles = policy.roles_by_key()
    for path in (*folder.glob(f"*.key{NEXT}"), *folder.glob(f"*.key{RETIRED}")):
        if read_key(path, named=by_file_name(policy)).public().key_id in roles:
            raise UsageError(
                f"{folder}: a change of its keys was interrupted ({path.name}): `memaudit keys rotate ROLE STORE… "
                "--apply` finishes it"
            )
    keys: dict[RoleName, list[Signer]] = {role: [] for role in get_args(RoleName)}
    for path in sorted(folder.glob("*.key")):
        check_private(path, f"private key {path.name}")
        key = read_key(path, secrets, by_file_name(policy))
        role = roles.get(key.public().key_id)
        if role is None:
            raise VerificationError(f"private key {path.name}: {POLICY_FILE} gives key {key.name} no role")
        keys[role].append(key)
    return Keyring(
        policy=policy, keys=MappingProxyType({role: tuple(items) for role, items in keys.items()}), folder=folder
    )


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
