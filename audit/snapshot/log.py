"""One tenant's log, verified: every leaf accounted for, every signature checked.

A log of n leaves verifies when

1. its checkpoint is signed by the log role, for this store and tenant;
2. the root of its n leaf hashes is the checkpoint's root;
3. each leaf is exactly one of: a live entry, a tombstone, an entry that a later tombstone removes;
4. each live entry and each tombstone hashes to its leaf, and is signed by a writer of its principal, or by the
   threshold of auditors, not revoked at that leaf;
5. a tombstone names an earlier leaf by its index and hash, and no two name the same;
6. entry ids are unique over live and removed entries: what was removed does not come back under its id;
7. parents are earlier entries of the same log, so there are no unknown parents and no cycles.

Rule 3 is what makes removal honest: nothing can be missing from the live view without a signed reason in the log.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature

from audit.errors import VerificationError
from audit.provenance import merkle
from audit.provenance.checkpoint import Checkpoint, log_origin
from audit.provenance.ed25519 import raw_verifier
from audit.provenance.leaf import SIGNATURE_DOMAIN, encode_tombstone, row_encoder
from audit.snapshot.columns import read_entries
from audit.snapshot.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from audit.provenance.policy import TrustPolicy
    from audit.snapshot.checkpoints import LogRef
    from audit.snapshot.columns import SignedEntry, SignedTombstone
    from audit.snapshot.rows import EntryRow

__all__ = ["VerifiedLog", "check_accounting", "check_leaf_hashes", "check_rows", "check_tombstones", "verify_log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedLog:
    """One tenant's log after verification."""

    tenant: str
    checkpoint: Checkpoint
    note: bytes
    """The signed checkpoint: hand it to any C2SP verifier."""

    leaf_hashes: tuple[bytes, ...]
    entries: tuple[SignedEntry, ...]
    """Live entries in leaf order."""

    tombstones: tuple[SignedTombstone, ...]


def verify_log(  # noqa: PLR0913 - the files of a log, and what to judge them by
    ref: LogRef,
    packed_hashes: bytes,
    table: pa.Table,
    tombstones: Sequence[SignedTombstone],
    *,
    store_id: str,
    trust: TrustPolicy,
) -> VerifiedLog:
    """Apply the rules of this module to one log, given its live rows.

    Raises:
        VerificationError: names the tenant, the leaf and the rule broken.
    """
    where = f"data of tenant {ref.tenant!r:.80}"
    checkpoint, hashes = check_leaf_hashes(ref, packed_hashes, store_id=store_id, trust=trust)
    check_tombstones(tombstones, hashes, ref.tenant, checkpoint.origin, trust)
    check_rows(read_rows(table, where), packed_hashes, checkpoint.origin, trust)
    entries = read_entries(table, where)
    check_accounting(
        ref.tenant,
        len(hashes),
        [(item.entry.entry_id, item.index) for item in entries],
        {item.entry.entry_id: [parent.entry_id for parent in item.entry.parents] for item in entries},
        tombstones,
    )
    return VerifiedLog(
        tenant=ref.tenant, checkpoint=checkpoint, note=ref.note, leaf_hashes=tuple(hashes), entries=tuple(entries),
        tombstones=tuple(tombstones),
    )  # fmt: skip


def check_leaf_hashes(
    ref: LogRef, packed_hashes: bytes, *, store_id: str, trust: TrustPolicy
) -> tuple[Checkpoint, list[bytes]]:
    """Rules 1 and 2: return the verified checkpoint and the leaf hashes under it."""
    where = f"checkpoint of tenant {ref.tenant!r:.80}"
    checkpoint = trust.open_checkpoint(ref.note, origin=log_origin(store_id, ref.tenant), where=where)
    hashes = merkle.unpack(packed_hashes)
    if len(hashes) != checkpoint.size:
        raise VerificationError(f"{where}: {len(hashes)} leaf hashes, expected {checkpoint.size}")
    computed = merkle.root(hashes)
    if computed != checkpoint.root:
        raise VerificationError(f"{where}: leaf hashes have root {computed.hex()}, expected {checkpoint.root.hex()}")
    return checkpoint, hashes


def check_rows(rows: Sequence[EntryRow], packed_hashes: bytes, origin: str, trust: TrustPolicy) -> None:
    """Rule 4 for live entries of one tenant, in rising order of leaf index."""
    if not rows:
        return
    tenant = rows[0].tenant
    encode = row_encoder(origin, tenant)
    sha256, size = hashlib.sha256, len(packed_hashes) // merkle.HASH_BYTES
    verifiers: dict[tuple[str, bytes], tuple[Callable[[bytes, bytes], None], int]] = {}
    previous = -1
    for row in rows:
        _, index, entry_id, principal, _, _, _, _, _, _, key_id, signature = row
        if not previous < index < size:
            raise _row_error(row, "is out of order or beyond the log")
        previous = index
        leaf = encode(*row[1:10])
        got = sha256(b"\x00" + leaf).digest()
        expected = packed_hashes[index * merkle.HASH_BYTES : (index + 1) * merkle.HASH_BYTES]
        if got != expected:
            raise _row_error(row, f"hashes to {got.hex()}, expected {expected.hex()}")
        signer = verifiers.get((key_id, principal))
        if signer is None:
            where = f"tenant {tenant!r:.80}, leaf {index}"
            key = trust.writer_key(key_id, principal.decode(), where)
            signer = raw_verifier(key), trust.first_refused_index(key_id, origin)
            verifiers[key_id, principal] = signer
        verify, first_refused = signer
        if index >= first_refused:
            raise _row_error(row, f"is signed by a key that is revoked from leaf {first_refused} on")
        try:
            verify(signature, SIGNATURE_DOMAIN + leaf)
        except InvalidSignature:
            raise VerificationError(
                f"tenant {tenant!r:.80}, leaf {index}: signature of entry {entry_id.decode()!r:.80} does not verify"
            ) from None


