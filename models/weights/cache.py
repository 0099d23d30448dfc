"""The user's cache of model folders: where they lie, one builder at a time, all or nothing, and what they hash to.

Layout, under `cache_dir()`:

    models/NAME/            a finished Hugging Face folder, with DIGEST_FILE in it
    building/NAME/PID/      work in progress; what an interruption left there is removed by the next start, and what
                            was started by a process that was killed, and lives on, finds its folder gone
    locks/NAME.lock         held (flock) while NAME is built; freed by the kernel when its holder dies
    digests/KEY.json        digests of folders that are not ours to write in

This module knows no model: `memory_audit.models.weights.packaged` says what to build.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from memory_audit.errors import ModelError, UsageError
from memory_audit.formats.outside_file import read_regular, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "CACHE_VARIABLE", "DIGEST_FILE", "MAX_RECORD_BYTES", "Progress", "build_folder", "cache_dir", "cannot_load",
    "check_joined", "folder_id", "is_finished", "locked", "model_files", "require_space", "sha256_file", "write_record",
]  # fmt: skip

Progress = Callable[[str, int, int], None]
"""Called with what is being done, units done, units in total (bytes, or 0 of 1 and 1 of 1 for a single step)."""

CACHE_VARIABLE = "MEMAUDIT_CACHE"
DIGEST_FILE = "memaudit-digest.json"

BLOCK_BYTES = 1 << 22
MAX_RECORD_BYTES = 1 << 20
"""Of a record of ours, of the list of a model's modules, or of its `config.json`."""

SPARE_BYTES = 200_000_000
"""Left free beyond what a build needs: a disk filled to the last byte breaks everything else on the machine."""

_WEIGHTS = (".safetensors", ".bin", ".onnx", ".gguf", ".pt")
_SETTINGS = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "modules.json")

_BESIDE = (".json", ".model", ".txt")
"""What else changes answers: vocabularies, how sentences are pooled. A packaged folder is hashed without them: its
sources are pinned, and caches and results are named by its id."""


def cache_dir() -> Path:
    """Return the cache folder: $MEMAUDIT_CACHE, else the platform's own place for caches."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("memaudit"))


def require_space(folder: Path, needed_bytes: int, purpose: str) -> None:
    """Check that a disk has room before anything is written to it.

    Raises:
        UsageError: says how much is free, how much is needed, and how to choose another disk.
    """
    free = shutil.disk_usage(folder).free
    if free < needed_bytes + SPARE_BYTES:
        raise UsageError(
            f"{folder}: {free / 1e9:.1f} GB free, {(needed_bytes + SPARE_BYTES) / 1e9:.1f} GB needed to {purpose}; "
            f"free some space or set {CACHE_VARIABLE} to a folder on another disk"
        )


@contextmanager
def locked(name: str, *folders: Path) -> Iterator[None]:
    """Let one process at a time do `name`, which writes to `folders` of the cache; they are made where absent.

    Raises:
        UsageError: the cache cannot be written.
    """
    root = cache_dir()
    try:
        for folder in (*folders, root / "locks"):
            folder.mkdir(parents=True, exist_ok=True)
        lock = (root / "locks" / f"{name}.lock").open("w")
    except OSError as error:
        raise UsageError(f"cannot write to the cache {root} ({error.strerror}); set {CACHE_VARIABLE}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def build_folder(name: str, needed_bytes: int) -> Iterator[tuple[Path, Path]]:
    """Yield (work, final): build `work/out` and it becomes `final` when the block ends, at once and whole.

    A second process waits for the first, then finds `final` there: look before building. The work folder is empty.
    """
    root = cache_dir()
    final, building = root / "models" / name, root / "building" / name
    work = building / str(os.getpid())
    with locked(name, final.parent, building.parent):
        if is_finished(final):
            yield work, final
            return
        if building.exists():
            shutil.rmtree(building)
        require_space(root, needed_bytes, f"assemble {name}")
        work.mkdir(parents=True)
        yield work, final
        out = work / "out"
        if not (out / DIGEST_FILE).exists():
            write_record(out, name, _hash(out, _files(out, beside=False)))
        for path in out.rglob("*"):  # a power cut must not leave the name without what it stands for
            _sync(path)
        _sync(out)
        if final.exists():  # without a readable record: a leftover that no build of ours finished
            shutil.rmtree(final)
        out.rename(final)
        _sync(final.parent)
        shutil.rmtree(building)


def write_record(out: Path, name: str, sha256: str) -> None:
    """Write what a folder's id is made of; a build that writes none has that of its own bytes."""
    (out / DIGEST_FILE).write_text(json.dumps({"name": name, "sha256": sha256}) + "\n")


