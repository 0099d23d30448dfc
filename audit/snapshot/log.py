"""One tenant's log, verified: every leaf accounted for, every signature checked.

A log of n leaves verifies when

1. its checkpoint is signed by the log role, for this store and tenant;
2. the root of its n leaf hashes is the checkpoint's root;
3. each leaf is exactly one of: a live entry, one in quarantine, one that a later tombstone removes, a tombstone;
4. each live entry, each entry in quarantine and each tombstone hashes to its leaf, and is signed by a writer of its
   principal, or by the threshold of auditors, not revoked at that leaf;
5. a tombstone names an earlier leaf by its index and hash, as `memory_audit.snapshot.quarantine` allows: without
   quarantine no two name the same;
6. entry ids are unique over live, quarantined and removed entries: what was removed does not come back under its id;
7. parents are earlier entries of the same log, so there are no unknown parents and no cycles.

Rule 3 is what makes removal honest: nothing can be missing from the live view without a signed reason in the log, and
nothing from the quarantine.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import VerificationError
from memory_audit.provenance.dsse import check_signers
from memory_audit.provenance.ed25519 import first_forged
from memory_audit.provenance.leaf import SIGNATURE_DOMAIN, encode_tombstone
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.checkpoint import Checkpoint, log_origin
from memory_audit.snapshot.columns.accounting import check_accounting
from memory_audit.snapshot.columns.rows import LEAF_HASH_START, check_rows_format, signed_leaves, tenants_of
from memory_audit.snapshot.columns.tables import read_entries
from memory_audit.snapshot.quarantine import in_force

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.checkpoints import LogRef
    from memory_audit.snapshot.columns.tables import SignedEntry, SignedTombstone

__all__ = ["VerifiedLog", "check_leaf_hashes", "check_rows", "check_tombstones", "verify_log"]


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

    quarantined: tuple[SignedEntry, ...]
    """Entries in quarantine, in leaf order."""

    tombstones: tuple[SignedTombstone, ...]
    """Those in force: of every entry that is not live the one that says why."""


def verify_log(  # noqa: PLR0913 - the files of a log, and what to judge them by
    ref: LogRef,
    packed_hashes: bytes,
    live: pa.Table,
    quarantined: pa.Table,
    tombstones: Sequence[SignedTombstone],
    *,
    store_id: str,
    trust: TrustPolicy,
) -> VerifiedLog:
    """Apply the rules of this module to one log, given its rows and all its tombstones.

    Raises:
        VerificationError: names the tenant, the leaf and the rule broken.
    """
    where = f"data of tenant {ref.tenant!r:.80}"
    checkpoint = check_leaf_hashes(ref, packed_hashes, store_id=store_id, trust=trust)
    check_tombstones(tombstones, packed_hashes, ref.tenant, checkpoint.origin, trust)
    for table in (live, quarantined):
        check_rows_format(table, where)
        check_rows(table, {ref.tenant: (checkpoint.origin, packed_hashes)}, trust, where)
    check_accounting([ref], live, quarantined, {ref.tenant: tombstones})
    return VerifiedLog(
        tenant=ref.tenant,
        checkpoint=checkpoint,
        note=ref.note,
        leaf_hashes=tuple(merkle.unpack(packed_hashes)),
        entries=tuple(read_entries(live)),
        quarantined=tuple(read_entries(quarantined)),
        tombstones=tuple(in_force(tombstones)),
    )


def check_leaf_hashes(ref: LogRef, packed_hashes: bytes, *, store_id: str, trust: TrustPolicy) -> Checkpoint:
    """Rules 1 and 2: return the verified checkpoint over these leaf hashes."""
    where = f"checkpoint of tenant {ref.tenant!r:.80}"
    checkpoint = trust.open_checkpoint(ref.note, origin=log_origin(store_id, ref.tenant), where=where)
    if len(packed_hashes) != checkpoint.size * merkle.HASH_BYTES:
        size = len(packed_hashes) // merkle.HASH_BYTES
        raise VerificationError(f"{where}: {size} leaf hashes, expected {checkpoint.size}")
    computed = merkle.packed_root(packed_hashes)
    if computed != checkpoint.root:
        raise VerificationError(f"{where}: leaf hashes have root {computed.hex()}, expected {checkpoint.root.hex()}")
    return checkpoint


def check_rows(table: pa.Table, logs: Mapping[str, tuple[str, bytes]], trust: TrustPolicy, where: str) -> None:
    """Rule 4 for entries: a tenant's rows that follow each other rise in leaf index.

    Args:
        table: Rows that passed `check_rows_format`.
        logs: Tenant to the origin of its log and its leaf hashes.
        trust: The installed policy.
        where: The file, for errors.
    """
    tenants, places = tenants_of(table.column("tenant"))
    strangers = set(tenants) - logs.keys()
    if strangers:
        raise VerificationError(f"{where}: rows of tenant {min(strangers)!r:.80}, which has no log here")
    sizes = np.array([len(logs[tenant][1]) // merkle.HASH_BYTES for tenant in tenants], np.int64)
    indices = table.column("leaf_index").to_numpy().astype(np.int64)
    wrong = indices >= sizes[places]
    wrong[1:] |= (places[1:] == places[:-1]) & (indices[1:] <= indices[:-1])
    if wrong.any():
        raise _row_error(table, int(np.argmax(wrong)), "is out of order or beyond the log")
    keys = _writers(table, tenants, places, {tenant: origin for tenant, (origin, _) in logs.items()}, trust)
    hashes = [logs[tenant][1] for tenant in tenants]
    sha256, start = hashlib.sha256, 0
    for signed in signed_leaves(table, {tenant: logs[tenant][0] for tenant in tenants}):
        rows = slice(start, start + len(signed))
        got = [sha256(item[LEAF_HASH_START:]).digest() for item in signed]
        leaves = zip(places[rows].tolist(), (indices[rows] * merkle.HASH_BYTES).tolist(), strict=True)
        expected = [hashes[place][at : at + merkle.HASH_BYTES] for place, at in leaves]
        if got != expected:
            row = next(row for row in range(len(got)) if got[row] != expected[row])
            raise _row_error(table, start + row, f"hashes to {got[row].hex()}, expected {expected[row].hex()}")
        forged = first_forged(signed, keys[rows])
        if forged is not None:
            tenant, index, entry_id = _named(table, start + forged)
            raise VerificationError(
                f"tenant {tenant!r:.80}, leaf {index}: signature of entry {entry_id!r:.80} does not verify"
            )
        start = rows.stop


def _writers(
    table: pa.Table, tenants: Sequence[str], places: NDArray[np.intp], origins: Mapping[str, str], trust: TrustPolicy
) -> list[bytes]:
    """Raw public key of each row's writer, judged once for each key, principal and log."""
    key_ids, key_places = tenants_of(table.column("key_id"))
    principals, principal_places = tenants_of(table.column("principal"))
    triples = (places * len(key_ids) + key_places) * len(principals) + principal_places
    _, first_rows, kinds = np.unique(triples, return_index=True, return_inverse=True)
    indices = table.column("leaf_index").to_numpy().astype(np.int64)
    keys, limits = [], []
    for row in first_rows.tolist():
        tenant, key_id = tenants[places[row]], key_ids[key_places[row]]
        where = f"tenant {tenant!r:.80}, leaf {indices[row]}"
        keys.append(trust.writer_key(key_id, principals[principal_places[row]], where).raw)
        limits.append(trust.first_refused_index(key_id, origins[tenant]))
    refused = indices >= np.array(limits, np.int64)[kinds]
    if refused.any():
        row = int(np.argmax(refused))
        raise _row_error(table, row, f"is signed by a key that is revoked from leaf {limits[kinds[row]]} on")
    return [keys[kind] for kind in kinds.tolist()]


