"""An audit tells nobody: the libraries that it computes with send nothing home, and prepare nothing to send."""

import ast
from pathlib import Path

import pytest

from memory_audit import models

TELLING = {"transformers", "sentence_transformers", "vllm"}
ELSEWHERE = {"library_noise", "vllm_plugin", "telemetry"}
"""What is called within one of the others, or inside vLLM's own processes, which take its environment."""


@pytest.mark.parametrize("path", sorted(Path(models.__file__).parent.rglob("*.py")), ids=lambda path: path.stem)
def test_whoever_imports_a_library_that_tells_has_switched_that_off(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    named |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    if path.stem not in ELSEWHERE and TELLING & {name.partition(".")[0] for name in named}:
        assert "tell_nobody" in called
