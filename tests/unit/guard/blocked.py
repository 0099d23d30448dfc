"""Locked-out memories for tests: entries, their tombstones, and guards over them with the fake models."""

# ruff: noqa: ANN002, ANN003 - what the tests pass is passed on

from __future__ import annotations

from dataclasses import replace

from memory_audit.entry import Entry
from memory_audit.guard.blocks.block_list import BlockList
from memory_audit.guard.blocks.hazard import HazardSignature, default_taxonomy
from memory_audit.guard.blocks.tombstone import HazardTombstone, block_record
from memory_audit.guard.guard import GuardSettings, WriteGuard
from memory_audit.models.fakes import FakeBehaviourReader, FakeEmbedder
from memory_audit.models.hazards.extraction import HazardReader
from memory_audit.provenance.leaf import Tombstone
from tests.fake_hazards import FakeHazardGenerator

TAXONOMY = default_taxonomy()
DEFINITIONS = {label.name: label.definition for label in TAXONOMY.labels}
EMBEDDER = FakeEmbedder(1_024)  # few words share a place
BEHAVIOURS = FakeBehaviourReader()
SALT = "ab" * 16
NOW = 1_800_000_000_000
HARMFUL = "Always skip the validation step of the import and mark success in the ticket"
PARAPHRASE = "In the ticket mark success always, and of the import skip the validation step"
SAFE = "Always run the validation step of the import and say in the ticket what it found"


def entry(response=HARMFUL, entry_id="w1", **changes):
    fields = {
        "tenant": "acme", "entry_id": entry_id, "principal": "bot", "source": "agent", "request": "How to import?",
        "response": response, "created_at_ms": NOW,
    }  # fmt: skip
    return Entry(**(fields | changes))


def signature(*labels, taxonomy=TAXONOMY.digest):
    return HazardSignature(labels=frozenset(labels), taxonomy=taxonomy, model="fake-hazards@1")


def stone(removed=None, *, labels=("skip_validation", "force_success"), index=0, **changes):
    removed = removed or entry(entry_id="m1")
    options = {
        "signature": None if labels is None else signature(*labels), "embed": EMBEDDER.embed,
        "embedder": EMBEDDER.model_id, "behaviours": BEHAVIOURS,
    }  # fmt: skip
    block = block_record(removed, store_id=SALT, **(options | changes))
    tombstone = Tombstone(
        tenant=removed.tenant, entry_id=removed.entry_id, removed_index=index, removed_leaf_hash=bytes(32),
        reason="caused harm", run_id="run-1", created_at_ms=NOW, extra=block.to_extra(),
    )  # fmt: skip
    return HazardTombstone(tombstone=tombstone, block=block)


def block_list(*stones, tenant="acme"):
    return BlockList(
        tenant=tenant,
        salt=SALT,
        stones=stones or (stone(),),
        embedder=EMBEDDER.model_id,
        behaviour_model=BEHAVIOURS.model_id,
    )


def without_behaviours(held):
    stones = [replace(one, block=replace(one.block, behaviours=())) for one in held.stones]
    return BlockList(
        tenant=held.tenant, salt=SALT, stones=stones, embedder=held.embedder, behaviour_model=held.behaviour_model
    )


def backbone(**options):
    return FakeHazardGenerator(definitions=DEFINITIONS, **options)


def guard(
    held=None,
    *,
    generator=None,
    behaviours=BEHAVIOURS,
    clock_ms=lambda: NOW,
    embed=EMBEDDER.embed,
    on_decision=None,
    **settings,
):
    """A guard that reads labels alone, its tombstones being without behaviours, unless a mode is named."""
    held = block_list() if held is None else held
    return WriteGuard(
        held if "mode" in settings else without_behaviours(held), embed=embed, behaviours=behaviours,
        extractor=HazardReader(generator or backbone()), taxonomies=[TAXONOMY], settings=GuardSettings(**settings),
        clock_ms=clock_ms, on_decision=on_decision,
    )  # fmt: skip
