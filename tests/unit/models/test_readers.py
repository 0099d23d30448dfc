"""Which models a guard reads with, what is assembled for them, and what is closed."""

from __future__ import annotations

import json
import re
import sys

import pytest
from rich.console import Console

from memory_audit.errors import UsageError
from memory_audit.guard.blocks.hazard import default_taxonomy
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models import readers as module
from memory_audit.models.activations.hidden_states import BACKBONE
from memory_audit.models.extras import with_extra
from memory_audit.models.fakes import FakeBehaviourReader, FakeEmbedder
from memory_audit.models.hazards.signature_cache import SignatureCache
from memory_audit.models.loading import ModelSpecs
from memory_audit.models.readers import NONE, GuardReaders
from memory_audit.models.weights.cache import CACHE_VARIABLE, DIGEST_FILE

SERVER = "openai:http://127.0.0.1:9/v1#none"


@pytest.fixture
def caches(monkeypatch):
    """The signature caches that were opened."""
    opened = []

    class Watched(SignatureCache):
        closed = False

        def __init__(self, path) -> None:
            super().__init__(path)
            opened.append(self)

        def close(self):
            super().close()
            self.closed = True

    monkeypatch.setattr(module, "SignatureCache", Watched)
    return opened


@pytest.fixture
def assembled(monkeypatch, tmp_path):
    """What would have been assembled, and nothing is; readers and embedders are fakes."""
    names = []

    def record(name, _progress=None):
        names.append(name)
        return tmp_path

    monkeypatch.setattr("memory_audit.models.loading.ensure", record)
    monkeypatch.setattr("memory_audit.models.weights.coder.ensure_packed", record)
    monkeypatch.setattr("memory_audit.models.weights.coder.installed", lambda _: True)
    monkeypatch.setattr(module, "load_behaviour_reader", lambda _: FakeBehaviourReader())
    monkeypatch.setattr(module, "load_embedder", lambda _: FakeEmbedder())
    return names


@pytest.fixture
def models_of(tmp_path):
    def models(mode, specs, *, nli=None):
        return GuardReaders.open(
            specs, default_taxonomy(), hazards=mode != "behaviour", nli=nli, cache=tmp_path / "cache.sqlite",
            steps=Reporter(Console(stderr=True)).steps,
        )  # fmt: skip

    return models


@pytest.mark.parametrize(
    ("mode", "parts"),
    [
        ("behaviour", {"behaviours", "embedder"}),
        ("behaviour+hazards", {"behaviours", "hazards", "embedder"}),
    ],
)
def test_a_mode_has_the_models_that_it_reads_with(caches, models_of, mode, parts):
    with models_of(mode, ModelSpecs(backbone="fake", embedder="fake")) as models:
        assert {part for part in ("behaviours", "hazards", "embedder") if getattr(models, part) is not None} == parts
        assert [cache.closed for cache in caches] == [False] * ("hazards" in parts)
    assert [cache.closed for cache in caches] == [True] * ("hazards" in parts)


def test_the_cache_is_closed_where_a_later_model_is_not_there(caches, models_of):
    missing = ModelSpecs(backbone="fake", embedder="/no/such/folder")
    with pytest.raises(UsageError, match="no such model folder"), models_of("behaviour+hazards", missing):
        pass
    assert [cache.closed for cache in caches] == [True]


@pytest.mark.parametrize("spec", ["openai:http://127.0.0.1:9/v1", "openai:http://a:secret@127.0.0.1:9/v1#m"])
def test_a_backbone_that_cannot_be_meant_is_told_before_anything_is_assembled(caches, assembled, models_of, spec):
    with pytest.raises(UsageError, match="backbone"), models_of("behaviour+hazards", ModelSpecs(backbone=spec)):
        pass
    assert assembled == []
    assert [cache.closed for cache in caches] == [True]


def test_a_missing_vllm_is_told_before_anything_is_assembled(monkeypatch, caches, assembled, models_of):
    monkeypatch.setitem(sys.modules, "vllm", None)
    needed = rf"^backbone 'packaged:0\.5b' needs vLLM; {re.escape(with_extra('cpu'))} \(or \[gpu\]\), or name a server "
    with pytest.raises(UsageError, match=needed), models_of("behaviour+hazards", ModelSpecs(backbone="packaged:0.5b")):
        pass
    assert (assembled, caches) == ([], [])


@pytest.mark.usefixtures("caches", "assembled")
@pytest.mark.parametrize("backbone", ["fake", SERVER])
def test_a_backbone_that_vllm_does_not_serve_needs_none(monkeypatch, models_of, backbone):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with models_of("behaviour+hazards", ModelSpecs(backbone=backbone)) as models:
        assert models.hazards is not None


@pytest.mark.usefixtures("caches", "assembled")
@pytest.mark.parametrize("backbone", ["openai:", "packaged:0.5b"])
def test_a_mode_that_asks_no_backbone_looks_at_none(monkeypatch, models_of, backbone):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with models_of("behaviour", ModelSpecs(backbone=backbone)) as models:
        assert models.hazards is None


@pytest.mark.usefixtures("caches")
@pytest.mark.parametrize(
    ("mode", "nli", "names"),
    [
        ("behaviour", None, ["minilm", BACKBONE, "1.5b"]),
        ("behaviour+hazards", None, ["minilm", BACKBONE, "1.5b"]),
        ("behaviour+hazards", "fake", ["minilm", BACKBONE, "1.5b"]),
    ],
)
def test_what_a_mode_does_not_read_with_is_not_assembled(assembled, models_of, mode, nli, names):
    with models_of(mode, ModelSpecs(backbone=SERVER, embedder="packaged"), nli=nli):
        assert assembled == names


@pytest.mark.parametrize("nli", [None, "none"])
def test_what_hazards_are_read_with_is_assembled_with_progress_before_it_is_named(monkeypatch, tmp_path, nli):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    folder = tmp_path / "models" / "weights"
    folder.mkdir(parents=True)
    (folder / DIGEST_FILE).write_text(json.dumps({"name": "weights", "sha256": "0" * 64}))
    (folder / "config.json").write_text(json.dumps({"model_type": "deberta-v2"}))
    assembled = {}

    def ensure(name, progress=None):
        assembled.setdefault(name, progress is not None)
        return folder

    monkeypatch.setattr("memory_audit.models.loading.ensure", ensure)
    monkeypatch.setattr("memory_audit.models.weights.coder.ensure_packed", ensure)
    monkeypatch.setattr("memory_audit.models.weights.coder.installed", lambda _: True)
    monkeypatch.setattr(module, "require_vllm", lambda _: None)  # that it is not there is not what is tested
    packaged = ModelSpecs(backbone="packaged:1.5b", embedder=NONE)
    with GuardReaders.open(packaged, default_taxonomy(), nli=nli, steps=Reporter(Console(stderr=True)).steps):
        assert assembled == dict.fromkeys(["1.5b"] if nli == "none" else ["1.5b", "nli", BACKBONE], True)
