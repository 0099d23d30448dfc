"""A night as Prometheus metrics, for the textfile collector of the node exporter: counts alone, of all tenants."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from memory_audit.jobs.places import check_place
from memory_audit.provenance import durable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["write_metrics"]


def write_metrics(told: Mapping[str, Any], store: str, file: Path) -> None:
    """Write what is told of a night (`memory_audit.jobs.nightly.notify`); the label `store` is the place of its store.

    Raises:
        UsageError, IncompleteError: the file must not be replaced, or cannot be written.
    """
    from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415 - few commands need it

    registry = CollectorRegistry()
    gauges = {
        "end_timestamp_seconds": ("When the last night ended or failed.", time.time()),
        "number": ("Number of the last night.", told["night"]),
        "exit_code": ("Exit code of the last night.", told["exit_code"]),
        "imported_memories": ("Memories that it signed.", told["import"]["new"]),
        "alarm_tenants": ("Tenants that a dump lacks too much of.", sum("tenant" in a for a in told["alarms"])),
        "events": ("Events that it audited.", told["events"]),
        "audited_tenants": ("Tenants with a harmful event.", told["tenants"]),
        "removed_memories": ("Memories that it purged within its policy.", told["removed_count"]),
        "unsettled_events": ("Events that may still do harm by memory.", told["unsettled"]),
        "waiting_reasons": ("Reasons for which removals wait for a person.", len(told["waits"])),
        "audit_seconds": ("What the audit took.", told["seconds"]),
    }
    for name, (help_text, value) in gauges.items():
        if value is not None:
            Gauge(f"memaudit_night_{name}", help_text, ["store"], registry=registry).labels(store).set(value)
    verdicts = Gauge("memaudit_night_verdicts", "Events by verdict.", ["store", "verdict"], registry=registry)
    for verdict, count in told["verdicts"].items():
        verdicts.labels(store, verdict).set(count)
    asked = Gauge("memaudit_night_asked", "What models were asked, by kind.", ["store", "kind"], registry=registry)
    for kind, count in told["counters"].items():
        asked.labels(store, kind).set(count)
    durable.ensure_folder(file.parent)
    durable.replace(check_place(file), generate_latest(registry))
