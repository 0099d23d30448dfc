"""The trust policy: which keys hold which role, how many must sign, and which are revoked from which log position.

The policy is a file the verifier keeps *outside* the store: a DSSE envelope signed by the root role. Its payload:

    {"format": "memaudit policy v1", "version": 2,
     "roles": {"root": {"threshold": 1, "keys": [{"vkey": "memaudit/root+…"}]},
               "writer": {"threshold": 1, "keys": [{"vkey": "memaudit/writer+…", "principals": ["*"]}]},
               "log": {…}, "auditor": {…}},
     "revoked": [{"keyid": "…", "logs": {"memaudit/6d1f…/acme": 120}, "manifests": {"6d1f…": 4}}]}

Roles: a *writer* signs the entries of its principals ("*": of all, as an importer does); the *log* signs checkpoints
and the manifests of imports and appends; the *auditor* signs tombstones and the manifests of purifications; the *root*
signs policies and nothing else.

Rules:

1. The first policy is trusted because the user installed it; it is signed by its own root threshold.
2. Policy N+1 replaces policy N when it is signed by the root thresholds of both (TUF §5.3), and its version is N+1.
3. A key holds one role. A threshold counts distinct keys; it is at least 1 and at most the role's keys.
4. A revoked key stays listed, so that its past stays verifiable: its leaves and checkpoints count below the position
   named for their log, its manifests below the version named for their store, and nowhere else.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import dsse, strict_json
from memory_audit.provenance.ed25519 import PublicKey
from memory_audit.provenance.tlog.checkpoint import Checkpoint, open_checkpoint, parse_checkpoint_text
from memory_audit.provenance.tlog.merkle import MAX_TREE_SIZE
from memory_audit.provenance.tlog.note import parse_note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_audit.provenance.ed25519 import Signer

__all__ = ["ANY_PRINCIPAL", "Revocation", "Role", "RoleName", "TrustPolicy", "sign_policy"]

RoleName = Literal["root", "writer", "log", "auditor"]

ANY_PRINCIPAL = "*"

PAYLOAD_TYPE = "application/vnd.memaudit.policy+json"

MAX_POLICY_BYTES = 16 << 20
"""A hundred thousand writers; beyond that, principals share keys."""

MAX_POLICY_VERSION = 1_000_000
"""Rotations happen a few times a year: a larger version is a fast-forward attack."""

MAX_KEYS = 100_000
MAX_PRINCIPALS = 10_000

_FORMAT = "memaudit policy v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The keys of one role."""

    threshold: int
    keys: Mapping[str, PublicKey]
    """By key id."""

    principals: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """Writers only: key id to the principals it signs for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """Where a key's word ends."""

    logs: Mapping[str, int]
    """Origin to the first leaf index no longer accepted, and the largest tree size that is; 0 if absent."""

    manifests: Mapping[str, int]
    """Store id to the first manifest version no longer accepted; 0 if absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustPolicy:
    """A verified policy. Obtain it with `TrustPolicy.read` or `TrustPolicy.rotated`."""

    version: int
    roles: Mapping[RoleName, Role]
    revoked: Mapping[str, Revocation]
    envelope: bytes
    """The signed file."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as the signed file: worker processes verify it again."""
        return TrustPolicy.read, (self.envelope, f"policy {self.version}")

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the signed file: the policy digest of manifests."""
        return hashlib.sha256(self.envelope).hexdigest()

    @classmethod
    def read(cls, data: bytes, where: str) -> TrustPolicy:
        """Read a policy that the user installed (rule 1).

        Raises:
            VerificationError: not signed by its own root threshold, or it breaks a rule.
        """
        envelope = dsse.parse_envelope(data, PAYLOAD_TYPE, max_bytes=MAX_POLICY_BYTES, where=where)
        policy = _parse(envelope, data)
        root = policy.roles["root"]
        signed = _known_signers(envelope, root.keys)
        if len(signed) < root.threshold:
            raise VerificationError(f"{where}: signed by {len(signed)} root keys, expected {root.threshold}")
        if policy.version == 1 and len(signed) < len(envelope.signatures):  # a later one carries the old root's too
            raise VerificationError(f"{where}: signed by a key that has no role root")
        return policy

    def rotated(self, data: bytes, where: str) -> TrustPolicy:
        """Read the next policy (rule 2).

        Raises:
            VerificationError: not the next version, or not signed by the thresholds of both.
        """
        following = TrustPolicy.read(data, where)
        if following.version != self.version + 1:
            raise VerificationError(f"{where}: policy version {following.version}, expected {self.version + 1}")
        envelope = dsse.parse_envelope(data, PAYLOAD_TYPE, max_bytes=MAX_POLICY_BYTES, where=where)
        old, new = self.roles["root"], following.roles["root"]
        dsse.verify_envelope(envelope, {**old.keys, **new.keys}, 1, "root")
        signed = _known_signers(envelope, old.keys)
        if len(signed) < old.threshold:
            raise VerificationError(
                f"{where}: signed by {len(signed)} root keys of policy {self.version}, expected {old.threshold}"
            )
        return following

    def roles_by_key(self) -> dict[str, RoleName]:
        """Return the role of each key that is listed, by key id; rule 3 gives it one."""
        return {key_id: name for name, role in self.roles.items() for key_id in role.keys}

    def manifest_keys(self, role: RoleName, store_id: str, version: int) -> dict[str, PublicKey]:
        """Keys of `role` whose signature counts on manifest `version` of a store."""
        return {
            key_id: key
            for key_id, key in self.roles[role].keys.items()
            if key_id not in self.revoked or version < self.revoked[key_id].manifests.get(store_id, 0)
        }

    def leaf_keys(self, role: RoleName, origin: str, index: int) -> dict[str, PublicKey]:
        """Keys of `role` whose signature counts on leaf `index` of the log `origin`."""
        return {
            key_id: key
            for key_id, key in self.roles[role].keys.items()
            if index < self.first_refused_index(key_id, origin)
        }

    def writer_key(self, key_id: str, principal: str, where: str) -> PublicKey:
        """Return the writer key `key_id`, which must speak for `principal`.

        Raises:
            VerificationError: unknown key, wrong role, or not that principal's.
        """
        writers = self.roles["writer"]
        key = writers.keys.get(key_id)
        if key is None:
            raise VerificationError(f"{where}: signed by key {key_id!r:.70}, which has no role writer")
        allowed = writers.principals[key_id]
        if principal not in allowed and ANY_PRINCIPAL not in allowed:
            raise VerificationError(f"{where}: key {key.name} does not speak for principal {principal!r:.80}")
        return key

    def first_refused_index(self, key_id: str, origin: str) -> int:
        """First leaf index of the log `origin` at which a key's signature no longer counts."""
        revocation = self.revoked.get(key_id)
        return MAX_TREE_SIZE if revocation is None else revocation.logs.get(origin, 0)

    def open_checkpoint(self, data: bytes, *, origin: str, where: str) -> Checkpoint:
        """Verify a checkpoint by the log role's threshold.

        Raises:
            VerificationError: see `memory_audit.provenance.tlog.checkpoint`; a key revoked at this size does not count.
        """
        stated = parse_checkpoint_text(parse_note(data, where).text, where)
        log = self.roles["log"]
        keys = self.leaf_keys("log", origin, max(stated.size - 1, 0))
        return open_checkpoint(data, list(keys.values()), origin=origin, threshold=log.threshold, where=where)


