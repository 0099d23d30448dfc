"""Assembling packaged weights: whole and checked, or not there at all."""

from __future__ import annotations

import hashlib
import importlib
import re
from typing import TYPE_CHECKING

import pytest

from memory_audit.errors import ModelError, UsageError
from memory_audit.models.extras import with_extra
from memory_audit.models.weights import packaged
from memory_audit.models.weights.cache import folder_id
from memory_audit.models.weights.packaged import PACKAGED, GgufParts, ensure

if TYPE_CHECKING:
    from pathlib import Path

PARTS = (b"first half, ", b"second half")


@pytest.fixture
def tiny(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GgufParts:
    """Install two importable part packages and a conversion that only copies."""
    for number, content in enumerate(PARTS, start=1):
        data = tmp_path / "site" / f"tiny_model_part{number}" / "data"
        data.mkdir(parents=True)
        (data.parent / "__init__.py").touch()
        (data / f"part{number:02d}.bin").write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    importlib.invalidate_caches()

    def convert(gguf: Path, out: Path) -> None:
        out.mkdir()
        (out / "model.safetensors").write_bytes(gguf.read_bytes())

    monkeypatch.setattr(packaged, "convert_in_subprocess", convert)
    whole = b"".join(PARTS)
    source = GgufParts(
        folder="tiny", module="tiny_model_part", parts=2, size_bytes=len(whole),
        sha256=hashlib.sha256(whole).hexdigest(), expanded_bytes=100,
    )  # fmt: skip
    monkeypatch.setitem(PACKAGED, "tiny", ("tiny", lambda progress: packaged._build_backbone(source, progress)))
    return source


def test_parts_become_one_checked_folder_with_an_id(tiny: GgufParts):
    steps: list[tuple[str, int, int]] = []
    folder = ensure("tiny", lambda *step: steps.append(step))
    assert (folder / "model.safetensors").read_bytes() == b"".join(PARTS)
    assert folder_id(folder).startswith("tiny@")
    assert steps[-1][1:] == (1, 1)


def test_a_second_start_builds_nothing(tiny: GgufParts, monkeypatch: pytest.MonkeyPatch):
    first = ensure("tiny")
    monkeypatch.setattr(packaged, "copy_checked", None)
    monkeypatch.setattr(packaged, "convert_in_subprocess", None)
    assert ensure("tiny") == first


def test_the_gguf_file_does_not_stay(tiny: GgufParts, cache: Path):
    ensure("tiny")
    assert list(cache.rglob("*.gguf*")) == []


def test_an_interrupted_conversion_leaves_nothing_in_the_next(
    tiny: GgufParts, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    convert = vars(packaged)["convert_in_subprocess"]  # the fixture's

    def die(_gguf: Path, out: Path) -> None:
        out.mkdir()
        (out / "half").touch()
        raise ModelError("killed")

    monkeypatch.setattr(packaged, "convert_in_subprocess", die)
    with pytest.raises(ModelError, match="killed"):
        ensure("tiny")
    monkeypatch.setattr(packaged, "convert_in_subprocess", convert)
    assert sorted(path.name for path in ensure("tiny").iterdir()) == ["memaudit-digest.json", "model.safetensors"]


def test_tampered_weights_are_refused(tiny: GgufParts, tmp_path: Path, cache: Path):
    (tmp_path / "site" / "tiny_model_part2" / "data" / "part02.bin").write_bytes(b"second hal!")
    with pytest.raises(ModelError, match="expected " + tiny.sha256):
        ensure("tiny")
    assert not (cache / "models" / "tiny").exists()


def test_a_package_that_is_not_installed_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch):
    source = GgufParts(folder="x", module="no_such_part", parts=1, size_bytes=1, sha256="", expanded_bytes=1)
    monkeypatch.setitem(PACKAGED, "x", ("x", lambda progress: packaged._build_backbone(source, progress)))
    with pytest.raises(UsageError, match=f"no-such-part1 is not installed; {re.escape(with_extra('local-models'))}"):
        ensure("x")


def test_an_unknown_name_lists_those_there_are(cache: Path):
    with pytest.raises(UsageError, match=r"'7b'; there are 1\.5b, 0\.5b, .*nli, minilm"):
        ensure("7b")
