"""Whose activations the guard's readers read: a named folder, the hub's copy, or the packaged weights."""

from __future__ import annotations

import json
from functools import partial

import pytest

from memory_audit.errors import UsageError
from memory_audit.models.activations.hazard_probe import HazardProbe
from memory_audit.models.loading import ModelSpecs, load_behaviour_reader
from memory_audit.models.weights import coder
from memory_audit.models.weights.coder import CODERS, WHOLE, coder_at_hand, coder_folder

HUB_COPY = coder._hub_copy
SMALL = CODERS["0.5b"]


@pytest.fixture
def folder_of(tmp_path):
    def folder(name, of=SMALL, **changed):  # noqa: ANN003 - of its configuration
        made = tmp_path / name
        made.mkdir()
        (made / "config.json").write_text(json.dumps(dict(of.shape) | changed))
        for file in WHOLE[1:]:
            (made / file).write_text("{}")
        return made

    return folder


@pytest.fixture
def packaged(monkeypatch, tmp_path):
    """The packaged weights are installed; nothing is assembled."""
    monkeypatch.setattr(coder, "ensure_packed", lambda name, _progress=None: tmp_path / "packaged" / name)
    monkeypatch.setattr(coder, "installed", lambda _: True)
    return tmp_path / "packaged" / "0.5b"


def test_a_named_folder_goes_before_the_hubs_copy_and_that_before_the_packaged(monkeypatch, packaged, folder_of):
    assert coder_folder("0.5b") == packaged
    copy, named = folder_of("copy"), folder_of("named")
    monkeypatch.setattr(coder, "_hub_copy", {SMALL.hub_id: copy}.get)
    assert coder_folder("0.5b") == copy
    assert coder_folder("1.5b").name == "1.5b"
    monkeypatch.setenv(SMALL.variable, str(named))
    assert coder_folder("0.5b") == named
    monkeypatch.setenv(SMALL.variable, "packaged")
    assert coder_folder("0.5b") == packaged


@pytest.mark.usefixtures("packaged")
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"hidden_size": 1_536}, "hidden_size is 1536, expected 896"),
        ({"model_type": "llama"}, "model_type is 'llama', expected 'qwen2'"),
        ({"num_hidden_layers": None}, "num_hidden_layers is None, expected 24"),
    ],
)
def test_another_architecture_is_refused_in_one_line(monkeypatch, folder_of, changed, told):
    named = folder_of("named", **changed)
    monkeypatch.setenv(SMALL.variable, str(named))
    with pytest.raises(UsageError) as error:
        coder_folder("0.5b")
    assert str(error.value) == f"{named}: {told}: the guard reads the activations of {SMALL.hub_id}"


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_folder_without_a_readable_configuration_is_refused(monkeypatch, folder_of, text):
    named = folder_of("named")
    (named / "config.json").write_text(text)
    monkeypatch.setenv(SMALL.variable, str(named))
    with pytest.raises(UsageError, match=r"no readable config\.json"):
        coder_folder("0.5b")


def test_a_folder_that_is_not_there_is_told_and_nothing_else_is_read(monkeypatch, packaged):
    monkeypatch.setenv(SMALL.variable, "/no/such/folder")
    assert coder_at_hand("0.5b")
    for load in (HazardProbe, partial(load_behaviour_reader, ModelSpecs())):
        with pytest.raises(UsageError, match=r"^'/no/such/folder': no such model folder"):
            load()


@pytest.mark.parametrize("missing", [None, *WHOLE])
def test_the_hubs_copy_is_looked_for_here_alone_and_must_be_whole(monkeypatch, folder_of, missing):
    copy = folder_of("copy")
    if missing is not None:
        (copy / missing).unlink()

    def download(hub_id, *, local_files_only=False):
        assert (hub_id, local_files_only) == (SMALL.hub_id, True)  # never the network
        return str(copy)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert HUB_COPY.__wrapped__(SMALL.hub_id) == (copy if missing is None else None)


def test_a_hub_cache_without_the_model_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(coder, "installed", lambda _: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert HUB_COPY.__wrapped__("nobody/has-this") is None
    assert not coder_at_hand("0.5b")
    assert load_behaviour_reader(ModelSpecs()) is None