def sign_policy(
    *,
    version: int,
    roles: Mapping[RoleName, Role],
    revoked: Mapping[str, Revocation],
    root_keys: Sequence[Signer],
    previous: TrustPolicy | None = None,
) -> TrustPolicy:
    """Sign a policy and verify it as a reader would.

    Args:
        version: 1, or the previous policy's + 1.
        roles: All four roles.
        revoked: By key id.
        root_keys: Every private root key that signs: the thresholds of this policy and, in a rotation, of the last.
        previous: The policy this one replaces.

    Raises:
        UsageError: it would be too large for readers.
        VerificationError: a reader would refuse it.
    """
    payload = {
        "format": _FORMAT,
        "version": version,
        "roles": {name: _role_record(name, role) for name, role in roles.items()},
        "revoked": [
            {"keyid": key_id, "logs": dict(item.logs), "manifests": dict(item.manifests)}
            for key_id, item in sorted(revoked.items())
        ],
    }
    data = dsse.seal(PAYLOAD_TYPE, strict_json.encode(payload), root_keys)
    if len(data) > MAX_POLICY_BYTES:
        raise UsageError(
            f"policy {version} would have {len(data):,} bytes, readers take {MAX_POLICY_BYTES:,}: it has a line for "
            "each tenant and revoked key"
        )
    where = f"policy {version}"
    return TrustPolicy.read(data, where) if previous is None else previous.rotated(data, where)


