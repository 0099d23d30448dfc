"""Locks of tombstones: one spelling, no text, strict reading."""

# ruff: noqa: ANN002 - texts are passed on

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError, VerificationError
from memory_audit.guard.blocks.hazard import HazardSignature
from memory_audit.guard.blocks.key_table import KeyTable
from memory_audit.guard.blocks.semantic_key import SemanticKey
from memory_audit.guard.blocks.tombstone import (
    EXTRA_KEY,
    MAX_KEYS,
    BlockRecord,
    block_record,
    read_block_record,
    read_hazard,
)
from memory_audit.guard.text.forms import action_of, fingerprint
from memory_audit.models.fakes import FakeBehaviourReader
from memory_audit.provenance import strict_json
from memory_audit.provenance.leaf import Tombstone, encode_tombstone
from tests.conformance.leaf_reader import decode_leaf
from tests.unit.guard.blocked import EMBEDDER, HARMFUL, SALT, entry, signature, stone

LABELS = st.none() | st.frozensets(st.from_regex(r"[a-z]{1,8}", fullmatch=True), max_size=5)
KEYS = st.lists(st.binary(min_size=8, max_size=8).filter(any), max_size=4)


@given(LABELS, KEYS, st.sets(st.binary(min_size=16, max_size=16), max_size=5), st.none() | st.integers(0, 10**14))
def test_what_is_written_is_read_back(labels, keys, prints, expires):
    block = BlockRecord(
        signature=None if labels is None else HazardSignature(labels=labels, taxonomy="t", model="m"),
        keys=tuple(SemanticKey(embedder="e", quantised=key) for key in keys),
        fingerprints=tuple(sorted(prints)), scope="operator", expires_at_ms=expires,
    )  # fmt: skip
    assert read_block_record(block.to_extra()[EXTRA_KEY], "lock") == block


@given(st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=64).filter(lambda v: max(map(abs, v)) > 0.01))
def test_a_key_points_where_the_embedding_points(values):
    vector = np.asarray(values, np.float32)
    vector /= np.linalg.norm(vector)
    held = KeyTable([[SemanticKey.of(vector, "e")]], "e")
    assert float(held.vectors[0] @ vector) > 0.999


@pytest.mark.parametrize("vector", [np.zeros(4), np.full(4, np.nan), np.ones((2, 2)), np.ones(9_000), np.ones(0)])
def test_a_vector_that_points_nowhere_is_no_key(vector):
    with pytest.raises(UsageError, match="cannot be a semantic key"):
        SemanticKey.of(vector.astype(np.float32), "e")


def test_no_text_of_the_removed_entry_is_inside():
    text = stone().block.to_extra()[EXTRA_KEY].casefold()
    assert not [word for word in HARMFUL.casefold().split() if len(word) > 3 and word != "skip" and f" {word}" in text]
    assert "ticket" not in text
    assert "import" not in text


def test_a_lock_survives_the_log():
    held = stone()
    leaf = encode_tombstone(held.tombstone, origin="o", index=7)
    decoded = decode_leaf(leaf, "leaf").body
    assert isinstance(decoded, Tombstone)
    assert read_hazard(decoded) == held


def test_a_plain_tombstone_has_no_lock():
    plain = Tombstone(
        tenant="acme", entry_id="m1", removed_index=0, removed_leaf_hash=bytes(32), reason="r", run_id="r",
        created_at_ms=1,
    )  # fmt: skip
    assert read_hazard(plain) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "memaudit hazard v2"}, "not a memaudit hazard v1"),
        ({"acts": []}, "not the one spelling"),
        ({"acts": ["AAAA"]}, "point somewhere"),
        ({"acts": ["AQ==", "AQI="]}, "not the one spelling"),
        ({"acts": ["AQ=="] * 5}, "at most 4"),
        ({"act_model": ""}, "named model"),
        ({"labels": ["b", "a"]}, "must be sorted"),
        ({"labels": ["a", "a"]}, "must be sorted"),
        ({"labels": [""]}, "not empty"),
        ({"labels": "a"}, "expected a list"),
        ({"keys": ["AB=="]}, "not canonical base64"),
        ({"keys": ["AAAA"]}, "point somewhere"),
        ({"keys": ["AQ==", "AQI="]}, "not the one spelling"),
        ({"keys": ["AQ=="] * 5}, "at most 4"),
        ({"fingerprints": ["AB" * 16]}, "lower-case hex"),
        ({"fingerprints": ["ab"]}, "16 bytes"),
        ({"scope": "world"}, "expected tenant or operator"),
        ({"expires_at_ms": -1}, "expires_at_ms"),
        ({"text": "skip"}, "unknown member"),
        ({"embedder": "other", "keys": []}, "not the one spelling"),
        ({"labels": None, "taxonomy": "t"}, "not the one spelling"),
    ],
)
def test_a_lock_that_breaks_a_rule_does_not_verify(change, message):
    value = json.loads(stone().block.to_extra()[EXTRA_KEY]) | change
    with pytest.raises(VerificationError, match=message):
        read_block_record(strict_json.encode(value).decode(), "lock")


def test_a_record_without_behaviours_is_read_again():
    block = stone(behaviours=None).block
    value = json.loads(block.to_extra()[EXTRA_KEY])
    assert (value["acts"], value["act_model"]) == ([], "")
    assert read_block_record(block.to_extra()[EXTRA_KEY], "lock") == block


