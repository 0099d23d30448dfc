"""Assembling packaged weights: whole and checked, or not there at all."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from memory_audit.errors import ModelError, UsageError
from memory_audit.models.extras import with_extra
from memory_audit.models.weights import packaged
from memory_audit.models.weights.cache import DIGEST_FILE, folder_id
from memory_audit.models.weights.gguf_conversion import FORMS, convert
from memory_audit.models.weights.gguf_file import GgufFile
from memory_audit.models.weights.packaged import PACKAGED, GgufParts, ensure, ensure_packed, installed
from tests.unit.models.tiny_gguf import install_parts, write_tiny_gguf

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "tiny_model_part"


@pytest.fixture
def tiny(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GgufParts:
    """Install a tiny backbone in three packages, under the names of a packaged one."""
    gguf = tmp_path / "tiny.gguf"
    write_tiny_gguf(gguf)
    install_parts(gguf, tmp_path / "site", MODULE, [3_000, 500_000])
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    importlib.invalidate_caches()
    source = GgufParts(
        folder="tiny", module=MODULE, parts=3, sha256=hashlib.sha256(gguf.read_bytes()).hexdigest(), bf16_bytes=100,
        int8_bytes=100, bf16_sha256="",
    )  # fmt: skip
    monkeypatch.setattr(packaged, "QWEN_0_5B", source)
    for form in FORMS:
        name = "tiny" if form == "bf16" else f"tiny-{form}"
        monkeypatch.setitem(PACKAGED, name, (name, partial(packaged._build_backbone, source, form)))
    return source


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert here: a process of its own takes seconds to start."""
    monkeypatch.setattr(packaged, "convert_in_subprocess", lambda form, out, parts: convert(form, out, GgufFile(parts)))


def test_a_process_of_its_own_makes_a_checked_folder_with_an_id_and_no_second_copy(tiny: GgufParts, cache: Path):
    steps: list[tuple[str, int, int]] = []
    folder = ensure("tiny-int8", lambda *step: steps.append(step))
    assert folder_id(folder).startswith("tiny-int8@")
    assert steps[-1][1:] == (1, 1)
    weights = [path for path in cache.rglob("*") if path.suffix in {".gguf", ".safetensors", ".partial"}]
    assert weights == [folder / "model.safetensors"]
    assert [path.name for path in (cache / "models").iterdir()] == ["tiny-int8"]


@pytest.mark.usefixtures("tiny", "in_this_process")
def test_a_second_start_builds_nothing(monkeypatch: pytest.MonkeyPatch):
    first = ensure("tiny")
    monkeypatch.setattr(packaged, "check_joined", None)
    monkeypatch.setattr(packaged, "convert_in_subprocess", None)
    assert ensure("tiny") == first


@pytest.mark.usefixtures("in_this_process")
def test_states_have_one_id_and_are_read_from_a_bf16_folder_where_one_is_there(
    tiny: GgufParts, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    ensure("tiny")
    sha256 = json.loads((cache / "models" / "tiny" / DIGEST_FILE).read_text())["sha256"]
    (cache / "models" / "tiny").rename(cache / "aside")
    source = replace(tiny, bf16_sha256=sha256)
    monkeypatch.setitem(PACKAGED, "tiny-packed", ("tiny-packed", partial(packaged._build_backbone, source, "packed")))
    packed = ensure_packed("tiny")
    assert packed.name == "tiny-packed"
    (cache / "aside").rename(cache / "models" / "tiny")
    assert ensure_packed("tiny").name == "tiny"
    assert folder_id(packed) == folder_id(cache / "models" / "tiny") == f"tiny@{sha256[:16]}"


def test_who_has_a_bf16_folder_of_an_earlier_version_needs_no_packages(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packaged, "QWEN_0_5B", replace(packaged.QWEN_0_5B, module="no_such_part"))
    assert not installed("0.5b")
    folder = cache / "models" / PACKAGED["0.5b"][0]
    folder.mkdir(parents=True)
    (folder / DIGEST_FILE).write_text(json.dumps({"name": folder.name, "sha256": "0" * 64}))
    assert installed("0.5b")
    assert ensure_packed("0.5b") == ensure("0.5b") == folder


@pytest.mark.usefixtures("tiny", "in_this_process")
def test_an_interrupted_conversion_leaves_nothing_in_the_next(cache: Path, monkeypatch: pytest.MonkeyPatch):
    whole = vars(packaged)["convert_in_subprocess"]  # the fixture's

    def die(_form: str, out: Path, _parts: list[Path]) -> None:
        out.mkdir()
        (out / "half").touch()
        raise ModelError("killed")

    monkeypatch.setattr(packaged, "convert_in_subprocess", die)
    with pytest.raises(ModelError, match="killed"):
        ensure("tiny")
    assert not any((cache / "models").iterdir())
    monkeypatch.setattr(packaged, "convert_in_subprocess", whole)
    names = {path.name for path in ensure("tiny").iterdir()}
    assert "half" not in names
    assert {"model.safetensors", DIGEST_FILE} <= names


@pytest.mark.parametrize("form", FORMS)
def test_tampered_weights_are_refused(tiny: GgufParts, tmp_path: Path, cache: Path, form: str):
    part = tmp_path / "site" / f"{MODULE}2" / "data" / "part02.bin"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(ModelError, match="expected " + tiny.sha256):
        ensure("tiny" if form == "bf16" else f"tiny-{form}")
    assert not any((cache / "models").iterdir())


def test_a_package_that_is_not_installed_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch):
    source = replace(packaged.QWEN_0_5B, module="no_such_part")
    monkeypatch.setitem(PACKAGED, "x", ("x", partial(packaged._build_backbone, source, "int8")))
    with pytest.raises(UsageError, match=f"no-such-part1 is not installed; {re.escape(with_extra('local-models'))}"):
        ensure("x")


@pytest.mark.weights
def test_the_packaged_backbone_has_the_id_that_readers_of_its_parts_name():
    assert folder_id(ensure("0.5b")) == f"{packaged.QWEN_0_5B.folder}@{packaged.QWEN_0_5B.bf16_sha256[:16]}"


def test_an_unknown_name_lists_those_there_are(cache: Path):
    with pytest.raises(UsageError, match=r"'7b'; there are 1\.5b, 0\.5b, .*nli, minilm"):
        ensure("7b")