def _role_record(name: RoleName, role: Role) -> dict[str, object]:
    keys: list[dict[str, object]] = []
    for key_id, key in sorted(role.keys.items()):
        record: dict[str, object] = {"vkey": key.vkey}
        if name == "writer":
            record["principals"] = sorted(role.principals[key_id])
        keys.append(record)
    return {"threshold": role.threshold, "keys": keys}


def _known_signers(envelope: dsse.Envelope, keys: Mapping[str, PublicKey]) -> frozenset[str]:
    """Verify the signatures by `keys` and return who signed; signatures of other keys are another rule's business."""
    known = tuple(pair for pair in envelope.signatures if pair[0] in keys)
    return dsse.verify_envelope(replace(envelope, signatures=known), keys, 0, "root")


def _parse(envelope: dsse.Envelope, data: bytes) -> TrustPolicy:
    fields = strict_json.Fields(envelope.json(MAX_POLICY_BYTES), envelope.where)
    fields.expect_format(_FORMAT)
    version = fields.whole("version", MAX_POLICY_VERSION, 1)
    roles_fields = fields.object("roles")
    roles = {name: _parse_role(name, roles_fields) for name in get_args(RoleName)}
    roles_fields.done()
    listed = [key_id for role in roles.values() for key_id in role.keys]
    if len(set(listed)) != len(listed):
        raise VerificationError(f"{envelope.where}: a key holds two roles")
    revoked: dict[str, Revocation] = {}
    for item in fields.objects("revoked", MAX_KEYS):
        key_id = item.hex_bytes("keyid", 32).hex()
        if key_id not in listed or key_id in revoked or key_id in roles["root"].keys:  # a root key is dropped instead
            raise VerificationError(f"{item.where}: key {key_id:.16} is root, in no role, or revoked twice")
        revoked[key_id] = Revocation(logs=_positions(item, "logs"), manifests=_positions(item, "manifests"))
        item.done()
    fields.done()
    return TrustPolicy(version=version, roles=MappingProxyType(roles), revoked=MappingProxyType(revoked), envelope=data)


def _parse_role(name: RoleName, fields: strict_json.Fields) -> Role:
    role = fields.object(name)
    keys: dict[str, PublicKey] = {}
    principals: dict[str, frozenset[str]] = {}
    for item in role.objects("keys", MAX_KEYS):
        key = PublicKey.from_vkey(item.text("vkey", 400))
        if key.key_id in keys:
            raise VerificationError(f"{item.where}: key {key.name} is listed twice")
        keys[key.key_id] = key
        if name == "writer":
            listed = item.take("principals")
            if not isinstance(listed, list) or not 0 < len(listed) <= MAX_PRINCIPALS:
                raise VerificationError(f"{item.where}: 'principals' must name 1 to {MAX_PRINCIPALS} principals")
            if not all(isinstance(principal, str) and principal for principal in listed):
                raise VerificationError(f"{item.where}: 'principals' must be texts")
            principals[key.key_id] = frozenset(listed)
        item.done()
    threshold = role.whole("threshold", max(len(keys), 1), 1)
    if name == "writer" and threshold != 1:
        raise VerificationError(f"{role.where}: an entry has one writer, so the threshold is 1")
    if not keys or threshold > len(keys):
        raise VerificationError(f"{role.where}: threshold {threshold} of {len(keys)} keys")
    role.done()
    return Role(threshold=threshold, keys=MappingProxyType(keys), principals=MappingProxyType(principals))


def _positions(fields: strict_json.Fields, name: str) -> Mapping[str, int]:
    value = fields.take(name)
    if not isinstance(value, dict) or not all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= MAX_TREE_SIZE for item in value.values()
    ):
        raise VerificationError(f"{fields.where}: {name!r} must map names to positions")
    return MappingProxyType(value)
