"""The wheel in an environment of its own, beside a user's packages that are named like this project's folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.unit.guard.test_block_list import purged
from tests.unit.snapshot.stores import keyring, make_store

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
LAYERS = ("audit", "models", "jobs")
NOT_PACKED = ("benchmarks", "training")
USERS_FOLDERS = (*LAYERS, "benchmarks")

PROGRAM = """
import json, sys
from memory_audit import (
    Context, Entry, Gate, GuardedStore, GuardSettings, ToolCall, ToolOutput, load_gate_policy, load_policy,
    open_snapshot, verify_store,
)
from memory_audit.models.fakes import FakeBehaviourReader, FakeEmbedder
from pathlib import Path

import audit, models

NOW = 1_800_000_000_010  # a moment after the store was written

store, policy = Path("store"), load_policy(Path("policy.json"))
embedder = FakeEmbedder(1_024)
guarded = GuardedStore(
    store, policy, embed=embedder.embed, embedder=embedder.model_id, behaviours=FakeBehaviourReader(),
    settings=GuardSettings(mode="behaviour"), clock_ms=lambda: NOW,
)
removed = Entry(
    tenant="acme", entry_id="w", principal="bot", source="agent", created_at_ms=NOW,
    request="How do I reset e1?", response="Open the menu and choose e1.",
)
gate = Gate(load_gate_policy(Path("gate.yaml")))
call = ToolCall(tool="send_money", arguments={"recipient": "DE89 3704 0044 0532 0130 00"})
mail = ToolOutput(tool="read_mail", text="To DE89 3704 0044 0532 0130 00")
context = Context(request="Pay the rent.", outputs=(mail,))
denied = gate.decide(call, context, now_ms=NOW)
print(json.dumps({
    "guard": guarded.guard("acme").check(removed).allowed,
    "gate": denied.verdict,
    "verified": verify_store(store, policy, now_ms=NOW).version,
    "entries": len(open_snapshot(store, policy, now_ms=NOW).entries("acme")),
    "users": [audit.__file__, models.__file__],
    "heavy": sorted({"ray", "torch", "aiohttp", "typer", "rich", "httpx"} & set(sys.modules)),
}))
guarded.close()
"""

GATE = """
format: memaudit gate policy v1
tools:
  send_money:
    parameters:
      recipient: {kind: iban, authority: [user, memory]}
"""


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:  # noqa: ANN003
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=300, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy: a build leaves files in its folder, and takes up those that an earlier one left."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*LAYERS, *NOT_PACKED):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    done = run(sys.executable, "-I", "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(source))
    assert done.returncode == 0, done.stderr
    return next(folder.glob("memory_audit-*.whl"))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """An interpreter with the wheel and what its base install brings."""
    folder = tmp_path_factory.mktemp("environment")
    assert run(sys.executable, "-m", "venv", str(folder)).returncode == 0
    pip = (
        str(folder / "bin" / "python"),
        "-I",
        "-m",
        "pip",
        "install",
        "--quiet",
        "-c",
        str(REPOSITORY / "constraints.txt"),
    )
    done = run(*pip, str(wheel))
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "python"


@pytest.fixture
def beside_own_code(tmp_path, monkeypatch) -> Path:
    """A working folder with a user's own packages of this project's folder names, first on the path."""
    for name in USERS_FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"memory_audit"}
    here = {
        str(path.relative_to(REPOSITORY))
        for layer in LAYERS
        for path in (REPOSITORY / layer).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    prefix = {"audit": "memory_audit", "models": "memory_audit/models", "jobs": "memory_audit/jobs"}
    expected = {prefix[name.split("/")[0]] + "/" + name.partition("/")[2] for name in here}
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_the_base_install_is_small(python):
    installed = json.loads(run(str(python), "-I", "-m", "pip", "list", "--format", "json").stdout)
    assert len({item["name"] for item in installed} - {"pip", "setuptools"}) <= 12
    assert not {item["name"].lower() for item in installed} & {"ray", "aiohttp", "typer", "torch"}


def test_guard_gate_and_verification_work_beside_a_users_own_packages(python, beside_own_code):
    make_store(beside_own_code / "store")
    purged(beside_own_code / "store", "acme", "e1")
    (beside_own_code / "policy.json").write_bytes(keyring().policy.envelope)
    (beside_own_code / "gate.yaml").write_text(GATE)
    done = run(str(python), "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("users") == [str(beside_own_code / name / "__init__.py") for name in ("audit", "models")]
    assert told == {"guard": False, "gate": "deny", "verified": 2, "entries": 3, "heavy": []}


def test_the_command_tells_its_version_and_what_it_lacks(python, beside_own_code):
    command = python.with_name("memaudit")
    assert run(str(command), "--version").stdout == "0.1.0\n"
    done = run(str(command), "verify", "store")
    assert done.returncode == 2
    assert "'.[audit]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_command_runs_beside_a_users_own_packages(beside_own_code):
    """In this environment, which has all extras: the editable install."""
    command = Path(sys.executable).with_name("memaudit")
    done = run(str(command), "--version", env=os.environ)
    assert (done.returncode, done.stdout) == (0, "0.1.0\n"), done.stderr
