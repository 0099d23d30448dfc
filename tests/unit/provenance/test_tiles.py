"""Trees in tiles, against the same trees in one piece."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.errors import VerificationError
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.tiles import TiledTree, edge_bytes, open_tiles, tile_path

LEAVES = [merkle.leaf_hash(b"leaf %d" % number) for number in range(66_000)]
SIZES = (0, 1, 2, 255, 256, 257, 511, 512, 880, 65_535, 65_536, 65_537, 66_000)


def grown(size, steps=(7, 300, 1)):
    """A tree of the first leaves, grown by these steps again and again."""
    tree, step = TiledTree(), 0
    while tree.size < size:
        tree.extend(b"".join(LEAVES[tree.size : min(size, tree.size + steps[step % len(steps)])]))
        step += 1
    return tree


def reopened(tree, tiles):
    return TiledTree(tree.size, tree.edge(), lambda _level, _number, tree_hash: tiles[tree_hash])


@pytest.mark.parametrize("size", SIZES)
def test_a_tree_in_tiles_is_the_tree_in_one_piece(size):
    tree = grown(size, steps=(1_000, 1))
    assert len(tree.edge()) == edge_bytes(size)
    for one in (tree, reopened(tree, tree.new_tiles)):
        assert (one.size, one.root()) == (size, merkle.root(LEAVES[:size]))
        assert one.leaf_hashes() == b"".join(LEAVES[:size])
        assert set(one.tiles()) == tree.new_tiles.keys()


@settings(deadline=None)
@given(st.lists(st.integers(1, 700), max_size=8), st.data())
def test_however_it_grows_and_is_taken_up_it_is_the_same(steps, data):
    kept: dict[bytes, bytes] = {}
    tree = TiledTree(0, b"", lambda _level, _number, tree_hash: kept[tree_hash])
    for step in steps:
        tree.extend(b"".join(LEAVES[tree.size : tree.size + step]))
        kept |= tree.new_tiles
        tree = reopened(tree, kept)
    hashes = LEAVES[: tree.size]
    assert tree.root() == merkle.root(hashes)
    if hashes:
        size = data.draw(st.integers(1, len(hashes)))
        assert tree.range_root(0, size) == merkle.root(hashes[:size])
        assert tree.consistency_proof(size) == merkle.consistency_proof(hashes, size)


def test_an_append_reads_no_full_tile_and_makes_only_those_that_it_fills():
    before = grown(66_000 - 1_000)

    def read(_level, _number, _tree_hash):
        raise AssertionError

    tree = TiledTree(before.size, before.edge(), read)
    assert tree.root() == before.root()
    tree.extend(b"".join(LEAVES[before.size :]))
    assert tree.root() == merkle.root(LEAVES)
    assert len(tree.new_tiles) == 5  # four of leaves, and the first of level 1


def test_a_proof_reads_a_few_tiles():
    before, read = grown(66_000), []
    tree = TiledTree(before.size, before.edge(), lambda *asked: read.append(asked) or before.new_tiles[asked[2]])
    proof = tree.consistency_proof(40_001)
    merkle.verify_consistency(40_001, 66_000, proof, merkle.root(LEAVES[:40_001]), tree.root())
    assert len(read) < 5


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda tile: tile[:-1] + bytes([tile[-1] ^ 1]), "Merkle tree hash is"),
        (lambda tile: tile[:-32], "8160 bytes, expected 8192"),
        (lambda tile: tile + tile[:32], "8224 bytes, expected 8192"),
        (lambda _: b"", "0 bytes, expected 8192"),
        (lambda tile: tile[32:] + tile[:32], "Merkle tree hash is"),
    ],
)
@pytest.mark.parametrize("level", [0, 1])
def test_a_tile_that_is_not_that_of_the_tree_is_refused(harm, problem, level):
    before = grown(66_000)

    def read(asked, _number, tree_hash):
        tile = before.new_tiles[tree_hash]
        return harm(tile) if asked == level else tile

    with pytest.raises(VerificationError, match=rf"tile/{level}/000 \([0-9a-f]+\): {problem}"):
        TiledTree(before.size, before.edge(), read).leaf_hashes()


def test_a_right_edge_of_another_size_is_refused():
    with pytest.raises(VerificationError, match="32 bytes of partial tiles, a tree of 2 leaves has 64"):
        TiledTree(2, bytes(32))


def test_a_tree_without_its_full_tiles_has_a_root_and_nothing_else():
    tree = TiledTree(256, grown(256).edge())
    assert tree.root() == merkle.root(LEAVES[:256])
    with pytest.raises(VerificationError, match=r"tile/0/000 .*missing"):
        tree.leaf_hashes()


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ((0, 0), "tile/0/000"), ((1, 999), "tile/1/999"), ((0, 1_000), "tile/0/x001/000"),
        ((0, 1_234_067), "tile/0/x001/x234/067"), ((0, 273, 112), "tile/0/273.p/112"), ((2, 0, 1), "tile/2/000.p/1"),
    ],
)  # fmt: skip
def test_paths_are_those_of_the_specification(place, path):
    assert tile_path(*place) == path


def test_a_tree_of_the_specification_has_its_tiles_at_its_paths():
    """By its rule: hash i of tile n of level l is MTH(D[(n * 256 + i) * 256**l : (n * 256 + i + 1) * 256**l])."""
    served, level, hashes = {}, 0, LEAVES
    while hashes:
        for start in range(0, len(hashes), 256):
            part = hashes[start : start + 256]
            served[tile_path(level, start // 256, len(part))] = b"".join(part)
        level, hashes = level + 1, [merkle.root(hashes[end - 256 : end]) for end in range(256, len(hashes) + 1, 256)]
    assert {path for path in served if ".p/" in path} == {"tile/0/257.p/208", "tile/1/001.p/1", "tile/2/000.p/1"}
    assert dict(grown(66_000).served()) == served
    tree = open_tiles(66_000, served.__getitem__)
    assert tree.root() == merkle.root(LEAVES)
    assert tree.leaf_hashes() == b"".join(LEAVES)
