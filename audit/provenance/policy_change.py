"""The next trust policy: a key replaced, added or revoked, or another number of signatures asked for.

Each function takes a keyring that holds the root keys, and returns that which takes its place; nothing is written
(`memory_audit.provenance.key_folder`). Root keys leave no history to keep, so they are dropped where others are
revoked; the new policy is signed by the root thresholds of both.

A threshold counts for what was signed before, too: where it is raised, what fewer keys signed verifies no more.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.provenance.ed25519 import PublicKey
from memory_audit.provenance.keys import Keyring
from memory_audit.provenance.trust_policy import ANY_PRINCIPAL, Revocation, Role, sign_policy

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from memory_audit.provenance.ed25519 import Signer
    from memory_audit.provenance.trust_policy import RoleName, TrustPolicy

__all__ = ["add_key", "change_threshold", "revoke_key", "rotate_key", "usable_keys"]


def rotate_key(
    keyring: Keyring, role: RoleName, key: Signer, *, logs: Mapping[str, int], manifests: Mapping[str, int]
) -> Keyring:
    """Give a role a new key in the place of its old ones, which are revoked from these positions on.

    Args:
        keyring: Becomes the old keyring.
        role: Whose keys change.
        key: The new key.
        logs: Origin to the first leaf index that the old keys may no longer sign; a log not named is refused whole.
        manifests: Store id to the first manifest version that the old keys may no longer sign.

    Raises:
        UsageError: the root keys are not in the folder; the policy knows the key; the policy would be too large; the
            role needs several signatures, or its writers speak for some principals only: one new key cannot give the
            former, and must not speak for more than the latter did.
        VerificationError: a position that no policy can carry.
    """
    old = keyring.policy.roles[role]
    if old.threshold > 1:
        raise UsageError(
            f"role {role} needs {old.threshold} signatures, and a rotation brings one key: add keys (memaudit keys "
            "add), then revoke the old ones (memaudit keys revoke)"
        )
    for key_id, speaks_for in old.principals.items():
        if key_id not in keyring.policy.revoked and ANY_PRINCIPAL not in speaks_for:
            raise UsageError(
                f"writer key {old.keys[key_id].name} speaks for some principals only, and a new key would speak for "
                "all: add a key for these (memaudit keys add), then revoke the old one (memaudit keys revoke)"
            )
    principals = frozenset({ANY_PRINCIPAL}) if role == "writer" else frozenset()
    roles, added = _with_key(keyring, role, key, principals)
    return _signed(keyring, roles, role, usable_keys(keyring.policy, role), added, logs=logs, manifests=manifests)


def add_key(keyring: Keyring, role: RoleName, key: Signer | PublicKey, principals: Collection[str] = ()) -> Keyring:
    """Give a role one more key, whose private part may be elsewhere.

    Args:
        keyring: Becomes the old keyring.
        role: Whose key it is.
        key: The key; its public part where another folder holds it.
        principals: Writers only: whom it speaks for.

    Raises:
        UsageError: the root keys are not in the folder; the policy knows the key; principals for another role than
            writer, or none for a writer; the policy would be too large.
        VerificationError: principals that no policy can carry.
    """
    if (role == "writer") != bool(principals):
        raise UsageError(
            "say whom the writer speaks for (--principal, '*' for all)"
            if role == "writer"
            else f"a key of role {role} speaks for no principal: leave out --principal"
        )
    roles, added = _with_key(keyring, role, key, frozenset(principals))
    return _signed(keyring, roles, role, (), added)


def revoke_key(
    keyring: Keyring, role: RoleName, key_id: str, *, logs: Mapping[str, int], manifests: Mapping[str, int]
) -> Keyring:
    """Revoke one key of a role. Args and raises like `rotate_key`.

    Raises:
        UsageError: fewer keys would be left than the role's threshold asks for.
    """
    role_now = keyring.policy.roles[role]
    left = len(usable_keys(keyring.policy, role)) - 1
    if left < role_now.threshold:
        raise UsageError(
            f"role {role} needs {role_now.threshold} of its keys, and {left} would be left: add one first "
            "(memaudit keys add)"
        )
    return _signed(keyring, keyring.policy.roles, role, (key_id,), None, logs=logs, manifests=manifests)


def change_threshold(keyring: Keyring, role: RoleName, threshold: int) -> Keyring:
    """Ask for another number of signatures of a role's keys.

    Raises:
        UsageError: the root keys are not in the folder; more than there are keys; or the role is writer.
    """
    if role == "writer":
        raise UsageError("an entry has one writer: the threshold of role writer is 1")
    now, most = keyring.policy.roles[role], len(usable_keys(keyring.policy, role))
    if not 1 <= threshold <= most:
        raise UsageError(f"threshold {threshold} of role {role}, expected 1 to {most}: so many keys it has")
    changed = Role(threshold=threshold, keys=now.keys, principals=now.principals)
    return _signed(keyring, {**keyring.policy.roles, role: changed}, role, (), None)


def usable_keys(policy: TrustPolicy, role: RoleName) -> dict[str, PublicKey]:
    """Return the keys of a role that are not revoked, by id."""
    return {key_id: key for key_id, key in policy.roles[role].keys.items() if key_id not in policy.revoked}


def _with_key(
    keyring: Keyring, role: RoleName, key: Signer | PublicKey, principals: frozenset[str]
) -> tuple[dict[RoleName, Role], Signer | None]:
    """Return all roles, one of which has one more key, and the key where it can sign."""
    public = key if isinstance(key, PublicKey) else key.public()
    if (known := keyring.policy.roles_by_key().get(public.key_id)) is not None:
        raise UsageError(f"key {public.name} ({public.key_id[:8]}) is in the policy already, as {known}")
    now = keyring.policy.roles[role]
    speaks_for = {**now.principals, public.key_id: principals} if principals else now.principals
    more = Role(threshold=now.threshold, keys={**now.keys, public.key_id: public}, principals=speaks_for)
    return {**keyring.policy.roles, role: more}, None if isinstance(key, PublicKey) else key


def _signed(  # noqa: PLR0913 - what changes in a policy
    keyring: Keyring,
    roles: Mapping[RoleName, Role],
    role: RoleName,
    ended: Collection[str],
    added: Signer | None,
    *,
    logs: Mapping[str, int] = MappingProxyType({}),
    manifests: Mapping[str, int] = MappingProxyType({}),
) -> Keyring:
    """Sign the next policy, in which the keys `ended` of a role are revoked, or dropped where they are root's."""
    roots, revoked, held = keyring.signers("root"), dict(keyring.policy.revoked), keyring.keys[role]
    if role == "root":
        kept = {key_id: key for key_id, key in roles["root"].keys.items() if key_id not in ended}
        roles = {**roles, "root": Role(threshold=roles["root"].threshold, keys=kept)}
        held = tuple(key for key in held if key.public().key_id not in ended)
        roots = roots if added is None else (*roots, added)
        signing = sum(key.public().key_id in kept for key in roots)
        if signing < roles["root"].threshold:
            raise UsageError(
                f"the next policy needs {roles['root'].threshold} signatures of its own root keys, and the key folder "
                f"holds {signing} of them"
            )
    else:
        for key_id in ended:
            revoked[key_id] = Revocation(logs=dict(logs), manifests=dict(manifests))
    policy = sign_policy(
        version=keyring.policy.version + 1, roles=roles, revoked=revoked, root_keys=roots, previous=keyring.policy
    )
    keys = {**keyring.keys, role: held if added is None else (*held, added)}
    return Keyring(policy=policy, keys=MappingProxyType(keys), folder=keyring.folder)
