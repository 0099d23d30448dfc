"""The demo's own corpus: what two help desks' agents remember, what went wrong, and how their agent works.

Written for this project. `entries.jsonl` is read like any import, `events.jsonl` like any log of incidents, and
`memaudit.yaml` like any configuration. Nothing here says which entries are poisoned: only the tests know.

The outputs in `events.jsonl` are what the attacked agent said when it was really run with the packaged backbone. The
audit replays the events and never takes those outputs for answers.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["CONFIG_FILE", "ENTRIES_FILE", "EVENTS_FILE", "corpus_folder"]

ENTRIES_FILE = "entries.jsonl"
EVENTS_FILE = "events.jsonl"
CONFIG_FILE = "memaudit.yaml"


def corpus_folder() -> Path:
    """Return the folder that holds the three files."""
    return Path(__file__).parent
