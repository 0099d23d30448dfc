"""What libraries say by themselves is silent by name; all else they say is heard."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings

import pytest
import torch

from memory_audit.models.embedding import SentenceEmbedder
from memory_audit.models.libraries import library_noise
from memory_audit.models.libraries.library_noise import quiet_vllm, without_bars
from memory_audit.models.weights.packaged import ensure

LEAK = """
import os, warnings
from multiprocessing.shared_memory import SharedMemory
SharedMemory(create=True, size=16)
warnings.warn("`torch.distributed.reduce_op` is deprecated, please use another", FutureWarning)
warnings.warn("something else is deprecated", FutureWarning)
os._exit(0)
"""
"""A child as vLLM's are: it looks at the deprecated name, and ends without giving its shared memory back."""


SPAWNING = """
import importlib, multiprocessing
{imported}
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=importlib.import_module, args=("vllm.triton_utils",))
    child.start()
    child.join()
"""
"""A program with a child that imports vLLM before it does anything else, as vLLM's own do."""


@pytest.fixture
def environment(monkeypatch):
    """The environment and the warnings' filters, given back afterwards."""
    for name in ("PYTHONWARNINGS", "TORCH_CPP_LOG_LEVEL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    levels = {name: logging.getLogger(name).level for name in library_noise._OF_TRITON}
    with warnings.catch_warnings():
        yield monkeypatch
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def said_by_a_child():
    return subprocess.run([sys.executable, "-c", LEAK], capture_output=True, text=True, check=True).stderr


def test_a_child_is_silent_on_what_is_named_and_on_nothing_else(environment):
    before = said_by_a_child()
    assert "reduce_op" in before
    assert "leaked shared_memory" in before
    quiet_vllm()
    after = said_by_a_child()
    assert "reduce_op" not in after
    assert "leaked" not in after
    assert "something else is deprecated" in after


@pytest.mark.slow
@pytest.mark.parametrize(("imported", "heard"), [("", True), ("import memory_audit.jobs.cli.main", False)])
def test_children_of_the_command_line_import_vllm_silently(tmp_path, imported, heard):
    if torch.cuda.is_available():
        pytest.skip("vLLM has nothing to say of Triton where there is a GPU")
    program = tmp_path / "program.py"
    program.write_text(SPAWNING.format(imported=imported), encoding="utf-8")
    said = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    assert ("Triton" in said.stderr) == heard


def test_what_the_user_has_set_wins(environment):
    environment.setenv("TORCH_CPP_LOG_LEVEL", "INFO")
    environment.setenv("PYTHONWARNINGS", "default")
    quiet_vllm()
    quiet_vllm()
    assert os.environ["TORCH_CPP_LOG_LEVEL"] == "INFO"
    assert os.environ["PYTHONWARNINGS"].endswith(",default")
    assert os.environ["PYTHONWARNINGS"].count("reduce_op") == 1
    assert "reduce_op" in said_by_a_child()


@pytest.mark.weights
def test_weights_are_loaded_without_a_bar_and_downloads_keep_theirs(capfd):
    from transformers.utils.logging import is_progress_bar_enabled  # noqa: PLC0415 - takes seconds

    before = is_progress_bar_enabled()
    SentenceEmbedder(ensure("minilm"))
    assert "Loading weights" not in capfd.readouterr().err
    with without_bars():
        assert not is_progress_bar_enabled()
    assert is_progress_bar_enabled() == before
