"""A fake memory system: a file of JSON lines, each with id, text, owner, and what else a record has."""

# ruff: noqa: ANN204 - a fake

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from memory_audit.errors import UsageError
from memory_audit.jobs.connect.connector import Facts, Record


class Options(msgspec.Struct, forbid_unknown_fields=True):
    schema: str = "fake 1"


class FakeSystem:
    facts = Facts(written_for="fake 1", vouched={"text": "caller"}, guard_point="nowhere")

    def __init__(self, place, options):
        self.path, self.options = Path(place), options

    def schema(self):
        if not self.path.is_file():
            raise UsageError(f"{self.path}: nothing there")
        return self.options.schema

    def records(self):
        for line in self.path.read_text().splitlines():
            row = json.loads(line)
            owner = (("user", row["owner"]),) if row.get("owner") else ()
            yield Record(
                record_id=row["id"], text=row["text"], owner=owner, created_at_ms=row.get("at"),
                metadata=row.get("metadata", {}),
            )  # fmt: skip
