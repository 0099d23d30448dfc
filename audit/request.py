"""What an audit is asked: a verified snapshot, events, estimated edges and a configuration, checked against each other.

An `AuditRequest` that exists can be run: its events and edges fit the store, its agent and its harm scorer can be
built, and its taxonomy can be read. Its identity names all that the results depend on. No model is asked here, and
nothing is written. No entry is read either: what a tenant's events and edges name is checked where its log is open.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.attribution.calibration import EVIDENCE_VERSION
from memory_audit.attribution.replays.agents import load_agent
from memory_audit.attribution.replays.harm import load_harm
from memory_audit.calibration_file import Setting
from memory_audit.errors import EventError, UsageError
from memory_audit.events import parse_events
from memory_audit.formats.outside_file import read_at_most
from memory_audit.guard.blocks.hazard import load_taxonomy
from memory_audit.lineage.edges_file import check_edges

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from memory_audit.calibration_file import CalibrationFile
    from memory_audit.config import AuditConfig
    from memory_audit.entry import Entry
    from memory_audit.events import Event
    from memory_audit.lineage.edges_file import EdgesFile
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["RUN_FORMAT", "AuditRequest", "EventsFile", "TenantEvents", "events_by_tenant", "read_events"]

RUN_FORMAT = "memaudit run v4"
"""Of what a run folder holds: another where `Entry.text`, a column or key of `memory_audit.jobs.run.shards`, how these
are written, the weight of a pair or a code of `memory_audit.jobs.run.run_seal` changes."""

MAX_EVENTS_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsFile:
    """Events, and which file they are from."""

    events: tuple[Event, ...]
    digest: str
    """SHA-256 (hex) of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantEvents:
    """What one tenant's audit is about, in the order of event ids."""

    harmful: tuple[Event, ...]
    """At least one."""

    probes: tuple[Event, ...]
    """Benign ones, whose answers are to survive."""

    def __iter__(self) -> Iterator[Event]:
        return iter((*self.harmful, *self.probes))

    def __len__(self) -> int:
        return len(self.harmful) + len(self.probes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """One audit.

    Raises:
        UsageError: events or edges of tenants that the store does not have, a calibration of another setting, an agent
            or a harm scorer that cannot be built, a taxonomy that cannot be read.
    """

    snapshot: VerifiedSnapshot
    events: EventsFile
    config: AuditConfig
    edges: EdgesFile | None = None
    """Derivation edges that somebody estimated."""

    calibration: CalibrationFile | None = None
    """Clean incidents that evidence is held against."""

    by_tenant: Mapping[str, TenantEvents] = field(init=False)
    """Of the tenants that have a harmful event. Where there is none, no model will be asked."""

    identity: Mapping[str, str] = field(init=False)
    """Name to digest of all that the results depend on, in the order that the run's id is made in."""

    def __post_init__(self) -> None:
        config = self.config
        object.__setattr__(self, "by_tenant", MappingProxyType(events_by_tenant(self.snapshot, self.events.events)))
        load_agent(config.agent)
        load_harm(config.harm)
        identity = {
            "format": RUN_FORMAT,
            "configuration": config.digest(),
            "snapshot": self.snapshot.digest,
            "events": self.events.digest,
            "edges": None if self.edges is None else self.edges.digest,
            "calibration": None if self.calibration is None else self.calibration.digest,
            "agent code": _source_digest(config.agent),
            "harm code": _source_digest(config.harm),
            "taxonomy": _taxonomy_digest(config),
        }
        known = {name: digest for name, digest in identity.items() if digest is not None}
        object.__setattr__(self, "identity", MappingProxyType(known))
        for edge in () if self.edges is None else self.edges.edges:
            if edge.tenant not in self.snapshot.log_refs:
                raise UsageError(f"estimated edges: unknown tenant {edge.tenant!r:.80}")
        if self.calibration is not None:
            if config.attribution != "set":
                raise UsageError(f"attribution: {config.attribution} measures nothing that a calibration is of")
            self.calibration.check_fits(self.setting)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as what was asked: another process checks it anew, and with its own code of agent and scorer."""
        return _asked, (self.snapshot, self.events, self.config, self.edges, self.calibration)

    def of(self, tenants: Collection[str]) -> AuditRequest:
        """Return the part of this request that is about these tenants; it is part of the same run."""
        events = tuple(event for event in self.events.events if event.tenant in tenants)
        edges = None
        if self.edges is not None:
            edges = replace(self.edges, edges=tuple(edge for edge in self.edges.edges if edge.tenant in tenants))
        return replace(self, events=replace(self.events, events=events), edges=edges)

    def entries(self, tenant: str) -> tuple[Entry, ...]:
        """Open a tenant's log, check what its events and edges name, and return its live entries, at least one.

        Raises:
            EventError: no entries, or an event that names one which the store never had.
            UsageError: an estimated edge that does not fit.
            VerificationError: the log does not verify.
        """
        entries = self.snapshot.entries(tenant)
        _check_retrieved(self.snapshot, tenant, self.by_tenant[tenant])
        if self.edges is not None:
            mine = [edge for edge in self.edges.edges if edge.tenant == tenant]
            check_edges(mine, self.snapshot, "estimated edges")
        return entries

    @property
    def setting(self) -> Setting:
        """What the evidence depends on besides the backbone."""
        config = self.config
        agent = [dict(config.agent), self.identity.get("agent code")]
        return Setting(
            agent=hashlib.sha256(json.dumps(agent, sort_keys=True).encode()).hexdigest(),
            harm=str(config.harm.get("kind")),
            retrieval=config.retrieval,
            k=max((_retrieved(event, config) for each in self.by_tenant.values() for event in each.harmful), default=0),
            search=f"v{EVIDENCE_VERSION}, {config.attribution_nats:g} + {config.consistent_extra_nats:g} nats, "
            f"{config.samples} samples",
        )

    @property
    def program(self) -> str:
        """SHA-256 (hex) of what decides a replay besides its prompt and the backbone."""
        config, code = self.config, (self.identity.get("agent code"), self.identity.get("harm code"))
        decides = [dict(config.agent), dict(config.harm), *code, config.seed, config.samples]
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    @property
    def run_id(self) -> str:
        """16 hex digits: equal requests have equal ids."""
        return hashlib.sha256("".join(self.identity.values()).encode()).hexdigest()[:16]


def read_events(path: Path) -> EventsFile:
    """Read an events file.

    Raises:
        UsageError: the file cannot be read; an EventError where it is too large, or a line breaks a rule.
    """
    raw = read_at_most(path, MAX_EVENTS_BYTES)
    if len(raw) > MAX_EVENTS_BYTES:
        raise EventError(f"{path}: more than {MAX_EVENTS_BYTES} bytes; split it by tenant")
    events = tuple(parse_events(raw.splitlines(keepends=True), path.name))
    if not events:
        raise EventError(f"{path}: no events in it")
    return EventsFile(events=events, digest=hashlib.sha256(raw).hexdigest())


def events_by_tenant(snapshot: VerifiedSnapshot, events: Sequence[Event]) -> dict[str, TenantEvents]:
    """Sort events by tenant; tenants without a harmful one are left out.

    Raises:
        EventError: an unknown tenant.
    """
    of_each: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.event_id):
        if event.tenant not in snapshot.log_refs:
            raise EventError(f"event {event.event_id!r:.80}: unknown tenant {event.tenant!r:.80}")
        of_each.setdefault(event.tenant, []).append(event)
    found: dict[str, TenantEvents] = {}
    for tenant, own in of_each.items():
        harmful = tuple(event for event in own if event.harm == "harmful")
        if harmful:
            found[tenant] = TenantEvents(
                harmful=harmful, probes=tuple(event for event in own if event.harm != "harmful")
            )
    return found


def _retrieved(event: Event, config: AuditConfig) -> int:
    return config.k if event.retrieved is None else len(event.retrieved)


def _asked(
    snapshot: VerifiedSnapshot,
    events: EventsFile,
    config: AuditConfig,
    edges: EdgesFile | None,
    calibration: CalibrationFile | None,
) -> AuditRequest:
    return AuditRequest(snapshot=snapshot, events=events, config=config, edges=edges, calibration=calibration)


def _check_retrieved(snapshot: VerifiedSnapshot, tenant: str, events: TenantEvents) -> None:
    """Raise EventError where an event names an entry that the store never had.

    One that was removed since is no error: the log of what went wrong outlives its causes.
    """
    known = {entry.entry_id for entry in snapshot.entries(tenant)}
    if not known:
        raise EventError(f"tenant {tenant!r:.80} has no entries: there is nothing to audit")
    known |= {tombstone.entry_id for tombstone in snapshot.tombstones(tenant)}
    for event in events:
        for entry_id in event.retrieved or ():
            if entry_id not in known:
                raise EventError(
                    f"event {event.event_id!r:.80}: retrieved entry {entry_id!r:.80} is not in the store of "
                    f"{tenant!r:.80}"
                )


def _source_digest(settings: Mapping[str, object]) -> str | None:
    """Return the SHA-256 (hex) of the file of a user's own agent or scorer, whose name alone a configuration holds.

    What that file imports is not looked at. None for a built-in kind, and for a module without a source.
    """
    module, colon, _ = str(settings.get("kind")).partition(":")
    if not colon:
        return None
    try:
        file = inspect.getsourcefile(importlib.import_module(module))
        return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except (TypeError, OSError):  # a module of the interpreter, or one in an archive
        return None


def _taxonomy_digest(config: AuditConfig) -> str | None:
    """Return the digest of a user's own taxonomy, where hazards are read.

    Raises:
        UsageError: it cannot be read, or breaks a rule.
    """
    if config.taxonomy is None or config.hazards == "off":
        return None
    return load_taxonomy(Path(config.taxonomy)).digest
