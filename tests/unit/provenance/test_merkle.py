"""RFC 6962 trees, against a slow definition written from the RFC."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.errors import VerificationError
from memory_audit.provenance.tlog import merkle


def largest_power_below(size):
    power = 1
    while power * 2 < size:
        power *= 2
    return power


def slow_root(hashes):
    """RFC 6962 §2.1, MTH, with leaf hashes given."""
    if not hashes:
        return hashlib.sha256().digest()
    if len(hashes) == 1:
        return hashes[0]
    k = largest_power_below(len(hashes))
    return hashlib.sha256(b"\x01" + slow_root(hashes[:k]) + slow_root(hashes[k:])).digest()


def slow_path(index, hashes):
    """RFC 6962 §2.1.1, PATH."""
    if len(hashes) == 1:
        return []
    k = largest_power_below(len(hashes))
    if index < k:
        return [*slow_path(index, hashes[:k]), slow_root(hashes[k:])]
    return [*slow_path(index - k, hashes[k:]), slow_root(hashes[:k])]


def slow_subproof(size, hashes, *, whole):
    """RFC 6962 §2.1.2, SUBPROOF."""
    if size == len(hashes):
        return [] if whole else [slow_root(hashes)]
    k = largest_power_below(len(hashes))
    if size <= k:
        return [*slow_subproof(size, hashes[:k], whole=whole), slow_root(hashes[k:])]
    return [*slow_subproof(size - k, hashes[k:], whole=False), slow_root(hashes[:k])]


def leaves(size):
    return [merkle.leaf_hash(b"leaf %d" % number) for number in range(size)]


def test_the_empty_tree_is_the_hash_of_nothing():
    assert merkle.root([]) == merkle.EMPTY_ROOT == hashlib.sha256().digest()


@pytest.mark.parametrize("size", range(70))
def test_roots_of_all_small_trees(size):
    hashes = leaves(size)
    assert merkle.root(hashes) == slow_root(hashes)
    assert merkle.unpack(b"".join(hashes)) == hashes


@pytest.mark.parametrize("size", [*range(1, 20), 31, 32, 33])
def test_every_inclusion_proof_of_small_trees(size):
    hashes = leaves(size)
    for index in range(size):
        proof = merkle.inclusion_proof(hashes, index)
        assert proof == slow_path(index, hashes)
        merkle.verify_inclusion(index, size, hashes[index], proof, slow_root(hashes))


@pytest.mark.parametrize("size", [*range(1, 20), 31, 32, 33])
def test_every_consistency_proof_of_small_trees(size):
    hashes = leaves(size)
    for first in range(1, size + 1):
        proof = merkle.consistency_proof(hashes, first)
        assert proof == slow_subproof(first, hashes, whole=True)
        merkle.verify_consistency(first, size, proof, slow_root(hashes[:first]), slow_root(hashes))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_an_inclusion_proof_holds_for_nothing_else(data):
    size = data.draw(st.integers(2, 40))
    index = data.draw(st.integers(0, size - 1))
    hashes = leaves(size)
    proof = merkle.inclusion_proof(hashes, index)
    other = data.draw(st.integers(0, size - 1))
    changed = list(proof)
    kind = data.draw(st.sampled_from(["index", "leaf", "drop", "extend", "flip", "root"]))
    leaf, where, root = hashes[index], index, merkle.root(hashes)
    if kind == "index" and other != index:
        where = other
    elif kind == "leaf":
        leaf = merkle.leaf_hash(b"another")
    elif kind == "drop":
        changed.pop(data.draw(st.integers(0, len(proof) - 1)))
    elif kind == "extend":
        changed.append(hashes[0])
    elif kind == "flip":
        place = data.draw(st.integers(0, len(proof) - 1))
        changed[place] = bytes([changed[place][0] ^ 1]) + changed[place][1:]
    else:
        root = hashes[0]
    with pytest.raises(VerificationError):
        merkle.verify_inclusion(where, size, leaf, changed, root)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_consistency_proof_holds_for_nothing_else(data):
    size = data.draw(st.integers(2, 40))
    first = data.draw(st.integers(1, size - 1))
    hashes = leaves(size)
    proof = merkle.consistency_proof(hashes, first)
    root1, root2 = merkle.root(hashes[:first]), merkle.root(hashes)
    kind = data.draw(st.sampled_from(["root1", "root2", "drop", "extend", "flip"]))
    if kind == "root1":
        root1 = merkle.leaf_hash(b"x")
    elif kind == "root2":
        root2 = merkle.leaf_hash(b"x")
    elif kind == "drop":
        proof.pop(data.draw(st.integers(0, len(proof) - 1)))
    elif kind == "extend":
        proof.append(hashes[0])
    else:
        place = data.draw(st.integers(0, len(proof) - 1))
        proof[place] = bytes([proof[place][0] ^ 1]) + proof[place][1:]
    with pytest.raises(VerificationError):
        merkle.verify_consistency(first, size, proof, root1, root2)


def test_consistency_from_size_zero_is_refused():
    hashes = leaves(3)
    with pytest.raises(VerificationError, match="0 < first size"):
        merkle.verify_consistency(0, 3, [], merkle.EMPTY_ROOT, merkle.root(hashes))


def test_an_index_outside_the_tree_is_refused():
    with pytest.raises(VerificationError, match="not in a tree of 1"):
        merkle.verify_inclusion(1, 1, leaves(2)[1], [], leaves(2)[1])


def test_a_proof_too_long_is_refused_before_hashing():
    with pytest.raises(VerificationError, match="at most 80"):
        merkle.verify_inclusion(0, 2, leaves(1)[0], [b"\x00" * 32] * 100, leaves(1)[0])


def test_a_hash_of_another_length_is_refused():
    with pytest.raises(VerificationError, match="31 bytes"):
        merkle.verify_inclusion(0, 2, leaves(1)[0], [b"\x00" * 31], leaves(1)[0])


@pytest.mark.parametrize("call", [lambda h: merkle.inclusion_proof(h, 3), lambda h: merkle.consistency_proof(h, 0)])
def test_proofs_of_what_is_not_there_are_an_index_error(call):
    with pytest.raises(IndexError):
        call(leaves(3))
