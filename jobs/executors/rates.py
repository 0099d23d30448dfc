"""How fast models were: measured by each audit, kept for the next `memaudit plan`.

    {"format": "memaudit rates v1", "machines": {"node-3": {"nli packaged": {"units": 20480.0, "seconds": 641.7}}}}

A machine is the host of an audit without a cluster, or the address of the cluster. Models go by the names of the
configuration. The file lies in the user's state folder, where the pins are. It is a convenience: nothing depends on
it but estimates, and one that cannot be read is begun anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import platformdirs

from memory_audit.errors import AuditError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_at_most
from memory_audit.formats.records import convert
from memory_audit.provenance import durable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memory_audit.config import AuditConfig
    from memory_audit.jobs.executors.measured import WorkDone

__all__ = ["keep_rates", "model_names", "rates_of"]

MAX_BYTES = 1 << 20

LEAST_SECONDS = 0.5
"""Of work in one audit: less says nothing of a rate."""

FADING = 0.5
"""What an earlier audit counts for beside the last one: a machine may change."""


class _Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    units: float
    seconds: float


class _Rates(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal["memaudit rates v1"] = "memaudit rates v1"
    machines: dict[str, dict[str, _Rate]] = {}


def model_names(config: AuditConfig) -> dict[str, str]:
    """Return role to the name of the model in the configuration."""
    return {"backbone": config.backbone, "embedder": config.embedder, "nli": config.nli}


def rates_of(config: AuditConfig, machine: str) -> dict[str, float | None]:
    """Return by role how much each model of a configuration did in a second; None where that is not known."""
    known = _read().machines.get(machine, {})
    found = {role: known.get(f"{role} {name}") for role, name in model_names(config).items()}
    return {role: rate.units / rate.seconds if rate and rate.seconds > 0 else None for role, rate in found.items()}


def keep_rates(config: AuditConfig, machine: str, done: Iterable[Mapping[str, WorkDone]]) -> None:
    """Keep how fast the models of an audit were; where that cannot be written, the audit is no worse for it.

    Args:
        config: Names the models.
        machine: Where they ran.
        done: What they did in each part of the audit, by role; parts may be made at the same time.
    """
    rates, parts = _read(), list(done)
    mine = rates.machines.setdefault(machine, {})
    before = dict(mine)
    for role, name in model_names(config).items():
        works = [part[role] for part in parts if role in part]
        seconds = _covered(span for work in works for span in work.spans)
        if seconds >= LEAST_SECONDS:
            old = mine.get(f"{role} {name}", _Rate(0.0, 0.0))
            mine[f"{role} {name}"] = _Rate(
                units=FADING * old.units + sum(work.units for work in works), seconds=FADING * old.seconds + seconds
            )
    if mine == before:
        return
    try:
        durable.ensure_folder(_path().parent)
        durable.replace(_path(), json.dumps(msgspec.to_builtins(rates), indent=1).encode())
    except (AuditError, OSError):
        return


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long any of these spans lasted, seconds: what went on at the same time counts once."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return total


def _read() -> _Rates:
    try:
        return convert(outside_json.decode(read_at_most(_path(), MAX_BYTES), "rates"), _Rates, "rates")
    except (AuditError, OSError):
        return _Rates()


def _path() -> Path:
    return Path(platformdirs.user_state_dir("memaudit")) / "rates.json"
