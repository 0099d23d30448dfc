"""RFC 6962 Merkle trees over SHA-256: roots, inclusion and consistency proofs, and their verification.

Maths only: bytes in, bytes out; what a leaf says is `memory_audit.provenance.leaf`'s business. Verification follows
RFC 9162 §2.1.3.2 and §2.1.4.2, written with the bit arithmetic of the compact tree.

Rules that RFC 6962 leaves open, decided here:

1. A consistency proof from size 0 proves nothing (every tree extends the empty one) and is refused, as
   transparency-dev does. A caller that has no earlier checkpoint has nothing to check and says so itself.
2. Equal sizes need an empty proof and equal roots.
3. A proof holds at most MAX_PROOF_HASHES hashes of 32 bytes; the length is checked before any hashing.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from memory_audit.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "EMPTY_ROOT",
    "HASH_BYTES",
    "MAX_PROOF_HASHES",
    "MAX_TREE_SIZE",
    "consistency_proof",
    "inclusion_proof",
    "leaf_hash",
    "node_hash",
    "packed_root",
    "proof_of_prefix",
    "root",
    "unpack",
    "verify_consistency",
    "verify_inclusion",
]

HASH_BYTES = 32

MAX_TREE_SIZE = 1 << 40
"""A trillion entries of one tenant: larger sizes are fast-forward attacks."""

MAX_PROOF_HASHES = 2 * 40
"""A consistency proof in a tree of MAX_TREE_SIZE needs at most 41 hashes; doubled, for no honest proof to be near."""

EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(leaf: bytes) -> bytes:
    """SHA-256 of 0x00 and the leaf's bytes."""
    return hashlib.sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256 of 0x01 and the two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def unpack(packed: bytes) -> list[bytes]:
    """Split concatenated hashes; `len(packed)` must be a multiple of HASH_BYTES."""
    return [packed[start : start + HASH_BYTES] for start in range(0, len(packed), HASH_BYTES)]


def root(leaf_hashes: Iterable[bytes]) -> bytes:
    """Root hash of a tree (MTH of RFC 6962 §2.1, from leaf hashes)."""
    return packed_root(b"".join(leaf_hashes))


def packed_root(level: bytes) -> bytes:
    """Root hash of a tree from its concatenated leaf hashes.

    Level by level, an odd last node moving up unchanged: the same tree as splitting at the largest power of two, with
    one pass per level instead of one call per node.
    """
    if not level:
        return EMPTY_ROOT
    sha256, pair = hashlib.sha256, 2 * HASH_BYTES
    while len(level) > HASH_BYTES:
        even = len(level) // pair * pair
        nodes = [sha256(b"\x01" + level[start : start + pair]).digest() for start in range(0, even, pair)]
        level = b"".join(nodes) + level[even:]
    return level


def inclusion_proof(leaf_hashes: Sequence[bytes], index: int) -> list[bytes]:
    """Audit path of leaf `index` (RFC 6962 §2.1.1), from its sibling up.

    Raises:
        IndexError: `index` is not in the tree.
    """
    if not 0 <= index < len(leaf_hashes):
        raise IndexError(f"leaf {index} of a tree of {len(leaf_hashes)}")
    proof: list[bytes] = []
    level = list(leaf_hashes)
    while len(level) > 1:
        if index ^ 1 < len(level):  # an odd last node has no sibling on this level
            proof.append(level[index ^ 1])
        odd = level[-1:] if len(level) & 1 else []
        pairs = iter(level)
        level = [node_hash(left, right) for left, right in zip(pairs, pairs, strict=False)] + odd
        index >>= 1
    return proof


def consistency_proof(leaf_hashes: Sequence[bytes], size1: int) -> list[bytes]:
    """Proof that the first `size1` leaves are a prefix of the tree (RFC 6962 §2.1.2).

    Raises:
        IndexError: `size1` is 0 or beyond the tree.
    """
    return proof_of_prefix(lambda start, end: root(leaf_hashes[start:end]), len(leaf_hashes), size1)


