"""MemAudit's public face: entries, events, an agent's questions, the verified snapshot, write guard and gate.

    from memory_audit import Entry, open_guard

    with open_guard("store", "memaudit-keys/policy.json") as guarded:
        decision = guarded.guard("acme").check(entry)

What is named here is stable API. A name is imported when it is first used, so that a process that needs the gate alone
loads neither numpy nor Parquet; nothing here loads Ray, torch or vLLM. Importing `open_guard` needs the extra `cpu` or
`gpu`, which bring the models; all else is in the base install.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory_audit.entry import Entry, Parent
    from memory_audit.errors import (
        AuditError,
        EntryError,
        EventError,
        IncompleteError,
        ModelError,
        StalePlanError,
        UsageError,
        VerificationError,
        WriteRefusedError,
    )
    from memory_audit.events import Event, parse_events
    from memory_audit.gate.call import Context, ToolCall, ToolOutput
    from memory_audit.gate.gate import Gate, GateDecision
    from memory_audit.gate.gate_policy import GatePolicy, load_gate_policy
    from memory_audit.generation import Completion, GenerationRequest, Message
    from memory_audit.guard.decide.guard_decision import GuardDecision
    from memory_audit.guard.decide.settings import GuardSettings
    from memory_audit.guard.guard import WriteGuard
    from memory_audit.guard.guarded_store import GuardedStore
    from memory_audit.integrations.chroma import guard_chroma
    from memory_audit.integrations.langgraph import guard_langgraph
    from memory_audit.integrations.mem0 import guard_mem0
    from memory_audit.integrations.qdrant import guard_qdrant
    from memory_audit.jobs.clock import now_ms
    from memory_audit.jobs.guard.open_guard import open_guard
    from memory_audit.lineage.trust import TrustRules
    from memory_audit.lineage.verified import VerifiedLineage
    from memory_audit.provenance.keys import load_policy
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.pin import Pin, read_pin, write_pin
    from memory_audit.snapshot.reader import VerifiedSnapshot, open_snapshot
    from memory_audit.snapshot.verify import verify_store

__all__ = [
    "AuditError",
    "Completion",
    "Context",
    "Entry",
    "EntryError",
    "Event",
    "EventError",
    "Gate",
    "GateDecision",
    "GatePolicy",
    "GenerationRequest",
    "GuardDecision",
    "GuardSettings",
    "GuardedStore",
    "IncompleteError",
    "Message",
    "ModelError",
    "Parent",
    "Pin",
    "StalePlanError",
    "ToolCall",
    "ToolOutput",
    "TrustPolicy",
    "TrustRules",
    "UsageError",
    "VerificationError",
    "VerifiedLineage",
    "VerifiedSnapshot",
    "WriteGuard",
    "WriteRefusedError",
    "guard_chroma",
    "guard_langgraph",
    "guard_mem0",
    "guard_qdrant",
    "load_gate_policy",
    "load_policy",
    "now_ms",
    "open_guard",
    "open_snapshot",
    "parse_events",
    "read_pin",
    "verify_store",
    "write_pin",
]

_MODULES = {
    "entry": ("Entry", "Parent"),
    "errors": (
        "AuditError", "EntryError", "EventError", "IncompleteError", "ModelError", "StalePlanError", "UsageError",
        "VerificationError", "WriteRefusedError",
    ),
    "events": ("Event", "parse_events"),
    "gate.call": ("Context", "ToolCall", "ToolOutput"),
    "gate.gate": ("Gate", "GateDecision"),
    "gate.gate_policy": ("GatePolicy", "load_gate_policy"),
    "generation": ("Completion", "GenerationRequest", "Message"),
    "guard.decide.guard_decision": ("GuardDecision",),
    "guard.decide.settings": ("GuardSettings",),
    "guard.guard": ("WriteGuard",),
    "guard.guarded_store": ("GuardedStore",),
    "integrations.chroma": ("guard_chroma",),
    "integrations.langgraph": ("guard_langgraph",),
    "integrations.mem0": ("guard_mem0",),
    "integrations.qdrant": ("guard_qdrant",),
    "jobs.clock": ("now_ms",),
    "jobs.guard.open_guard": ("open_guard",),
    "lineage.trust": ("TrustRules",),
    "lineage.verified": ("VerifiedLineage",),
    "provenance.keys": ("load_policy",),
    "provenance.trust_policy": ("TrustPolicy",),
    "snapshot.pin": ("Pin", "read_pin", "write_pin"),
    "snapshot.reader": ("VerifiedSnapshot", "open_snapshot"),
    "snapshot.verify": ("verify_store",),
}  # fmt: skip
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first used (PEP 562).

    Raises:
        AttributeError: no public name.
        ImportError: it needs a library that the base install does not bring.
    """
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{name} needs {error.name}, which the extra `cpu` or `gpu` of memory-audit brings"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
