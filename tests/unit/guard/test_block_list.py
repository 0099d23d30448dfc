"""The block list as one value: quick to ask, equal to the plain definitions, and made of verified tombstones only."""

# ruff: noqa: ANN003 - what the tests pass is passed on

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.guard.blocks.block_list import BlockList, read_block_list
from memory_audit.guard.blocks.hazard import matches
from memory_audit.guard.blocks.key_table import FAR
from memory_audit.guard.blocks.tombstone import block_record
from memory_audit.snapshot.publishing.purify import purify
from tests.unit.guard.blocked import BEHAVIOURS, EMBEDDER, block_list, entry, signature, stone
from tests.unit.snapshot.stores import NOW, keyring, make_store, open_store

NAMES = ("skip_validation", "remote_exec", "external_upload", "force_success", "disable_audit")
SETS = st.frozensets(st.sampled_from(NAMES))


@given(st.lists(st.none() | SETS, min_size=1, max_size=6), SETS)
def test_matching_all_at_once_equals_the_definition(held, write):
    stones = [stone(entry(entry_id=f"m{n}"), labels=labels, index=n, embed=None) for n, labels in enumerate(held)]
    expected = [labels is not None and matches(signature(*write), signature(*labels)) for labels in held]
    assert block_list(*stones).matching(signature(*write)).tolist() == expected


def test_a_label_that_no_tombstone_has_is_part_of_no_signature():
    held = block_list(stone(labels=("skip_validation",)))
    assert not held.matching(signature("remote_exec")).any()
    assert held.matching(signature("skip_validation", "remote_exec")).all()


def test_similarity_is_the_largest_over_a_tombstones_keys():
    texts = ("skip the validation", "roses like water")
    held = block_list(stone(action=texts), stone(entry(entry_id="m2"), index=1, embed=None))
    found = held.keys.similarity(EMBEDDER.embed(texts))
    assert found.shape == (2, 2)
    assert np.allclose(found[:, 0], 1.0, atol=0.01)
    assert (found[:, 1] == FAR).all()
    with pytest.raises(UsageError, match="3 dimensions"):
        held.keys.similarity(np.ones((1, 3), np.float32))


def test_only_a_verified_snapshot_is_read():
    fake = SimpleNamespace(log_refs={}, tombstones=lambda _: ())
    with pytest.raises(UsageError, match="read from a VerifiedSnapshot"):
        read_block_list(fake, "acme", embedder="e", now_ms=NOW)


def purged(path, tenant, entry_id, operation="purify", **options):
    snapshot = open_store(path)
    removed = next(item for item in snapshot.entries(tenant) if item.entry_id == entry_id)
    block = block_record(
        removed, store_id=snapshot.store_id, signature=signature("skip_validation"), embed=EMBEDDER.embed,
        embedder=EMBEDDER.model_id, behaviours=BEHAVIOURS, **options,
    )  # fmt: skip
    return purify(
        path, snapshot, {tenant: {entry_id: "harm"}}, keyring(), run_id="r", now_ms=NOW + 2, config={}, models={},
        extra={tenant: {entry_id: block.to_extra()}}, operation=operation,
    )  # fmt: skip


def held_ids(path, tenant, now_ms=NOW + 3):
    found = read_block_list(open_store(path), tenant, embedder=EMBEDDER.model_id, now_ms=now_ms)
    assert isinstance(found, BlockList)
    return [(item.tombstone.tenant, item.tombstone.entry_id) for item in found.stones]


def test_a_tombstone_holds_for_its_tenant_alone_unless_it_is_operator_wide(tmp_path):
    make_store(tmp_path / "s")
    purged(tmp_path / "s", "acme", "e1")
    assert held_ids(tmp_path / "s", "acme") == [("acme", "e1")]
    assert held_ids(tmp_path / "s", "globex") == []
    purged(tmp_path / "s", "acme", "e2", scope="operator")
    assert held_ids(tmp_path / "s", "globex") == [("acme", "e2")]
    assert held_ids(tmp_path / "s", "a new tenant") == [("acme", "e2")]
    assert held_ids(tmp_path / "s", "acme") == [("acme", "e1"), ("acme", "e2")]


def test_an_expired_lock_is_not_read_and_its_entry_stays_removed(tmp_path):
    make_store(tmp_path / "s")
    purged(tmp_path / "s", "acme", "e1", expires_at_ms=NOW + 5)
    assert held_ids(tmp_path / "s", "acme", NOW + 4) == [("acme", "e1")]
    assert held_ids(tmp_path / "s", "acme", NOW + 5) == []
    assert "e1" not in [item.entry_id for item in open_store(tmp_path / "s").entries("acme")]
