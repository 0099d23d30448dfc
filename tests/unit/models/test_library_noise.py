"""What libraries say by themselves is silent by name; all else they say is heard."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from importlib.util import find_spec

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
    child = multiprocessing.get_context("spawn").Process(target=importlib.import_module, args=("{module}",))
    child.start()
    child.join()
"""
"""A program with a child that imports a module before it does anything else, as vLLM's own do."""

LOGGING = "import logging\nlogging.getLogger('{name}').warning('Triton is missed')\n"
"""A stand-in for what vLLM and torch say, whatever is installed here."""


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


def said_by_children_of(tmp_path, imported, module):
    program = tmp_path / "program.py"
    program.write_text(SPAWNING.format(imported=imported, module=module), encoding="utf-8")
    return subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True).stderr


COMMAND_LINE = pytest.mark.parametrize(
    ("imported", "heard"), [("", True), ("import memory_audit.jobs.cli.main", False)]
)


@pytest.mark.slow
@COMMAND_LINE
def test_children_of_the_command_line_import_vllm_silently(tmp_path, imported, heard):
    if torch.cuda.is_available():
        pytest.skip("vLLM has nothing to say of Triton where there is a GPU")
    if heard and find_spec("triton") is None:
        pytest.skip("vLLM has nothing to say of a Triton that is not there")
    assert ("Triton" in said_by_children_of(tmp_path, imported, "vllm.triton_utils")) == heard


@COMMAND_LINE
@pytest.mark.parametrize("name", library_noise._OF_TRITON)
def test_children_of_the_command_line_miss_no_triton(tmp_path, name, imported, heard):
    (tmp_path / "stand_in.py").write_text(LOGGING.format(name=name), encoding="utf-8")
    assert ("Triton" in said_by_children_of(tmp_path, imported, "stand_in")) == heard


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
