"""Stores that the real systems wrote. Their packages lie in this environment, or in the folder MEMAUDIT_AGENTS."""

# ruff: noqa: ANN002, ANN003, ANN204 - what is handed on

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyrage
import pytest

from tests.unit.jobs.connect.postgres import started

AGENTS = Path(__file__).parents[3] / "agents"


class Agent:
    """A process with an agent's memory open."""

    def __init__(self, program, folder, **more):
        packages = os.environ.get("MEMAUDIT_AGENTS", "")
        self.process = subprocess.Popen(
            [sys.executable, AGENTS / program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": packages},
        )  # fmt: skip
        self.first: dict[str, object] | None = {"folder": str(folder), **more}

    def __call__(self, *calls):
        """Make calls, each (method, arguments); return what they returned."""
        sent, self.first = ({**self.first, "calls": calls} if self.first else calls), None
        self.process.stdin.write(json.dumps(sent) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, self.process.communicate()[1][-2000:]
        return json.loads(answer)

    def end(self):
        self.process.communicate()


@contextlib.contextmanager
def agent(program, folder, **more):
    opened = Agent(program, folder, **more)
    try:
        yield opened
    finally:
        opened.end()


def killed_at(step, moment, words):
    """Run a command that is killed before or after a step of a removal."""
    program = (
        "import os, signal\n"
        "from memory_audit.jobs.connect.removal import withdraw\n"
        "do = withdraw._Steps.do\n"
        "def killed(self, name, work):\n"
        f"    if name != {step!r}: return do(self, name, work)\n"
        f"    if {moment == 'after'}: work()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "withdraw._Steps.do = killed\n"
        "from memory_audit.jobs.cli.main import main\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, *words], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]


CONFIG = "harm: {kind: regex, pattern: HARM}\nbackbone: fake\nnli: fake\nembedder: fake\n"


@pytest.fixture
def lay_desk(folder, set_up):
    """Lay out a working folder: configuration, a harmful event that saw these memories, a backup's key, and keys."""

    def laid(tenant, *retrieved):
        (folder / "memaudit.yaml").write_text(CONFIG)
        event = {
            "event_id": "e1", "tenant": tenant, "ts_ms": 1, "query": "refunds?", "output": "HARM",
            "harm": {"label": "harmful"}, "retrieved": retrieved,
        }  # fmt: skip
        (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
        (folder / "backup.pub").write_text(f"{pyrage.x25519.Identity.generate().to_public()}\n")
        set_up(("keys", "new"))
        return folder

    return laid


def needs(package):
    """Skip, in one line, where an agent's package is not installed."""
    folder = os.environ.get("MEMAUDIT_AGENTS")
    if find_spec(package) is None and not (folder and (Path(folder) / package).is_dir()):
        pytest.skip(f"{package} is not installed, neither here nor in MEMAUDIT_AGENTS")


def digests(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def commands_of(page):
    """Return the words of each command that a how-to page shows, without the program's name."""
    text = (Path(__file__).parents[4] / "docs/howto" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [shlex.split(line)[1:] for block in blocks for line in block.replace("\\\n", " ").splitlines()]


@pytest.fixture(scope="session")
def postgres():
    with started() as server:
        yield server
