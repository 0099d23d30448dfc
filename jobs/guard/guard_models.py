"""The models of a guard of writes: semantic keys, behaviours and, where its mode reads them, hazards.

Packaged weights are assembled here, before a write waits for them. A backbone is loaded when the first hazard is to be
read (`memory_audit.models.backbone.lazy_generator`), or by its owner, who has the event loop it belongs to.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.jobs.places import check_folder
from memory_audit.models.backbone.lazy_generator import LazyGenerator
from memory_audit.models.extras import with_extra
from memory_audit.models.hazards.extraction import HazardReader
from memory_audit.models.hazards.signature_cache import SignatureCache
from memory_audit.models.hazards.statements import nli_beside, statements_for
from memory_audit.models.loading import (
    PACKAGED_PREFIX,
    load_behaviour_reader,
    load_embedder,
    packaged_together,
    prepare,
    require_vllm,
)
from memory_audit.models.weights.cache import cache_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_audit.guard.blocks.behaviour import BehaviourReader
    from memory_audit.guard.blocks.hazard import Taxonomy
    from memory_audit.guard.decide.settings import GuardSettings
    from memory_audit.jobs.progress import Reporter
    from memory_audit.models.loading import ModelSpecs
    from memory_audit.models.protocols import Embedder

__all__ = ["GuardModels", "HazardModels", "guard_models", "hazard_models"]

CACHE_FILE = "hazards.sqlite"


@dataclass(frozen=True, slots=True, kw_only=True)
class HazardModels:
    """What reads hazards as a guard does."""

    reader: HazardReader
    backbone: LazyGenerator
    """Of the reader; for its owner to close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardModels:
    """What a guard reads with."""

    behaviours: BehaviourReader
    hazards: HazardModels | None
    """None in a mode that reads none."""

    embedder: Embedder


@contextmanager
def guard_models(  # noqa: PLR0913 - what a guard can read with
    settings: GuardSettings,
    specs: ModelSpecs,
    taxonomy: Taxonomy,
    *,
    nli: str | None,
    cache: Path | None,
    reporter: Reporter,
    warm: bool,
) -> Iterator[GuardModels]:
    """Assemble and yield the models of a guard.

    Args:
        settings: How the guard decides; the mode says what it reads.
        specs: Names the backbone and the embedder.
        taxonomy: Of the hazards.
        nli: See `memory_audit.models.hazards.statements.nli_beside`.
        cache: See `hazard_models`.
        reporter: Shows what is assembled.
        warm: Load the reader of behaviours now, and not with the first write.

    Raises:
        UsageError: a model that is not there or cannot be meant, the packaged reader of behaviours included, or a mode
            that may ask a backbone without vLLM to serve it.
        ModelError: a model cannot be loaded.
    """
    mode = settings.mode
    with ExitStack() as opened:
        hazards = None
        if mode != "behaviour":  # first: a backbone that cannot be meant is to be heard before any work
            hazards = opened.enter_context(hazard_models(specs, taxonomy, nli=nli, cache=cache, reporter=reporter))
        with reporter.steps() as progress:
            prepare(specs, progress, parts={"embedder"}, behaviours=True)
        yield GuardModels(behaviours=_behaviours(specs, warm=warm), hazards=hazards, embedder=load_embedder(specs))


@contextmanager
def hazard_models(
    specs: ModelSpecs, taxonomy: Taxonomy, *, nli: str | None, cache: Path | None, reporter: Reporter
) -> Iterator[HazardModels]:
    """Open the signature cache and yield what reads hazards with it; its weights are assembled, no model is loaded yet.

    Args:
        specs: Names the backbone.
        taxonomy: Of the hazards.
        nli: See `memory_audit.models.hazards.statements.nli_beside`.
        cache: The cache's file; None is the one in the user's cache.
        reporter: Shows what is assembled.

    Raises:
        UsageError: a model that is not there or cannot be meant, a backbone without vLLM to serve it, or a cache that
            cannot be opened, or would lie among the files of a store or of keys.
        ModelError: weights that do not match their SHA-256.
    """
    if cache is not None:
        check_folder(cache.parent)
    require_vllm(specs.backbone)  # the backbone itself would miss it only when the first write asks for labels
    beside = nli_beside(specs, taxonomy, nli)
    with closing(SignatureCache(cache_dir() / CACHE_FILE if cache is None else cache)) as kept:
        with reporter.steps() as progress:  # before the models say their ids, which assembles them without a word
            prepare(specs, progress, parts={"backbone"})
            backbone = LazyGenerator(specs)
            if beside is not None:
                probed = beside == PACKAGED_PREFIX
                prepare(replace(specs, nli=beside), progress, parts={"nli"}, hazards=probed)
        reader = HazardReader(
            backbone, cache=kept, statements=statements_for(specs, taxonomy, nli),
            calibrated=beside is not None and packaged_together(specs.backbone, beside),
        )  # fmt: skip
        yield HazardModels(reader=reader, backbone=backbone)


def _behaviours(specs: ModelSpecs, *, warm: bool) -> BehaviourReader:
    behaviours = load_behaviour_reader(specs)
    if behaviours is None:
        raise UsageError(
            f"a guard needs the packaged 0.5B and 1.5B, which read behaviours; {with_extra('local-models')}"
        )
    if warm:
        behaviours.taught(["."])  # loads their backbones before anybody waits for it
    return behaviours
