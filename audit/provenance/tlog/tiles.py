"""A log's Merkle tree in tiles (c2sp.org/tlog-tiles): an append touches the right edge, and no other tile ever changes.

    level 1    [3 hashes]                              the right edge: the partial tile of each level
    level 0    [256 leaf hashes] [256] [256] [112]     a tree of 880 leaves

A full tile is 256 hashes of one level; its Merkle tree hash is one hash of the level above. So whoever has the right
edge of a tree whose root is signed can check each tile by itself, from the top down: the hash above it is also what it
is asked for by (`TiledTree`), whoever keeps it. A reader MUST refuse a full tile that is not 256 hashes of that Merkle
tree hash.

Bytes in, bytes out: where tiles are kept is the caller's business. Entry bundles are not read or written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.errors import VerificationError
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.merkle import HASH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    ReadTile = Callable[[int, int, bytes], bytes]
    """Level, number and Merkle tree hash of a full tile to its bytes."""

__all__ = ["TILE_BYTES", "TiledTree", "edge_bytes", "open_tiles", "tile_path"]

TILE_HEIGHT = 8
TILE_WIDTH = 1 << TILE_HEIGHT
TILE_BYTES = TILE_WIDTH * HASH_BYTES


def tile_path(level: int, number: int, width: int = TILE_WIDTH) -> str:
    """Path of a tile below a log's prefix, such as `tile/0/x001/x234/067` or `tile/1/004.p/17`."""
    groups = [f"{number % 1000:03}"]
    while number := number // 1000:
        groups.append(f"x{number % 1000:03}")
    return f"tile/{level}/{'/'.join(reversed(groups))}" + ("" if width == TILE_WIDTH else f".p/{width}")


def edge_bytes(size: int) -> int:
    """Return how many bytes the partial tiles of a tree of `size` leaves have."""
    return sum(_widths(size)) * HASH_BYTES


def open_tiles(size: int, fetch: Callable[[str], bytes]) -> TiledTree:
    """Open a tree whose tiles lie at their C2SP paths.

    Args:
        size: Leaves, as a verified checkpoint states them. Compare `TiledTree.root` with its root.
        fetch: Path to the tile's bytes.

    Raises:
        VerificationError: a partial tile of another width.
    """
    paths = [tile_path(level, size >> _shift(level + 1), width) for level, width in enumerate(_widths(size)) if width]
    return TiledTree(size, b"".join(map(fetch, paths)), lambda level, number, _: fetch(tile_path(level, number)))


