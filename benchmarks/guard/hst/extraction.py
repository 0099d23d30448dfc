"""The backbone of the benchmark, with its answers kept on disk or not, and the ways to read hazards with it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

from benchmarks.guard.hst.paper_reading import ListReader
from benchmarks.harness.answers_on_disk import AnswersOnDisk
from memory_audit.guard.blocks.hazard import default_taxonomy
from memory_audit.models.backbone.generator_vllm import VllmSettings
from memory_audit.models.hazards.extraction import HazardReader
from memory_audit.models.hazards.signature_cache import SignatureCache
from memory_audit.models.lazy import LazyEntailment
from memory_audit.models.loading import ModelSpecs, backbone_id, load_generator
from memory_audit.models.readers import NONE, hazard_reader
from memory_audit.models.weights.cache import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memory_audit.generation import Completion, GenerationRequest
    from memory_audit.models.protocols import Generator

__all__ = ["EXTRACTIONS", "Backbone", "Extraction", "packaged_backbone"]

Extraction = Literal["all", "margins", "list"]
EXTRACTIONS: tuple[Extraction, ...] = ("all", "margins", "list")
"""The default way, a yes or no per label with its margin, entailment and a probe beside it; the margins alone; and one
JSON answer as in the paper. Thresholds are the taxonomy's, calibrated for the first."""


class Backbone:
    """A backbone that starts when it is first needed.

    Args:
        start: Starts it; called once at most.
        model_id: Name of the weights it serves.
        answers: Database of its answers.
        specs: Name the weights; entailment and a probe are read beside packaged ones.
    """

    def __init__(
        self,
        start: Callable[[], Generator],
        model_id: str,
        answers: Path,
        specs: ModelSpecs,
    ) -> None:
        self.model_id = model_id
        self._specs = specs
        self._start = start
        self._started: Generator | None = None
        self.kept = AnswersOnDisk(answers, self._generator, model_id)
        self._margins = SignatureCache(answers.with_suffix(".margins.sqlite"))

    def extractor(self, extraction: Extraction, *, kept: bool = True) -> HazardReader:
        """Return a reader of hazards; without `kept` every question goes to the model."""
        return hazard_reader(
            self.kept if kept else _Unkept(self), self._specs, default_taxonomy(),
            nli=None if extraction == "all" else NONE, entailment=lambda: self._entailment,
            cache=self._margins if kept else None, kind=ListReader if extraction == "list" else HazardReader,
        )  # fmt: skip

    @cached_property
    def _entailment(self) -> LazyEntailment:
        return LazyEntailment(self._specs)

    async def close(self) -> None:
        """Close the backbone, if it was started, and the databases."""
        await self.kept.close()
        self._margins.close()
        if self._started is not None:
            await self._started.close()

    def _generator(self) -> Generator:
        if self._started is None:
            self._started = self._start()
        return self._started


class _Unkept:
    """Implements `memory_audit.models.protocols.Generator`: the same backbone, past the store of answers."""

    def __init__(self, backbone: Backbone) -> None:
        self.model_id = backbone.model_id
        self._backbone = backbone

    async def generate(self, request: GenerationRequest) -> Completion:
        """See `memory_audit.models.protocols.Generator`."""
        return await self._backbone._generator().generate(request)  # noqa: SLF001 - two halves of one thing

    async def close(self) -> None:
        """The backbone closes itself."""


def packaged_backbone(spec: str, *, kv_gib: int, answers: Path | None) -> Backbone:
    """Return the backbone of a configuration string (`models.loading`); answers go to the user's cache by default.

    Raises:
        UsageError: a folder that is not there.
    """
    settings = VllmSettings(kv_cache_gib=kv_gib, max_model_len=4_096, max_num_seqs=64)
    specs = ModelSpecs(backbone=spec, vllm=settings)
    return Backbone(
        lambda: load_generator(specs), backbone_id(spec), answers or cache_dir() / "answers.sqlite", specs
    )  # fmt: skip
