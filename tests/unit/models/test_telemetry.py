"""An audit tells nobody: the libraries that it computes with send nothing home, and prepare nothing to send."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memory_audit import models

TELLING = {"onnxruntime", "transformers", "sentence_transformers", "vllm"}
ELSEWHERE = {"library_noise", "vllm_plugin", "telemetry"}
"""What is called within one of the others, or inside vLLM's own processes, which take its environment."""


def test_onnx_runtime_leaves_nothing_to_be_sent(tmp_path):
    pytest.importorskip("onnxruntime")
    clean = {name: value for name, value in os.environ.items() if name not in {"ORT_DISABLE_TELEMETRY", "CI"}}
    home = {**clean, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    quietly = "from memory_audit.models.telemetry import tell_nobody; tell_nobody(); import onnxruntime"
    for code, quiet in (("import onnxruntime", False), (quietly, True)):
        subprocess.run([sys.executable, "-c", code], env=home, check=True)
        assert (not list(tmp_path.rglob("onnxruntime.db"))) == quiet, "the first shows what the second must not do"
        for left in tmp_path.rglob("onnxruntime.db*"):
            left.unlink()


@pytest.mark.parametrize("path", sorted(Path(models.__file__).parent.rglob("*.py")), ids=lambda path: path.stem)
def test_whoever_imports_a_library_that_tells_has_switched_that_off(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    named |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    if path.stem not in ELSEWHERE and TELLING & {name.partition(".")[0] for name in named}:
        assert "tell_nobody" in called
