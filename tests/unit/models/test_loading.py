"""Configuration strings become models, or one line that says why not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from memory_audit.errors import ModelError, UsageError
from memory_audit.models.activations.hidden_states import BACKBONE
from memory_audit.models.backbone.generator_http import HttpGenerator
from memory_audit.models.loading import (
    ModelSpecs,
    gpu_present,
    load_behaviour_reader,
    load_embedder,
    load_entailment,
    load_generator,
    named_backbone,
    prepare,
)

if TYPE_CHECKING:
    from pathlib import Path

FAKES = ModelSpecs(backbone="fake", nli="fake", embedder="fake")


def test_fakes_need_no_preparation_and_load_by_name(cache: Path):
    prepare(FAKES)
    assert load_generator(FAKES).model_id.startswith("fake-generator@")
    assert load_entailment(FAKES).model_id.startswith("fake-entailment@")
    assert load_embedder(FAKES).model_id.startswith("fake-embedder@")
    assert list(cache.iterdir()) == []


def test_a_server_is_named_by_address_and_model(cache: Path):
    specs = ModelSpecs(backbone="openai:http://127.0.0.1:8000/v1#org/model")
    generator = load_generator(specs)
    assert isinstance(generator, HttpGenerator)
    assert generator.model_id == "openai:org/model@127.0.0.1:8000"
    asyncio.run(generator.close())


@pytest.mark.parametrize(
    "spec",
    [
        "openai:", "openai:http://host/v1", "openai:host/v1#model", "openai:ftp://host#m", "openai:http://#m",
        "openai:http://HOST:PORT/v1#m", "openai:http://[::1/v1#m", "openai:http://host:0/v1#m",
    ],
)  # fmt: skip
def test_half_an_address_is_refused(spec: str):
    with pytest.raises(UsageError, match="expected openai:http://HOST:PORT/v1#MODEL"):
        load_generator(ModelSpecs(backbone=spec))
    with pytest.raises(UsageError, match="expected openai:http://HOST:PORT/v1#MODEL"):
        prepare(ModelSpecs(backbone=spec, nli="fake", embedder="fake"))


def test_a_password_in_an_address_is_refused_before_anything_is_loaded(cache: Path):
    with pytest.raises(UsageError, match="holds a user or a password"):
        prepare(ModelSpecs(backbone="openai:http://a:secret@host/v1#m", nli="fake", embedder="fake"))


@pytest.mark.parametrize("role", ["backbone", "nli", "embedder"])
@pytest.mark.parametrize("spec", ["/no/such/folder", "./missing", "nonsense"])
def test_a_missing_folder_is_one_line_before_anything_is_loaded(cache: Path, role: str, spec: str):
    specs = ModelSpecs(**({"backbone": "fake", "nli": "fake", "embedder": "fake"} | {role: spec}))
    with pytest.raises(UsageError, match="no such model folder") as error:
        prepare(specs)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_no_model_is_refused(cache: Path, tmp_path: Path):
    with pytest.raises(UsageError, match=r"no config\.json in it"):
        prepare(ModelSpecs(backbone="fake", nli=str(tmp_path), embedder="fake"))


@pytest.mark.parametrize("size", ["70b", "nli", "minilm", ""])
def test_an_unknown_packaged_backbone_is_refused(cache: Path, size: str):
    with pytest.raises(UsageError, match=rf"^no packaged backbone '{size}'; there are 1\.5b, 0\.5b, 1\.5b-int8, 0\.5b"):
        prepare(ModelSpecs(backbone=f"packaged:{size}", nli="fake", embedder="fake"))


def test_loading_fakes_imports_no_heavy_library():
    code = (
        "import sys; from memory_audit.models.loading import *; from memory_audit.models.loading import ModelSpecs;"
        "s = ModelSpecs(backbone='fake', nli='fake', embedder='fake'); load_generator(s); load_entailment(s);"
        "load_embedder(s); print({'torch', 'vllm', 'transformers', 'ray'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_packaged_means_int8_on_a_cpu_and_bf16_on_a_gpu(monkeypatch: pytest.MonkeyPatch):
    for present, named in ((False, "packaged:1.5b-int8"), (True, "packaged:1.5b")):
        monkeypatch.setattr("memory_audit.models.loading.gpu_present", lambda present=present: present)
        assert ModelSpecs().backbone == named_backbone("packaged") == named
    assert named_backbone("packaged:0.5b") == "packaged:0.5b"


@pytest.fixture
def assembled(monkeypatch, tmp_path):
    """Names of the packaged weights that would have been assembled; none is."""
    names = []

    def record(name, _progress=None):
        names.append(name)
        return tmp_path

    monkeypatch.setattr("memory_audit.models.loading.ensure", record)
    monkeypatch.setattr("memory_audit.models.weights.coder.ensure_packed", record)
    return names


def test_the_probes_backbone_is_assembled_where_hazards_are_read(assembled):
    specs = ModelSpecs(backbone="packaged:1.5b", nli="packaged", embedder="packaged")
    prepare(specs)
    assert BACKBONE not in assembled
    prepare(specs, hazards=True)
    assert assembled[-1] == BACKBONE


def test_the_backbones_of_both_readers_are_assembled_where_acts_are_read_and_both_are_installed(assembled, monkeypatch):
    specs = ModelSpecs(backbone="openai:http://127.0.0.1:1/v1#m", nli="fake", embedder="packaged")
    prepare(specs, parts=(), behaviours=True)
    assert assembled == ["0.5b", "1.5b"]
    monkeypatch.setattr("memory_audit.models.weights.coder.installed", lambda name: name != "1.5b")
    prepare(specs, parts=(), behaviours=True)
    assert (len(assembled), load_behaviour_reader(specs)) == (2, None)


def test_only_the_parts_that_will_be_used_are_assembled(assembled):
    specs = ModelSpecs(backbone="packaged:1.5b", nli="packaged", embedder="packaged")
    prepare(specs, parts={"embedder"})
    assert assembled == ["minilm"]
    prepare(specs, parts={"backbone", "embedder"})
    assert assembled == ["minilm", "1.5b", "minilm"]
    prepare(specs)
    assert sorted(assembled[3:]) == ["1.5b", "minilm", "nli"]


def test_an_embedder_may_keep_its_settings_in_the_folders_of_its_modules(cache: Path, tmp_path: Path):
    (tmp_path / "modules.json").write_text("[]")
    prepare(ModelSpecs(backbone="fake", nli="fake", embedder=str(tmp_path)))
    with pytest.raises(UsageError, match=r"no config\.json in it"):
        prepare(ModelSpecs(backbone="fake", nli=str(tmp_path), embedder="fake"))


@pytest.mark.parametrize(
    ("visible", "present"),
    [
        (None, True), ("0", True), ("1, 0", True), ("GPU-8932f937", True), ("MIG-8932f937", True), ("0,-1", True),
        ("", False), ("-1", False), (" -1", False), ("-1,0", False), ("NoDevFiles", False), ("none", False),
    ],
)  # fmt: skip
def test_hidden_gpus_are_not_there(monkeypatch: pytest.MonkeyPatch, visible: str | None, *, present: bool):
    monkeypatch.setattr("memory_audit.models.loading.Path.exists", lambda path: str(path) == "/dev/nvidia0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_present() is present


class LostConnectionError(Exception):
    """As the hub's client raises them: of a library that is not ours."""


@pytest.mark.parametrize("fault", [LostConnectionError("peer closed\nafter 500 bytes"), ValueError("no JSON")])
def test_an_interrupted_or_garbled_download_is_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception):
    def download(_spec: str) -> None:
        raise fault

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ModelError, match=r"^'org/model': interrupted or garbled download, start again") as error:
        prepare(ModelSpecs(backbone="fake", nli="fake", embedder="org/model"))
    assert "\n" not in str(error.value)
