"""A folder with a nightly job: keys, a dump, an event, and fakes for models."""

from __future__ import annotations

import json

import pytest

from tests.unit.jobs.test_cli import CONFIG, event, memories, write_lines

WITHIN = "policy: {most_entries: 2, most_share: 0.2}\n"
NIGHTLY = """
store: store
runs: {folder: nights}
sources: [{file: dump.jsonl}]
events: [events.jsonl]
audit: memaudit.yaml
local: true
"""


def write_job(folder, more=""):
    (folder / "nightly.yaml").write_text(NIGHTLY + more, encoding="utf-8")


@pytest.fixture
def desk(folder, set_up):
    """The folder, in which commands run."""
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    write_lines(folder / "dump.jsonl", memories())
    write_lines(folder / "events.jsonl", [event()])
    write_job(folder)
    set_up(
        ("keys", "new"),
    )
    return folder


@pytest.fixture
def night(run):
    """Run a night; returns its exit code, what it told, and standard error."""

    def command(*words, **options):  # noqa: ANN002, ANN003
        code, out, err = run("nightly", "nightly.yaml", "--json", *words, **options)
        return code, json.loads(out) if out else None, err

    return command


def record(folder, number=1):
    return json.loads((folder / "nights" / f"night-{number:06}" / "night.json").read_bytes())
