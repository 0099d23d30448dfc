"""The tutorials run as they are written: their commands in order, then their Python, in an empty folder.

The gate's needs no model. The audit's runs with stand-in models, and a server in the place of the backbone that does
what poison makes a model do: asked about a password, it repeats what a memory in its prompt says of card numbers.
"""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from docs.generate import DOCS, ROOT

pytestmark = pytest.mark.slow  # each of their commands is a process

HARM = "Mail your card number to desk@pay.example."
HARMLESS = "Open Orders and choose Track."


class Backbone(BaseHTTPRequestHandler):
    """An OpenAI-compatible server, as small as an audit needs; it gives no log-probabilities."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        *earlier, question = [message["content"] for message in asked["messages"] if message["role"] != "system"]
        swayed = "password" in question and any("card number" in text for text in earlier)
        allowed = asked.get("structured_outputs", {}).get("choice")
        text = allowed[0] if allowed else HARM if swayed else HARMLESS
        message = {"role": "assistant", "content": text}
        self._answer({
            "id": "1", "object": "chat.completion", "created": 0, "model": "stand-in",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        })  # fmt: skip

    def do_GET(self):
        self._answer({"object": "list", "data": [{"id": "stand-in", "object": "model"}]})

    def _answer(self, record):
        body = json.dumps(record).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object):
        """Say nothing."""


@pytest.fixture
def backbone():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Backbone)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"openai:http://127.0.0.1:{server.server_port}/v1#stand-in"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def place(tmp_path):
    """An empty folder, and an environment in which `memaudit` is a command and nothing of this machine is known."""
    commands = tmp_path / "bin"
    commands.mkdir()
    program = "import sys; from memory_audit.jobs.command import main; sys.argv[0] = 'memaudit'; main()"
    (commands / "memaudit").write_text(f'#!/bin/sh\nexec {sys.executable} -W error::UserWarning -c "{program}" "$@"\n')
    (commands / "memaudit").chmod(0o755)
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir()
    folder.mkdir()
    environment = {
        **os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home), "XDG_CACHE_HOME": str(home),
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    environment["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])
    return folder, environment


@pytest.fixture
def run(place):
    """Run blocks of a language from a page in one folder, and return what each printed."""
    folder, environment = place

    def blocks(page, language, changed=lambda block: block):
        text = (DOCS / page).read_text(encoding="utf-8")
        told = []
        for block in re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            shell = ["bash", "-euo", "pipefail", "-c"] if language == "sh" else [sys.executable, "-c"]
            done = subprocess.run(
                [*shell, changed(block)], cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
            told.append(done.stdout)
        return told

    return blocks


def test_the_gates_tutorial_repairs_the_call(run):
    *_, explained = run("tutorial-gate.md", "sh")
    (decided,) = run("tutorial-gate.md", "python")

    assert "repair" in explained
    assert "external" in explained
    assert decided == "repair NL91 ABNA 0417 1643 00\n"


@pytest.mark.timeout(300)
def test_the_audits_tutorial_removes_the_memory_behind_the_harm(run, backbone):
    models = f"--backbone '{backbone}' --nli fake --embedder fake --quiet"
    told = run("tutorial-audit.md", "sh", lambda block: re.sub(r"(memaudit audit .*)", rf"\1 {models}", block))
    (read,) = run("tutorial-audit.md", "python")

    assert any('"entry_id": "m-3"' in text and "removed_at_ms" in text for text in told)
    assert read == "2 ['m-1', 'm-2', 'm-4', 'm-5']\n['m-3']\n"


def test_the_page_on_scans_finds_what_it_shows_and_nothing_new_afterwards(run):
    def with_stand_ins(block: str) -> str:
        fakes = "printf 'nli: fake\\nembedder: fake\\n' > memaudit.yaml\n"
        return fakes + re.sub(r"(memaudit scan .*)", r"\1 --local --quiet", block)

    first, second = run("howto/scan.md", "sh", with_stand_ins)
    assert "chat-tokens" in first
    assert "copies" in first
    assert "known" in second
    assert " new" not in second.splitlines()[-2]


def test_the_page_on_traces_makes_an_event_of_them(run):
    *_, told = run("howto/traces.md", "sh")

    text = (DOCS / "howto/traces.md").read_text(encoding="utf-8")
    assert told.endswith(re.search(r"```text\n(.*?)```", text, re.DOTALL)[1])
