"""The block list of one tenant: all tombstones that refuse its writes, as one immutable value that is quick to ask.

It holds the tenant's own hazard tombstones and those of any tenant of the store whose scope is `operator`; expired ones
and plain removals are left out. `read_block_list` takes them from a `VerifiedSnapshot` only, so a tombstone that no
auditor signed never gets here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import UsageError
from memory_audit.guard.blocks.key_table import KeyTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.hazard import HazardSignature
    from memory_audit.guard.blocks.tombstone import HazardTombstone
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["BlockList", "read_block_list"]

MAX_BITS = 64
"""Labels that one integer holds: twice what a taxonomy may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Labels:
    """The signatures of one taxonomy, as bits."""

    order: dict[str, int]
    bits: NDArray[np.uint64]
    """Shape (tombstones,); 0 for those of other taxonomies, unknown or empty."""


class BlockList:
    """An immutable set of hazard tombstones.

    Args:
        tenant: Whose writes it judges.
        salt: The store's id, salt of the fingerprints.
        stones: In any order; kept in the order of tenant and leaf index.
        embedder: Id of the model whose keys are compared; keys of others count as none.
        behaviour_model: Likewise, of the behaviours.
        version: Version of the store that it was read from.
    """

    def __init__(  # noqa: PLR0913 - a store, its tombstones, and two models
        self,
        *,
        tenant: str,
        salt: str,
        stones: Iterable[HazardTombstone],
        embedder: str,
        behaviour_model: str = "",
        version: int = 0,
    ) -> None:
        self.tenant, self.salt, self.version = tenant, salt, version
        self.embedder, self.behaviour_model = embedder, behaviour_model
        self.stones: tuple[HazardTombstone, ...] = tuple(
            sorted(stones, key=lambda stone: (stone.tombstone.tenant, stone.tombstone.removed_index))
        )
        self._prints: dict[bytes, int] = {}
        self._ids: dict[str, int] = {}
        for number, stone in enumerate(self.stones):
            for item in stone.block.fingerprints:
                self._prints.setdefault(item, number)
            if stone.tombstone.tenant == tenant:
                self._ids[stone.tombstone.entry_id] = number
        self.keys = KeyTable([stone.block.keys for stone in self.stones], embedder)
        self.behaviours = KeyTable([stone.block.behaviours for stone in self.stones], behaviour_model)
        self._by_taxonomy = {
            digest: _pack(self.stones, digest)
            for digest in {s.block.signature.taxonomy for s in self.stones if s.block.signature is not None}
        }

    def __len__(self) -> int:
        return len(self.stones)

    @property
    def taxonomies(self) -> frozenset[str]:
        """Digests of the taxonomies that signatures are made of."""
        return frozenset(self._by_taxonomy)

    @property
    def next_expiry_ms(self) -> int | None:
        """When the first of them ends, Unix milliseconds; None where none does."""
        return min((s.block.expires_at_ms for s in self.stones if s.block.expires_at_ms is not None), default=None)

    def without_expired(self, now_ms: int) -> BlockList:
        """Return the set as it is at `now_ms`."""
        return BlockList(
            tenant=self.tenant,
            salt=self.salt,
            embedder=self.embedder,
            behaviour_model=self.behaviour_model,
            version=self.version,
            stones=(stone for stone in self.stones if not stone.expired(now_ms)),
        )

    def removed_id(self, entry_id: str) -> int | None:
        """Return the number of the tenant's tombstone that removed this very entry id."""
        return self._ids.get(entry_id)

    def by_fingerprint(self, prints: Iterable[bytes]) -> int | None:
        """Return the number of the first tombstone with one of these fingerprints."""
        return next((self._prints[item] for item in prints if item in self._prints), None)

    def matching(self, signature: HazardSignature) -> NDArray[np.bool_]:
        """Return which tombstones' signatures match, shape (stones,); `hazard.matches` for all at once."""
        packed = self._by_taxonomy.get(signature.taxonomy)
        if packed is None or not signature.labels:
            return np.zeros(len(self.stones), np.bool_)
        write = np.uint64(_bits(signature.labels, packed.order))
        strange = not signature.labels <= packed.order.keys()  # a label that no tombstone has: no subset of any
        bits = packed.bits
        inside = np.zeros_like(bits, np.bool_) if strange else (bits & write) == write
        around = (bits & write) == bits
        return np.asarray((inside | around) & (bits != 0), np.bool_)

    def unlabelled(self, known: Collection[str]) -> NDArray[np.bool_]:
        """Return which tombstones no labels can match, shape (stones,).

        Their signature is empty, unknown, or of a taxonomy that is not in `known`.
        """
        return np.asarray(
            [
                stone.block.signature is None
                or not stone.block.signature.labels
                or stone.block.signature.taxonomy not in known
                for stone in self.stones
            ],
            np.bool_,
        ).reshape(len(self.stones))