def proof_of_prefix(range_root: Callable[[int, int], bytes], size2: int, size1: int) -> list[bytes]:
    """Like `consistency_proof`, of a tree of `size2` leaves whose MTH(D[start:end]) `range_root` returns.

    Raises:
        IndexError: `size1` is 0 or beyond the tree.
    """
    if not 0 < size1 <= size2:
        raise IndexError(f"prefix of {size1} leaves in a tree of {size2}")
    proof: list[bytes] = []
    start, end, whole = 0, size2, True
    while size1 != end - start:
        split = 1 << (end - start - 1).bit_length() - 1
        if size1 <= split:
            proof.append(range_root(start + split, end))
            end = start + split
        else:
            proof.append(range_root(start, start + split))
            size1, start, whole = size1 - split, start + split, False
    if not whole:
        proof.append(range_root(start, end))
    return proof[::-1]


def verify_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes], expected_root: bytes) -> None:
    """Check that the leaf hash `leaf` is at `index` of the tree of `size` leaves with root `expected_root`.

    Raises:
        VerificationError: with the root that the proof leads to.
    """
    _check_hashes([leaf, *proof], "inclusion proof")
    if not 0 <= index < size <= MAX_TREE_SIZE:
        raise VerificationError(f"inclusion proof: index {index} is not in a tree of {size} leaves")
    node, last, result = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            raise VerificationError(f"inclusion proof: {len(proof)} hashes are too many for leaf {index} of {size}")
        if node & 1 or node == last:
            result = node_hash(sibling, result)
            while not node & 1 and node:  # a right edge without siblings moves up unhashed
                node, last = node >> 1, last >> 1
        else:
            result = node_hash(result, sibling)
        node, last = node >> 1, last >> 1
    if last:
        raise VerificationError(f"inclusion proof: {len(proof)} hashes are too few for leaf {index} of {size}")
    _check_root(result, expected_root, f"inclusion proof of leaf {index} of {size}")


def verify_consistency(size1: int, size2: int, proof: Sequence[bytes], root1: bytes, root2: bytes) -> None:
    """Check that the tree (`size1`, `root1`) is a prefix of the tree (`size2`, `root2`).

    Raises:
        VerificationError: with the root that the proof leads to. `size1` = 0 is refused (rule 1 above).
    """
    _check_hashes(proof, "consistency proof")
    where = f"consistency proof from size {size1} to {size2}"
    if not 0 < size1 <= size2 <= MAX_TREE_SIZE:
        raise VerificationError(f"{where}: needs 0 < first size <= second size <= {MAX_TREE_SIZE}")
    if size1 == size2:
        if proof:
            raise VerificationError(f"{where}: {len(proof)} hashes, expected none between equal sizes")
        _check_root(root1, root2, where)
        return
    if not proof:
        raise VerificationError(f"{where}: no hashes")
    _check_hashes([root1, root2], where)
    node, last = size1 - 1, size2 - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    path = iter(proof)
    first = second = root1 if node == 0 else next(path)  # a power of two is its own first hash and is not sent
    for sibling in path:
        if last == 0:
            raise VerificationError(f"{where}: {len(proof)} hashes are too many")
        if node & 1 or node == last:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            second = node_hash(second, sibling)
        node, last = node >> 1, last >> 1
    if last:
        raise VerificationError(f"{where}: {len(proof)} hashes are too few")
    _check_root(first, root1, f"{where}, first root")
    _check_root(second, root2, f"{where}, second root")


def _check_hashes(hashes: Sequence[bytes], where: str) -> None:
    if len(hashes) > MAX_PROOF_HASHES:
        raise VerificationError(f"{where}: {len(hashes)} hashes, at most {MAX_PROOF_HASHES} are allowed")
    for item in hashes:
        if len(item) != HASH_BYTES:
            raise VerificationError(f"{where}: a hash of {len(item)} bytes, expected {HASH_BYTES}")


def _check_root(got: bytes, expected: bytes, where: str) -> None:
    if got != expected:
        raise VerificationError(f"{where}: root is {got.hex()}, expected {expected.hex()}")
