"""transparency-dev/tessera: a log of 15 leaves in tiles, its signed checkpoints at sizes 0 … 15, and its leaves."""

import hashlib

import pytest

from memory_audit.errors import VerificationError
from memory_audit.provenance.ed25519 import PublicKey
from memory_audit.provenance.tlog.checkpoint import open_checkpoint
from memory_audit.provenance.tlog.merkle import consistency_proof, root, unpack, verify_consistency
from memory_audit.provenance.tlog.tiles import open_tiles
from tests.conformance.vectors import vectors

pytestmark = pytest.mark.tool("vectors")

LOG = vectors("tessera-tlog") / "testdata" / "log"
ORIGIN = "example.com/log/testdata"
KEY = PublicKey.from_vkey("example.com/log/testdata+33d7b496+AeHTu4Q3hEIMHNqc6fASMsq3rKNx280NI+oO5xCFkkSx")


def leaf_hashes():
    """The level-0 tile of the full log: its leaf hashes, concatenated (c2sp.org/tlog-tiles)."""
    return unpack((LOG / "tile" / "0" / "000.p" / "15").read_bytes())


def checkpoint(size):
    data = (LOG / f"checkpoint.{size}").read_bytes()
    return open_checkpoint(data, [KEY], origin=ORIGIN, where=f"checkpoint.{size}")


@pytest.mark.parametrize("size", range(16))
def test_signature_and_root(size):
    opened = checkpoint(size)
    assert opened.size == size
    assert opened.root == root(leaf_hashes()[:size])


@pytest.mark.parametrize("size", range(16))
def test_the_tiles_of_every_size_open(size):
    tree = open_tiles(size, lambda path: (LOG / path).read_bytes())
    assert tree.root() == checkpoint(size).root
    assert unpack(tree.leaf_hashes()) == leaf_hashes()[:size]


@pytest.mark.parametrize("size", range(1, 16))
def test_every_step_is_consistent(size):
    for later in range(size, 16):
        proof = consistency_proof(leaf_hashes()[:later], size)
        verify_consistency(size, later, proof, checkpoint(size).root, checkpoint(later).root)


def test_leaf_hashes_are_those_of_the_entry_bundle():
    bundle = (LOG / "tile" / "entries" / "000.p" / "15").read_bytes()
    hashes = []
    while bundle:
        size = int.from_bytes(bundle[:2], "big")
        hashes.append(hashlib.sha256(b"\x00" + bundle[2 : 2 + size]).digest())
        bundle = bundle[2 + size :]
    assert hashes == leaf_hashes()


@pytest.mark.parametrize("size", range(16))
def test_another_key_is_refused(size):
    stranger = PublicKey.from_vkey("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")
    data = (LOG / f"checkpoint.{size}").read_bytes()
    with pytest.raises(VerificationError, match="signed by 0 known keys"):
        open_checkpoint(data, [stranger], origin=ORIGIN, where="checkpoint")
