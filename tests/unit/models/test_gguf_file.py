"""Weights in the parts of a GGUF file: the same values and the same folders as from the whole file."""

from __future__ import annotations

import importlib
import json
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from memory_audit.errors import ModelError, UsageError
from memory_audit.models.activations.hidden_states import HiddenStates
from memory_audit.models.weights.gguf_conversion import FORMS, convert
from memory_audit.models.weights.gguf_file import GgufFile
from memory_audit.models.weights.packed_weights import PACKED_FILE, packed_layers
from tests.unit.models.tiny_gguf import LAYERS, install_parts, write_tiny_gguf

MODULE = "tiny_cut_part"
CUTS = [200_001, 200_002, 400_000]
"""One part is of one byte."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.fixture
def parts(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = install_parts(whole, tmp_path / "site", MODULE, CUTS)
    importlib.invalidate_caches()
    return found


def test_every_tensor_is_where_the_librarys_own_reader_finds_it(whole: Path):
    from gguf import GGUFReader, dequantize  # noqa: PLC0415 - takes a second

    found, stored, first = GgufFile([whole]).head()
    reader = GGUFReader(whole)
    assert first == reader.data_offset
    assert found["general.name"] == "Tiny"
    assert found["tokenizer.ggml.tokens"] == 260
    assert list(stored) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        place = stored[tensor.name]
        assert (place.start, place.size_bytes) == (tensor.data_offset, tensor.n_bytes)
        expected = torch.tensor(dequantize(tensor.data, tensor.tensor_type)).to(torch.bfloat16)
        assert torch.equal(GgufFile([whole]).bf16(place), expected)


@settings(deadline=None, max_examples=30)
@given(data=st.binary(min_size=1, max_size=60), drawn=st.data())
def test_bytes_are_those_of_the_whole_wherever_it_is_cut(data: bytes, drawn: st.DataObject):
    cuts = sorted(drawn.draw(st.sets(st.integers(0, len(data)), max_size=5)))
    start = drawn.draw(st.integers(0, len(data)))
    size = drawn.draw(st.integers(0, len(data) + 5))
    with tempfile.TemporaryDirectory() as name:
        parts = []
        for number, (first, last) in enumerate(pairwise([0, *cuts, len(data)])):
            parts.append(Path(name) / str(number))
            parts[-1].write_bytes(data[first:last])
        assert GgufFile(parts).read(start, size) == data[start : start + size]


@settings(deadline=None, max_examples=60)
@given(kept=st.integers(0, 6_000), place=st.integers(0, 3_000), changed=st.binary(max_size=12))
def test_a_damaged_head_is_one_error(whole: Path, kept: int, place: int, changed: bytes):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "damaged"
        data = bytearray(whole.read_bytes())
        data[place : place + len(changed)] = changed
        path.write_bytes(data[:kept])
        with pytest.raises(ModelError, match="GGUF file"):
            GgufFile([path]).head()


def test_a_folder_is_byte_for_byte_what_transformers_makes_of_the_whole_file(whole: Path, parts, tmp_path: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415 - takes seconds

    made, expected = tmp_path / "made", tmp_path / "expected"
    convert("bf16", made, GgufFile(parts))
    AutoTokenizer.from_pretrained(whole.parent, gguf_file=whole.name, local_files_only=True).save_pretrained(expected)
    AutoModelForCausalLM.from_pretrained(
        whole.parent, gguf_file=whole.name, dtype=torch.bfloat16,
        quantization_config=GgufConfig(gguf_file=whole.name, dequantize=True),
    ).save_pretrained(expected)  # fmt: skip
    assert {path.name: path.read_bytes() for path in made.iterdir()} == {
        path.name: path.read_bytes() for path in expected.iterdir()
    }


def test_int8_is_within_half_a_step_of_bf16_and_everything_else_is_bf16(parts: list[Path], tmp_path: Path):
    for form in ("bf16", "int8"):
        convert(form, tmp_path / form, GgufFile(parts))
    exact, small = (load_file(tmp_path / form / "model.safetensors") for form in ("bf16", "int8"))
    projections = {name for name in exact if name.endswith("_proj.weight")}
    assert len(projections) == 7 * LAYERS
    assert set(small) == set(exact) | {f"{name}_scale" for name in projections}
    for name, tensor in exact.items():
        if name in projections:
            scale = small[f"{name}_scale"]
            assert small[name].dtype == torch.int8
            assert (small[name].float() * scale - tensor.float()).abs().le(scale * 0.5001).all()
        else:
            assert torch.equal(small[name], tensor)
    settings = [json.loads((tmp_path / form / "config.json").read_text()) for form in ("bf16", "int8")]
    assert settings[1].pop("quantization_config")["ignore"] == ["lm_head"]
    assert settings[0] == settings[1]


def test_states_read_from_the_parts_are_those_of_the_bf16_folder(parts: list[Path], tmp_path: Path):
    for form in ("bf16", "packed"):
        convert(form, tmp_path / form, GgufFile(parts))
    assert not list((tmp_path / "packed").glob("*.safetensors"))
    texts = ["the heath", "", "hello " * 90]
    exact, packed = (HiddenStates(tmp_path / form, layer=1).tokens(texts) for form in ("bf16", "packed"))
    assert all(np.array_equal(one, other) for one, other in zip(exact, packed, strict=True))


def test_layers_above_are_not_read(parts: list[Path], tmp_path: Path):
    convert("packed", tmp_path / "packed", GgufFile(parts))
    found = packed_layers(tmp_path / "packed", 1)
    assert found is not None
    assert {name.split(".")[2] for name in found if ".layers." in name} == {"0"}
    assert "lm_head.weight" not in found
    assert packed_layers(tmp_path, 1) is None


def test_a_package_that_changed_or_is_gone_is_told(parts: list[Path], tmp_path: Path):
    convert("packed", tmp_path / "packed", GgufFile(parts))
    whole = parts[-1].read_bytes()
    parts[-1].write_bytes(whole[:-9_000] + bytes([whole[-9_000] ^ 1]) + whole[-8_999:])
    with pytest.raises(ModelError, match="weights have changed since they were checked; reinstall the package"):
        HiddenStates(tmp_path / "packed", layer=LAYERS)
    (parts[1].parents[1] / "__init__.py").unlink()
    with pytest.raises(UsageError, match="tiny-cut-part2 is not installed"):
        HiddenStates(tmp_path / "packed", layer=LAYERS)


@pytest.mark.parametrize("form", FORMS)
def test_no_form_leaves_more_on_disk_than_it_holds(form, parts: list[Path], tmp_path: Path):
    convert(form, tmp_path / form, GgufFile(parts))
    names = {path.name for path in (tmp_path / form).iterdir()}
    weights = PACKED_FILE if form == "packed" else "model.safetensors"
    settings = {"chat_template.jinja", "config.json", "generation_config.json"}
    assert names == {weights, "tokenizer.json", "tokenizer_config.json"} | settings