def check_joined(parts: Sequence[Path], sha256: str, name: str, progress: Progress) -> None:
    """Check the SHA-256 of files one after the other.

    Raises:
        ModelError: the bytes are not those expected.
    """
    total, done = sum(part.stat().st_size for part in parts), 0
    hasher = hashlib.sha256()
    for part in parts:
        with part.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                hasher.update(block)
                done += len(block)
                progress(f"checking the parts of {name}", done, total)
    if hasher.hexdigest() != sha256:
        raise ModelError(
            f"{name}: its parts have sha256 {hasher.hexdigest()}, expected {sha256}; "
            "reinstall the weight packages (pip install --force-reinstall) and start again"
        )


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes (hex)."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_finished(folder: Path) -> bool:
    """Tell whether a build of ours finished a folder: its record is there and can be read."""
    return _recorded(folder / DIGEST_FILE) is not None


def cannot_load(path: Path, what: str, error: Exception) -> ModelError:
    """Return the error for a file or folder of a model that a library fails on.

    The libraries raise what they like at damaged weights, bare exceptions among it.
    """
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    remedy = "" if path.resolve().is_relative_to(cache_dir().resolve()) else ", with a fresh copy of it"
    return ModelError(
        f"{path}: cannot load {what} ({reason:.200}); if it is damaged or half downloaded, delete it and start "
        f"again{remedy}"
    )


def folder_id(folder: Path) -> str:
    """Return `name@sha256-prefix` of a model folder: cheap for a packaged one, cached by state for others.

    Raises:
        ModelError: no weights and no settings there.
        UsageError: as `model_files`.
    """
    if (known := _packaged_id(folder)) is not None:
        return known
    files = _files(folder, beside=True)
    state = [
        (str(path.relative_to(folder)), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        for path in files
        for found in (path.stat(),)
    ]
    key = hashlib.sha256(json.dumps([str(folder.resolve()), state]).encode()).hexdigest()
    cached = cache_dir() / "digests" / f"{key}.json"
    if (known := _recorded(cached)) is not None:
        return known
    name, sha256 = folder.resolve().name, _hash(folder, files)
    with suppress(OSError):  # the next start hashes once more
        cached.parent.mkdir(parents=True, exist_ok=True)
        partial = cached.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({"name": name, "sha256": sha256}) + "\n")
        partial.replace(cached)
    return _id(name, sha256)


def _packaged_id(folder: Path) -> str | None:
    """Return the id that the record of a folder of this cache holds."""
    here = folder.resolve().parent == (cache_dir() / "models").resolve()
    return _recorded(folder / DIGEST_FILE) if here else None


def _recorded(path: Path) -> str | None:
    """Return the id that a record holds; one that cannot be read is as none."""
    try:
        record = json.loads(read_regular(path, MAX_RECORD_BYTES))
        return _id(record["name"], record["sha256"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _id(name: str, sha256: str) -> str:
    return f"{name}@{sha256[:16]}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files(folder: Path, *, beside: bool) -> list[Path]:
    """Return the files that make the model, with or without those of `_BESIDE`.

    Raises:
        ModelError: no weights and no settings there.
        UsageError: as `model_files`.
    """
    files = model_files(folder)
    found = {path for path in files if path.suffix in _WEIGHTS or path.name in _SETTINGS}
    if not found:
        raise ModelError(f"{folder}: no weights and no config.json in it; give a Hugging Face model folder")
    if beside:
        read = _module_folders(folder)
        found |= {
            path
            for path in files
            if path.suffix in _BESIDE and (path.parent == folder or any(map(path.is_relative_to, read)))
        }
        found.discard(folder / DIGEST_FILE)  # of a copied folder: it says nothing of what the model answers
    return sorted(found)


def model_files(folder: Path) -> list[Path]:
    """Return all files below a model's folder, links to files among them.

    Raises:
        UsageError: something there is no file, such as a named pipe, for which a library would wait for ever.
    """
    files = []
    for path, is_folder in walk(folder):
        if is_folder:
            raise UsageError(f"{path}: folders nested too deep for a model, or not readable")
        with suppress(FileNotFoundError):  # a link to nothing
            if not stat.S_ISREG(path.stat().st_mode):
                raise UsageError(f"{path}: is no file, and no part of a model")
            files.append(path)
    return files


def _module_folders(folder: Path) -> list[Path]:
    """Return the folders that sentence-transformers reads, by its `modules.json`; none where there is no such file."""
    try:
        modules = json.loads(read_regular(folder / "modules.json", MAX_RECORD_BYTES))
        return [folder / module["path"] for module in modules if module["path"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # the library says what is wrong with it
        return []


def _hash(folder: Path, files: list[Path]) -> str:
    lines = [f"{sha256_file(path)}  {path.relative_to(folder)}\n" for path in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
