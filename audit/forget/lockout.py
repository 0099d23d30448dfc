"""The lockout of one tenant: all tombstones that refuse its writes, as one immutable value that is quick to ask.

It holds the tenant's own hazard tombstones and those of any tenant of the store whose scope is `operator`; expired ones
and plain removals are left out. `read_lockout` takes them from a `VerifiedSnapshot` only, so a tombstone that no
auditor signed never gets here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from audit.forget.hazard import HazardSignature, MatchMode
    from audit.forget.tombstone import HazardTombstone
    from audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Lockout", "read_lockout"]

FAR = -1.0
"""Similarity of a tombstone that has no key to compare."""

UNSPLIT_ELEMENTS = 8_192
"""Below what OpenBLAS gives to several threads (9,216)."""

MAX_BITS = 64
"""Labels that one integer holds: twice what a taxonomy may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Labels:
    """The signatures of one taxonomy, as bits."""

    order: dict[str, int]
    bits: NDArray[np.uint64]
    """Shape (tombstones,); 0 for those of other taxonomies, unknown or empty."""


class Lockout:
    """An immutable set of hazard tombstones.

    Args:
        tenant: Whose writes it judges.
        salt: The store's id, salt of the fingerprints.
        stones: In any order; kept in the order of tenant and leaf index.
        embedder: Id of the model whose keys are compared; keys of others count as none.
        version: Version of the store that it was read from.
    """

    def __init__(
        self, *, tenant: str, salt: str, stones: Iterable[HazardTombstone], embedder: str, version: int = 0
    ) -> None:
        self.tenant, self.salt, self.embedder, self.version = tenant, salt, embedder, version
        self.stones: tuple[HazardTombstone, ...] = tuple(
            sorted(stones, key=lambda stone: (stone.tombstone.tenant, stone.tombstone.removed_index))
        )
        self._prints: dict[bytes, int] = {}
        self._ids: dict[str, int] = {}
        rows: list[NDArray[np.float32]] = []
        owners: list[int] = []
        for number, stone in enumerate(self.stones):
            for item in stone.lock.fingerprints:
                self._prints.setdefault(item, number)
            if stone.tombstone.tenant == tenant:
                self._ids[stone.tombstone.entry_id] = number
            mine = [key.vector() for key in stone.lock.keys if key.embedder == embedder]
            rows += mine
            owners += [number] * len(mine)
        if len({row.size for row in rows}) > 1:
            raise UsageError(f"keys of embedder {embedder!r:.80} have different dimensions")
        self._blocks = _blocks(rows)
        self._owners = np.asarray(owners, np.intp)
        self._one_key_each = owners == list(range(len(self.stones)))
        self.keyless = np.ones(len(self.stones), np.bool_)
        """Shape (stones,): no key that this embedder could compare."""
        self.keyless[self._owners] = False
        self._by_taxonomy = {
            digest: _pack(self.stones, digest)
            for digest in {s.lock.signature.taxonomy for s in self.stones if s.lock.signature is not None}
        }
        self.keyless.flags.writeable = False

    def __len__(self) -> int:
        return len(self.stones)

    @property
    def taxonomies(self) -> frozenset[str]:
        """Digests of the taxonomies that signatures are made of."""
        return frozenset(self._by_taxonomy)

    @property
    def dimensions(self) -> int:
        """Dimensions of the keys; 0 where there are none."""
        return int(self._blocks.shape[2])

    @property
    def next_expiry_ms(self) -> int | None:
        """When the first of them ends, Unix milliseconds; None where none does."""
        return min((s.lock.expires_at_ms for s in self.stones if s.lock.expires_at_ms is not None), default=None)

    def without_expired(self, now_ms: int) -> Lockout:
        """Return the set as it is at `now_ms`."""
        return Lockout(
            tenant=self.tenant, salt=self.salt, embedder=self.embedder, version=self.version,
            stones=(stone for stone in self.stones if not stone.expired(now_ms)),
        )  # fmt: skip

    def removed_id(self, entry_id: str) -> int | None:
        """Return the number of the tenant's tombstone that removed this very entry id."""
        return self._ids.get(entry_id)

    def by_fingerprint(self, prints: Iterable[bytes]) -> int | None:
        """Return the number of the first tombstone with one of these fingerprints."""
        return next((self._prints[item] for item in prints if item in self._prints), None)

    def similarity(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compare unit vectors with every tombstone.

        Args:
            vectors: Shape (texts, dimensions).

        Returns:
            Shape (texts, stones): the largest cosine over a tombstone's keys; FAR where it has none.

        Raises:
            UsageError: vectors of another dimension.
        """
        if not self._owners.size:
            return np.full((len(vectors), len(self.stones)), FAR, np.float32)
        if vectors.shape[1] != self.dimensions:
            raise UsageError(f"vectors have {vectors.shape[1]} dimensions, the keys have {self.dimensions}")
        # All texts at once: the keys are read from memory once, which is what the product costs.
        products = self._blocks @ np.ascontiguousarray(vectors.T)
        per_key = np.ascontiguousarray(products.reshape(-1, len(vectors))[: self._owners.size].T)
        if self._one_key_each:
            return per_key
        best = np.full((len(vectors), len(self.stones)), FAR, np.float32)
        for row, values in zip(best, per_key, strict=True):
            np.maximum.at(row, self._owners, values)
        return best

    def matching(self, signature: HazardSignature, mode: MatchMode) -> NDArray[np.bool_]:
        """Return which tombstones' signatures match, shape (stones,); `audit.forget.hazard.matches` for all at once."""
        packed = self._by_taxonomy.get(signature.taxonomy)
        if packed is None or not signature.labels or mode == "key":
            return np.zeros(len(self.stones), np.bool_)
        write = np.uint64(_bits(signature.labels, packed.order))
        strange = not signature.labels <= packed.order.keys()  # a label that no tombstone has: no subset of any
        bits = packed.bits
        inside = np.zeros_like(bits, np.bool_) if strange else (bits & write) == write
        around = (bits & write) == bits
        found = inside & around if mode == "exact" else inside | around
        return np.asarray(found & (bits != 0), np.bool_)

    def without_labels(self, known: Collection[str]) -> NDArray[np.bool_]:
        """Return which tombstones no label can match, shape (stones,).

        Their signature is empty, unknown, or of a taxonomy not in `known`: only fingerprint and key speak for them.
        """
        return np.asarray(
            [
                stone.lock.signature is None
                or not stone.lock.signature.labels
                or stone.lock.signature.taxonomy not in known
                for stone in self.stones
            ],
            np.bool_,
        )


def read_lockout(snapshot: VerifiedSnapshot, tenant: str, *, embedder: str, now_ms: int) -> Lockout:
    """Read the lockout of a tenant from a verified store.

    A tenant that is not in the store yet has only the operator-wide tombstones.

    Raises:
        UsageError: `snapshot` is not a VerifiedSnapshot.
        VerificationError: a log or a tombstone does not verify.
    """
    from audit.forget.tombstone import read_hazard  # noqa: PLC0415 - the guard itself needs no format
    from audit.snapshot.reader import VerifiedSnapshot as Verified  # noqa: PLC0415 - brings pyarrow

    if not isinstance(snapshot, Verified):
        raise UsageError(f"a lockout is read from a VerifiedSnapshot, not from a {type(snapshot).__name__}")
    found: list[HazardTombstone] = []
    for owner in _tenants_with_a_say(snapshot, tenant):
        stones = (read_hazard(tombstone) for tombstone in snapshot.tombstones(owner))
        found += [
            stone
            for stone in stones
            if stone is not None and not stone.expired(now_ms) and (owner == tenant or stone.lock.scope == "operator")
        ]
    return Lockout(tenant=tenant, salt=snapshot.store_id, stones=found, embedder=embedder, version=snapshot.version)


def _tenants_with_a_say(snapshot: VerifiedSnapshot, tenant: str) -> Sequence[str]:
    """Return the tenant, and others with an operator-wide tombstone; only their logs need to be verified."""
    from audit.forget.tombstone import read_hazard  # noqa: PLC0415
    from audit.snapshot.columns import read_tombstones  # noqa: PLC0415
    from audit.snapshot.layout import read_file  # noqa: PLC0415

    found = {tenant} if tenant in snapshot.log_refs else set()
    for bucket, files in snapshot.manifest.buckets.items():
        if files.tombstones is None:
            continue
        data = read_file(snapshot.path, "tombstones", bucket, files.tombstones)
        for item in read_tombstones(data, f"tombstones/b={bucket:02x}"):
            stone = read_hazard(item.tombstone)
            if stone is not None and stone.lock.scope == "operator":
                found.add(item.tombstone.tenant)
    return sorted(found)


def _blocks(rows: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Stack keys into blocks of shape (blocks, rows, dimensions), the last one filled with zeros.

    Each block's product is too small for the BLAS library to split among threads. One product over all keys is split,
    and on a machine whose cores are busy then waits for the slowest thread: 16 ms instead of 1.3 ms, measured with
    10,000 keys of 384 dimensions at a load of four a core; on idle cores both take 0.5 to 0.9 ms.
    """
    if not rows:
        return np.zeros((0, 0, 0), np.float32)
    dimensions = rows[0].size
    height = max(1, UNSPLIT_ELEMENTS // dimensions)
    padded = np.zeros((-(-len(rows) // height) * height, dimensions), np.float32)
    padded[: len(rows)] = rows
    return padded.reshape(-1, height, dimensions)


def _pack(stones: Sequence[HazardTombstone], taxonomy: str) -> _Labels:
    signatures = [stone.lock.signature for stone in stones]
    labels = sorted({label for s in signatures if s is not None and s.taxonomy == taxonomy for label in s.labels})
    if len(labels) > MAX_BITS:
        raise UsageError(f"tombstones of taxonomy {taxonomy:.16} name {len(labels)} labels, at most {MAX_BITS}")
    order = {label: place for place, label in enumerate(labels)}
    bits = [_bits(s.labels, order) if s is not None and s.taxonomy == taxonomy else 0 for s in signatures]
    return _Labels(order=order, bits=np.asarray(bits, np.uint64))


def _bits(labels: Iterable[str], order: dict[str, int]) -> int:
    return sum(1 << order[label] for label in labels if label in order)