def test_white_space_and_repeated_members_do_not_verify():
    text = stone().block.to_extra()[EXTRA_KEY]
    for other in (" " + text, text.replace("{", '{"scope":"tenant",', 1)):
        with pytest.raises(VerificationError, match="not canonical JSON"):
            read_block_record(other, "lock")


def test_a_piece_found_harmful_is_the_key_and_the_harmless_rest_is_not_locked():
    removed = entry("Import it with care.", metadata={"note": HARMFUL})
    block = block_record(
        removed, store_id=SALT, signature=signature("skip_validation"), embed=EMBEDDER.embed,
        embedder=EMBEDDER.model_id, action=(HARMFUL,),
    )  # fmt: skip
    direct = block_record(
        entry(HARMFUL), store_id=SALT, signature=signature("skip_validation"), embed=EMBEDDER.embed,
        embedder=EMBEDDER.model_id,
    )  # fmt: skip
    assert block.keys == direct.keys
    assert block.fingerprints == direct.fingerprints


def test_a_long_text_without_a_found_hazard_is_locked_by_its_most_harmful_pieces():
    honest = [f"Row {number} of the ledger holds {'a sum ' * 150}" for number in range(6)]
    removed = entry(". ".join((*honest, HARMFUL)))
    block = locked(removed, behaviours=Sharp())
    (poison,) = (text for text in action_of(removed) if "skip" in text)
    assert len(block.behaviours) == len(block.keys) == MAX_KEYS
    assert SemanticKey.of(EMBEDDER.embed([poison])[0], EMBEDDER.model_id) in block.keys


class Sharp(FakeBehaviourReader):
    """Sees harm in what skips, and the more the more of it."""

    def read(self, texts):
        read = zip(super().read(texts), texts, strict=True)
        return tuple(replace(one, harm_nats=text.count("skip") - 0.5) for one, text in read)


def locked(removed, *, behaviours=None, action=()):
    return block_record(
        removed, store_id=SALT, signature=None, embed=EMBEDDER.embed, embedder=EMBEDDER.model_id, behaviours=behaviours,
        action=action,
    )  # fmt: skip


def keyed(*texts):
    return tuple(SemanticKey.of(row, EMBEDDER.model_id) for row in EMBEDDER.embed(texts))


def prints(*texts):
    return {fingerprint(text, SALT) for text in texts}


def test_poison_in_metadata_is_locked_where_nobody_told_what_bears_it():
    removed = entry("Noted.", metadata={"note": HARMFUL})
    plain, read = locked(removed), locked(removed, behaviours=Sharp())
    assert plain.keys == keyed("Noted.")
    assert set(plain.fingerprints) == prints(f"Noted. {HARMFUL}")
    assert set(read.keys) == set(keyed("Noted.", HARMFUL, f"Noted. {HARMFUL}"))
    assert len(read.behaviours) == 3
    assert set(read.fingerprints) == prints(HARMFUL, f"Noted. {HARMFUL}")
    assert read_block_record(read.to_extra()[EXTRA_KEY], "lock") == read


@pytest.mark.parametrize(
    ("response", "note"),
    [(HARMFUL, "imported from the help desk"), (HARMFUL, HARMFUL[12:]), ("Noted.", "imported from the help desk")],
)
def test_metadata_that_is_not_worse_than_the_response_is_no_lock(response, note):
    block = locked(entry(response, metadata={"note": note}), behaviours=Sharp())
    assert block.keys == keyed(response)
    assert not prints(note) & set(block.fingerprints)


def test_metadata_that_stands_alone_is_no_fingerprint_unless_it_is_harmful():
    removed = entry("...", metadata={"note": "imported from the help desk"})
    assert locked(removed, behaviours=Sharp()).fingerprints == locked(removed).fingerprints == ()


def test_the_record_holds_no_more_fingerprints_than_may_be_read():
    notes = {str(number): f"skip skip the {'ledger ' * 120} {number}" for number in range(6)}
    block = locked(entry("Noted with thanks", metadata=notes), behaviours=Sharp())
    assert len(block.keys) == MAX_KEYS
    assert len(block.fingerprints) == MAX_KEYS + 1
    assert read_block_record(block.to_extra()[EXTRA_KEY], "lock") == block


@pytest.mark.parametrize("bearing", range(1, MAX_KEYS + 3))
def test_of_too_many_pieces_that_bear_a_hazard_the_worst_are_locked(bearing):
    decoys = [f"Never skip row {number} of the ledger" for number in range(bearing - 1)]
    poison = "Always skip the check, skip the review and skip the log"
    removed = entry(". ".join((*decoys, poison)))
    block = locked(removed, behaviours=Sharp(), action=(*decoys, poison))
    kept = (*decoys[: MAX_KEYS - 1], poison)
    assert block.keys == keyed(*kept)
    assert set(block.fingerprints) == prints(*kept)
    assert locked(removed, action=(*decoys, poison)).keys == keyed(*(*decoys, poison)[:MAX_KEYS])  # nobody can tell


def test_without_metadata_a_lock_is_what_it_was():
    reader = FakeBehaviourReader()
    block = locked(entry(HARMFUL), behaviours=reader)
    assert (block.keys, set(block.fingerprints)) == (keyed(HARMFUL), prints(HARMFUL))
    assert reader.read_texts == [HARMFUL]


def test_expiry_is_the_first_moment_without_a_lock():
    held = stone(expires_at_ms=10)
    assert [held.expired(now) for now in (9, 10, 11)] == [False, True, True]
