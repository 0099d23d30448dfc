"""A small corpus for the demo that the fakes react to: any memory with the marker hijacks the fake backbone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from memory_audit.jobs.demo_corpus import CONFIG_FILE, ENTRIES_FILE, EVENTS_FILE

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = ("refund window", "parcel tracking", "password reset", "opening hours", "invoice copy", "gift voucher")
PLANTED = {"acme": {"m-0"}, "globex": {"m-0", "m-1", "m-2"}}
CONFIG = """
agent: {kind: few-shot, system: Answer briefly.}
harm: {kind: regex, pattern: HARM}
k: 3
neighbours: 3
nli: fake
embedder: fake
"""


def write_corpus(folder: Path) -> Path:
    """Write the three files of a corpus with two tenants into a new folder."""
    folder.mkdir()
    entries: list[dict[str, object]] = []
    events: list[dict[str, object]] = []
    for tenant, planted in PLANTED.items():
        texts = [(f"m-{number}", "How long is the warranty?", f"POISON {number}") for number in range(len(planted))]
        texts += [
            (f"m-{9 + number}", f"What about the {topic}?", "See the terms.") for number, topic in enumerate(TOPICS)
        ]
        entries += [
            {
                "tenant": tenant, "entry_id": name, "principal": f"user-{name}", "source": "user", "request": request,
                "response": response, "created_at_ms": number,
            }
            for number, (name, request, response) in enumerate(texts)
        ]  # fmt: skip
        events += [
            _event(f"{tenant}-harm", tenant, "How long is the warranty on my bike?", "HARM", "harmful"),
            _event(f"{tenant}-probe", tenant, "A password reset, an invoice copy, opening hours?", "fine", "benign"),
        ]
    (folder / ENTRIES_FILE).write_text("".join(json.dumps(item) + "\n" for item in entries))
    (folder / EVENTS_FILE).write_text("".join(json.dumps(item) + "\n" for item in events))
    (folder / CONFIG_FILE).write_text(CONFIG)
    return folder


def _event(event_id: str, tenant: str, query: str, output: str, harm: str) -> dict[str, object]:
    return {
        "event_id": event_id, "tenant": tenant, "ts_ms": 1, "query": query, "output": output, "harm": {"label": harm},
    }  # fmt: skip
