"""What `from memory_audit import …` gives: the stable API, complete, and cheap to import."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import memory_audit


def loaded_after(statement: str) -> set[str]:
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("name", memory_audit.__all__)
def test_every_public_name_is_there_under_its_own_name(name):
    value = getattr(memory_audit, name)
    assert value.__name__ == name
    assert value.__module__.startswith("memory_audit.")


def test_what_type_checkers_see_is_what_is_there():
    tree = ast.parse(Path(memory_audit.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert sorted(seen) == sorted(memory_audit.__all__) == memory_audit.__all__
    assert all(module == getattr(memory_audit, name).__module__ for name, module in seen.items() if name != "Source")


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'memory_audit' has no attribute 'Snapshot'$"):
        memory_audit.Snapshot  # noqa: B018 - the access is the test


def test_importing_the_package_loads_nothing_of_others():
    mine = {name for name in loaded_after("import memory_audit") if name.startswith("memory_audit")}
    assert mine == {"memory_audit"}


def test_the_gate_loads_neither_numpy_nor_parquet():
    loaded = loaded_after("from memory_audit import Gate, load_gate_policy, ToolCall, Context")
    assert not loaded & {"numpy", "pyarrow", "ray", "torch"}


def test_guard_and_verification_load_no_ray_and_no_model_library():
    loaded = loaded_after("from memory_audit import GuardedStore, open_snapshot, open_guard")
    assert not loaded & {"ray", "torch", "vllm", "transformers", "aiohttp", "typer"}