class TiledTree:
    """A growing tree: its right edge in memory, its full tiles read when they are asked for, and checked by hash."""

    __slots__ = ("_edge", "_last", "_read", "_size", "new_tiles")

    def __init__(self, size: int = 0, edge: bytes = b"", read: ReadTile | None = None) -> None:
        """Take up a tree.

        Args:
            size: Leaves.
            edge: Its partial tiles, level 0 first, concatenated. Nothing vouches for them: compare `root`.
            read: Where its full tiles are; None where there are none.

        Raises:
            VerificationError: `edge` is not as long as that of such a tree.
        """
        if len(edge) != edge_bytes(size):
            raise VerificationError(
                f"{len(edge)} bytes of partial tiles, a tree of {size} leaves has {edge_bytes(size)}"
            )
        self._size = size
        self._edge: list[bytes] = []
        for width in _widths(size):
            self._edge.append(edge[: width * HASH_BYTES])
            edge = edge[width * HASH_BYTES :]
        self._read = read
        self._last: dict[int, tuple[int, bytes]] = {}  # by level: the tile read last
        self.new_tiles: dict[bytes, bytes] = {}
        """Merkle tree hash to the bytes of each full tile that `extend` completed."""

    @property
    def size(self) -> int:
        """Number of leaves."""
        return self._size

    def edge(self) -> bytes:
        """Return the partial tiles, level 0 first, concatenated."""
        return b"".join(self._edge)

    def extend(self, leaf_hashes: bytes) -> None:
        """Append leaf hashes, concatenated."""
        self._grow(0, leaf_hashes)
        self._size += len(leaf_hashes) // HASH_BYTES
        self._last.clear()

    def _grow(self, level: int, hashes: bytes) -> None:
        if level == len(self._edge):
            self._edge.append(b"")
        hashes = self._edge[level] + hashes
        full = len(hashes) // TILE_BYTES * TILE_BYTES
        self._edge[level] = hashes[full:]
        if full:
            tiles = [hashes[start : start + TILE_BYTES] for start in range(0, full, TILE_BYTES)]
            names = [merkle.packed_root(tile) for tile in tiles]
            self.new_tiles.update(zip(names, tiles, strict=True))
            self._grow(level + 1, b"".join(names))

    def root(self) -> bytes:
        """Return the root hash; it takes the right edge alone."""
        return self.range_root(0, self._size)

    def range_root(self, start: int, end: int) -> bytes:
        """Merkle tree hash of the leaves from `start` to before `end` (MTH(D[start:end]) of RFC 6962).

        Args:
            start: A multiple of the largest power of two that is no larger than `end - start`, as in RFC 6962's proofs.
            end: At most the tree's size.

        Raises:
            VerificationError: a tile that it takes is missing, or not that of the tree.
        """
        nodes = []
        for height in range((end - start).bit_length() - 1, -1, -1):  # one full subtree for each one bit, largest first
            if (end - start) >> height & 1:
                nodes.append(self._node(height, start >> height))
                start += 1 << height
        if not nodes:
            return merkle.EMPTY_ROOT
        result = nodes.pop()
        while nodes:
            result = merkle.node_hash(nodes.pop(), result)
        return result

    def consistency_proof(self, size: int) -> list[bytes]:
        """Proof that the first `size` leaves, at least one, are a prefix. Raises like `range_root`."""
        return merkle.proof_of_prefix(self.range_root, self._size, size)

    def leaf_hashes(self) -> bytes:
        """Return all leaf hashes, concatenated. Raises like `range_root`."""
        return b"".join(self._tile(0, number) for number in range((self._size >> TILE_HEIGHT) + 1))

    def served(self) -> Iterator[tuple[str, bytes]]:
        """Yield path and bytes of every tile, as `open_tiles` reads them. Raises like `range_root`."""
        for level, width in enumerate(_widths(self._size)):
            full = self._size >> _shift(level + 1)
            for number in range(full):
                yield tile_path(level, number), self._tile(level, number)
            if width:
                yield tile_path(level, full, width), self._edge[level]

    def tiles(self) -> Iterator[bytes]:
        """Yield the Merkle tree hash of every full tile. Raises like `range_root`."""
        for level in range(1, len(self._edge)):
            for number in range((self._size >> _shift(level + 1)) + 1):
                yield from merkle.unpack(self._tile(level, number))

    def _node(self, height: int, number: int) -> bytes:
        """Root of a full subtree of 2**height leaves."""
        level, inside = divmod(height, TILE_HEIGHT)
        return merkle.packed_root(self._hashes(level, number << inside, 1 << inside))

    def _hashes(self, level: int, first: int, count: int) -> bytes:
        """Return hashes of one tile, by their places in the level."""
        number, place = divmod(first, TILE_WIDTH)
        return self._tile(level, number)[place * HASH_BYTES : (place + count) * HASH_BYTES]

    def _tile(self, level: int, number: int) -> bytes:
        if number == self._size >> _shift(level + 1):
            return self._edge[level] if level < len(self._edge) else b""
        known, tile = self._last.get(level, (None, b""))
        if known == number:
            return tile
        name = self._hashes(level + 1, number, 1)
        tile = self.new_tiles.get(name) or self._checked(level, number, name)
        self._last[level] = number, tile
        return tile

    def _checked(self, level: int, number: int, name: bytes) -> bytes:
        where = f"{tile_path(level, number)} ({name.hex()})"
        if self._read is None:
            raise VerificationError(f"{where}: missing")
        tile = self._read(level, number, name)
        if len(tile) != TILE_BYTES:
            raise VerificationError(f"{where}: {len(tile)} bytes, expected {TILE_BYTES}")
        got = merkle.packed_root(tile)
        if got != name:
            raise VerificationError(f"{where}: Merkle tree hash is {got.hex()}, expected {name.hex()}")
        return tile


def _shift(level: int) -> int:
    """Leaves below a hash of a level, as a power of two."""
    return level * TILE_HEIGHT


def _widths(size: int) -> list[int]:
    """Hashes in the partial tile of each level; 0 where there is none."""
    levels = -(-size.bit_length() // TILE_HEIGHT)
    return [size >> _shift(level) & (TILE_WIDTH - 1) for level in range(levels)]
