"""An audit tells nobody: the libraries that it computes with send nothing home, and prepare nothing to send."""

import os
import subprocess
import sys

import pytest

from models.entailment import OnnxEntailment


def test_the_library_of_the_nli_model_leaves_nothing_to_be_sent(tmp_path):
    pytest.importorskip("onnxruntime")
    clean = {name: value for name, value in os.environ.items() if name not in {"ORT_DISABLE_TELEMETRY", "CI"}}
    home = {**clean, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for code, quiet in (("import onnxruntime", False), (f"import {OnnxEntailment.__module__}, onnxruntime", True)):
        subprocess.run([sys.executable, "-c", code], env=home, check=True)
        assert (not list(tmp_path.rglob("onnxruntime.db"))) == quiet, "the first shows what the second must not do"
        for left in tmp_path.rglob("onnxruntime.db*"):
            left.unlink()
