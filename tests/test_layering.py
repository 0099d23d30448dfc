"""The import rules, proven on the files and in fresh processes.

jobs → models → audit, and inside `audit` a stage imports only earlier stages. Importing the core costs nothing that an
agent's own process does not need. What is poison is known to benchmarks and tests only.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from memory_audit.config import AuditConfig
from memory_audit.entry import Entry
from memory_audit.events import Event

REPOSITORY = Path(__file__).parents[1]
HEAVY = ("ray", "torch", "vllm", "transformers", "httpx", "sentence_transformers", "faiss")
PACKAGES = {"audit": "memory_audit", "models": "memory_audit.models", "jobs": "memory_audit.jobs"}
"""Folder to package: `audit` is the package itself."""

ABOVE = {"audit": ("memory_audit.models", "memory_audit.jobs"), "models": ("memory_audit.jobs",), "jobs": ()}
OURS = ("audit", "models", "jobs", "benchmarks", "training", "tests")
"""Folders that no product file may import by: a second copy of each module would be loaded."""

BEFORE: dict[str, tuple[str, ...]] = {
    "errors": (),
    "counted": (),
    "parquet_layout": (),
    "generation": ("errors",),
    "fusion": ("errors",),
    "text": ("errors",),
    "entry": ("errors",),
    "parquet": ("parquet_layout", "entry", "errors"),
    "formats": ("text", "entry", "errors"),
    "events": ("formats", "entry", "errors"),
    "traces": ("events", "text", "entry", "errors"),
    "result": ("attribution", "consistency", "events"),
    "provenance": ("formats", "entry", "errors"),
    "snapshot": ("provenance", "parquet", "formats", "entry", "errors"),
    "consistency": ("entry", "errors"),
    "lineage": ("snapshot", "result", "formats", "counted", "entry", "errors"),
    "gate": ("lineage", "result", "formats", "text", "entry", "errors"),
    "guard": ("snapshot", "provenance", "formats", "text", "entry", "errors"),
    "integrations": ("guard", "text", "entry", "errors"),
    "attribution": ("fusion", "generation", "events", "formats", "text", "entry", "counted", "errors"),
    "config": ("attribution", "lineage", "formats", "errors"),
    "calibration_file": ("attribution", "provenance", "formats", "entry", "errors"),
    "request": (
        "calibration_file", "guard", "attribution", "lineage", "snapshot", "events", "config", "formats", "entry",
        "errors",
    ),
    "report": (
        "calibration_file", "config", "attribution", "consistency", "lineage", "snapshot", "result", "parquet",
        "fusion", "events", "counted", "formats", "text", "entry", "errors",
    ),
    "scan": (
        "report", "guard", "lineage", "consistency", "snapshot", "result", "formats", "text", "entry", "counted",
        "errors",
    ),
}  # fmt: skip
"""Per part of `audit`, which others it may import: the data flow. A new part is a line here, on purpose."""


def modules(layer: str) -> dict[str, Path]:
    found = {}
    for path in (REPOSITORY / layer).rglob("*.py"):
        inner = path.relative_to(REPOSITORY / layer).with_suffix("").parts
        found[".".join((PACKAGES[layer], *inner)).removesuffix(".__init__")] = path.relative_to(REPOSITORY)
    return found


def imports(path: Path) -> set[str]:
    """Return all modules that a file imports, at any depth: a lazy import and one for types count too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((REPOSITORY / path).read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{name.name}" for name in node.names} | {str(node.module)}
    return found


@pytest.mark.parametrize("layer", PACKAGES)
def test_layers_import_only_what_lies_below(layer):
    wrong = {
        (name, imported)
        for name, path in modules(layer).items()
        if name != "memory_audit"  # the public face names all three for type checkers, and imports when asked
        for imported in imports(path)
        if imported.split(".")[0] in OURS or imported.startswith(ABOVE[layer])
    }
    assert not wrong


def test_every_part_of_audit_has_its_place_and_imports_only_earlier_ones():
    parts = {name.split(".")[1] for name in modules("audit") if "." in name}
    assert parts == set(BEFORE)
    wrong = {
        (name, imported)
        for name, path in modules("audit").items()
        if name != "memory_audit"
        for imported in imports(path)
        if imported.startswith("memory_audit.")
        and (other := imported.split(".")[1]) != (part := name.split(".")[1])
        and other not in BEFORE[part]
    }
    assert not wrong


def test_commands_import_no_commands():
    commands = {name for name in modules("jobs") if name.startswith("memory_audit.jobs.cli.")}
    shared = {"memory_audit.jobs.cli.shared", "memory_audit.jobs.cli.main"}
    wrong = {
        (name, imported)
        for name in commands - shared
        for imported in imports(modules("jobs")[name])
        if imported in commands - {"memory_audit.jobs.cli.shared"}
    }
    assert len(commands) > 10
    assert not wrong


def test_the_parts_of_audit_have_an_order():
    placed: set[str] = set()
    while waiting := [part for part in BEFORE if part not in placed]:
        ready = [part for part in waiting if set(BEFORE[part]) <= placed]
        assert ready, f"a circle among {waiting}"
        placed.update(ready)


def test_no_file_of_audit_names_a_heavy_library_except_the_one_that_loads_faiss_when_called():
    named = {
        (name, library)
        for name, path in modules("audit").items()
        for library in HEAVY
        if any(imported.split(".")[0] == library for imported in imports(path))
    }
    assert named == {("memory_audit.consistency.neighbours", "faiss")}


def loaded_after(*names: str) -> set[str]:
    program = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    return set(json.loads(done.stdout))


def test_importing_every_module_of_audit_loads_no_heavy_library():
    loaded = loaded_after(*modules("audit"))
    assert "memory_audit.gate.gate" in loaded
    assert not {name.split(".")[0] for name in loaded} & {*HEAVY, *OURS}
    assert not [name for name in loaded if name.startswith(ABOVE["audit"])]


def test_importing_every_module_of_models_loads_no_job():
    loaded = loaded_after(*modules("models"))
    assert not [name for name in loaded if name.startswith(ABOVE["models"])]
    assert not {name.split(".")[0] for name in loaded} & set(OURS)


@pytest.mark.parametrize("name", ["memory_audit.jobs.cli.main", "memory_audit.jobs.guard.open_guard"])
def test_command_line_and_guard_start_without_ray_or_any_model_library(name):
    assert not loaded_after(name) & {"ray", "torch", "vllm", "transformers"}


def test_no_record_that_reaches_the_audit_can_hold_a_label():
    names = {field.name for record in (Entry, Event, AuditConfig) for field in fields(record)}
    forbidden = ("poison", "label", "truth", "malicious", "is_bad", "attack")
    assert not {name for name in names for word in forbidden if word in name.lower()}


def test_only_fakes_and_texts_speak_of_poison_in_code():
    """No identifier, argument or key of the product's code names it: labels live in benchmarks and tests."""
    speaking = {
        (name, word)
        for layer in PACKAGES
        for name, path in modules(layer).items()
        if name != "memory_audit.models.fakes"
        for word in words_of_code(path)
        if "poison" in word.lower()
    }
    assert speaking == {
        ("memory_audit.report.sarif", "PoisonedMemory")
    }  # what a finding is called, not what an entry has


def words_of_code(path: Path) -> set[str]:
    """Return a file's identifiers, and its strings that are one word: keys, column names, markers."""
    words: set[str] = set()
    for node in ast.walk(ast.parse((REPOSITORY / path).read_text())):
        for attribute in ("id", "attr", "arg", "name"):
            value = getattr(node, attribute, None)
            if isinstance(value, str):
                words.add(value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            words.add(node.value)
    return words