def read_block_list(
    snapshot: VerifiedSnapshot, tenant: str, *, embedder: str, now_ms: int, behaviour_model: str = ""
) -> BlockList:
    """Read the block list of a tenant from a verified store.

    A tenant that is not in the store yet has only the operator-wide tombstones.

    Raises:
        UsageError: `snapshot` is not a VerifiedSnapshot.
        VerificationError: a log or a tombstone does not verify.
    """
    from memory_audit.guard.blocks.tombstone import read_hazard  # noqa: PLC0415 - the guard itself needs no format
    from memory_audit.snapshot.reader import VerifiedSnapshot as Verified  # noqa: PLC0415 - brings pyarrow

    if not isinstance(snapshot, Verified):
        raise UsageError(f"a block list is read from a VerifiedSnapshot, not from a {type(snapshot).__name__}")
    found: list[HazardTombstone] = []
    for owner in _tenants_with_a_say(snapshot, tenant):
        stones = (read_hazard(tombstone) for tombstone in snapshot.tombstones(owner))
        found += [
            stone
            for stone in stones
            if stone is not None and not stone.expired(now_ms) and (owner == tenant or stone.block.scope == "operator")
        ]
    return BlockList(
        tenant=tenant, salt=snapshot.store_id, stones=found, embedder=embedder, behaviour_model=behaviour_model,
        version=snapshot.version,
    )  # fmt: skip


def _tenants_with_a_say(snapshot: VerifiedSnapshot, tenant: str) -> Sequence[str]:
    """Return the tenant, and others with an operator-wide tombstone; only their logs need to be verified."""
    from memory_audit.guard.blocks.tombstone import read_hazard  # noqa: PLC0415
    from memory_audit.snapshot.columns.tables import read_tombstones  # noqa: PLC0415
    from memory_audit.snapshot.layout import read_file  # noqa: PLC0415

    found = {tenant} if tenant in snapshot.log_refs else set()
    for bucket, files in snapshot.manifest.buckets.items():
        if files.tombstones is None:
            continue
        data = read_file(snapshot.path, "tombstones", bucket, files.tombstones)
        for item in read_tombstones(data, f"tombstones/b={bucket:02x}", files.tombstones.rows):
            stone = read_hazard(item.tombstone)
            if stone is not None and stone.block.scope == "operator":
                found.add(item.tombstone.tenant)
    return sorted(found)


def _pack(stones: Sequence[HazardTombstone], taxonomy: str) -> _Labels:
    signatures = [stone.block.signature for stone in stones]
    labels = sorted({label for s in signatures if s is not None and s.taxonomy == taxonomy for label in s.labels})
    if len(labels) > MAX_BITS:
        raise UsageError(f"tombstones of taxonomy {taxonomy:.16} name {len(labels)} labels, at most {MAX_BITS}")
    order = {label: place for place, label in enumerate(labels)}
    bits = [_bits(s.labels, order) if s is not None and s.taxonomy == taxonomy else 0 for s in signatures]
    return _Labels(order=order, bits=np.asarray(bits, np.uint64))


def _bits(labels: Iterable[str], order: dict[str, int]) -> int:
    return sum(1 << order[label] for label in labels if label in order)