def _row_error(table: pa.Table, row: int, problem: str) -> VerificationError:
    tenant, index, entry_id = _named(table, row)
    return VerificationError(f"tenant {tenant!r:.80}, leaf {index}: entry {entry_id!r:.80} {problem}")


def _named(table: pa.Table, row: int) -> tuple[str, int, str]:
    tenant, index, entry_id = (table.column(name)[row].as_py() for name in ("tenant", "leaf_index", "entry_id"))
    return tenant, index, entry_id


def check_tombstones(
    tombstones: Sequence[SignedTombstone], packed_hashes: bytes, tenant: str, origin: str, trust: TrustPolicy
) -> None:
    """Rules 4 and 5 for all tombstones of one tenant, in rising order of leaf index."""

    def hash_at(index: int) -> bytes:
        return packed_hashes[index * merkle.HASH_BYTES : (index + 1) * merkle.HASH_BYTES]

    size = len(packed_hashes) // merkle.HASH_BYTES
    previous = -1
    for item in tombstones:
        body, index = item.tombstone, item.index
        where = f"tenant {tenant!r:.80}, leaf {index}"
        if body.tenant != tenant or not previous < index < size:
            raise VerificationError(f"{where}: tombstone is out of order or beyond the log")
        previous = index
        leaf = encode_tombstone(body, origin=origin, index=index)
        got = merkle.leaf_hash(leaf)
        if got != hash_at(index):
            raise VerificationError(f"{where}: tombstone hashes to {got.hex()}, expected {hash_at(index).hex()}")
        if body.removed_index >= index:
            raise VerificationError(f"{where}: tombstone names leaf {body.removed_index}, which is no earlier one")
        if hash_at(body.removed_index) != body.removed_leaf_hash:
            raise VerificationError(
                f"{where}: tombstone names leaf hash {body.removed_leaf_hash.hex()}, "
                f"leaf {body.removed_index} has {hash_at(body.removed_index).hex()}"
            )
        check_signers(
            item.signatures, SIGNATURE_DOMAIN + leaf, trust.leaf_keys("auditor", origin, index),
            trust.roles["auditor"].threshold, "auditor", where=f"{where}: tombstone",
        )  # fmt: skip
    in_force(tombstones)