def _row_error(row: EntryRow, problem: str) -> VerificationError:
    return VerificationError(
        f"tenant {row.tenant!r:.80}, leaf {row.index}: entry {row.entry_id.decode()!r:.80} {problem}"
    )


def check_tombstones(
    tombstones: Sequence[SignedTombstone], hashes: Sequence[bytes], tenant: str, origin: str, trust: TrustPolicy
) -> None:
    """Rules 4 and 5 for tombstones of one tenant, in rising order of leaf index."""
    previous = -1
    removed: set[int] = set()
    for item in tombstones:
        body, index = item.tombstone, item.index
        where = f"tenant {tenant!r:.80}, leaf {index}"
        if body.tenant != tenant or not previous < index < len(hashes):
            raise VerificationError(f"{where}: tombstone is out of order or beyond the log")
        previous = index
        leaf = encode_tombstone(body, origin=origin, index=index)
        got = merkle.leaf_hash(leaf)
        if got != hashes[index]:
            raise VerificationError(f"{where}: tombstone hashes to {got.hex()}, expected {hashes[index].hex()}")
        if body.removed_index >= index or body.removed_index in removed:
            raise VerificationError(f"{where}: tombstone names leaf {body.removed_index}: later, or already removed")
        removed.add(body.removed_index)
        if hashes[body.removed_index] != body.removed_leaf_hash:
            raise VerificationError(
                f"{where}: tombstone names leaf hash {body.removed_leaf_hash.hex()}, "
                f"leaf {body.removed_index} has {hashes[body.removed_index].hex()}"
            )
        _check_auditors(item.signatures, SIGNATURE_DOMAIN + leaf, origin, index, trust, where)


def check_accounting(
    tenant: str,
    size: int,
    live: Sequence[tuple[str, int]],
    parents: Mapping[str, Sequence[str]],
    tombstones: Sequence[SignedTombstone],
) -> None:
    """Rules 3, 6 and 7.

    Args:
        tenant: For error messages.
        size: Leaves in the log.
        live: Id and leaf index of each live entry.
        parents: Live entry id to the ids of its parents; entries without parents may be absent.
        tombstones: Of this log, already checked by themselves.
    """
    where = f"tenant {tenant!r:.80}"
    positions: dict[str, int] = {}
    taken = bytearray(size)
    named = [(item.tombstone.entry_id, item.tombstone.removed_index) for item in tombstones]
    for entry_id, index in (*live, *named):
        if entry_id in positions:
            raise VerificationError(f"{where}: entry id {entry_id!r:.80} at leaf {index} and at {positions[entry_id]}")
        positions[entry_id] = index
        if index >= size or taken[index]:
            raise VerificationError(f"{where}: leaf {index} is beyond the log, removed and live, or live twice")
        taken[index] = 1
    for item in tombstones:
        if taken[item.index]:
            raise VerificationError(f"{where}: leaf {item.index} is a tombstone and an entry")
        taken[item.index] = 1
    missing = taken.find(0)
    if missing != -1:
        raise VerificationError(f"{where}: leaf {missing} is neither live nor removed by a tombstone (suppressed)")
    for entry_id, names in parents.items():
        for parent in names:
            if positions.get(parent, size) >= positions[entry_id]:
                raise VerificationError(
                    f"{where}: entry {entry_id!r:.80} names parent {parent!r:.80}, which is no earlier entry"
                )


def _check_auditors(  # noqa: PLR0913, PLR0917
    signatures: tuple[tuple[str, bytes], ...], message: bytes, origin: str, index: int, trust: TrustPolicy, where: str
) -> None:
    keys = trust.leaf_keys("auditor", origin, index)
    signed: set[str] = set()
    for key_id, signature in signatures:
        key = keys.get(key_id)
        if key is None:
            raise VerificationError(f"{where}: tombstone signed by key {key_id!r:.70}, which has no role auditor here")
        if not key.verifies(signature, message):
            raise VerificationError(f"{where}: signature of {key.name} on the tombstone does not verify")
        signed.add(key_id)
    threshold = trust.roles["auditor"].threshold
    if len(signed) < threshold:
        raise VerificationError(f"{where}: tombstone signed by {len(signed)} auditors, expected {threshold}")
