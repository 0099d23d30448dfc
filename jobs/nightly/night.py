"""One night: import what is new, collect events, audit, purge within the policy, tell.

Each step is written down when it is done (`memory_audit.jobs.nightly.journal`), and does nothing twice that counts: an
import leaves out what is signed, an audit has its run folder, a purge finishes what it began. So a night that was
killed is continued by the same command. A message alone may be sent again.

The working folder is that of the configuration.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_audit.calibration_file import read_calibration
from memory_audit.config import load_config
from memory_audit.counted import counted
from memory_audit.errors import BudgetError, EventError, StalePlanError, UsageError, VerificationError
from memory_audit.events import parse_events
from memory_audit.formats.import_jsonl import read_entries
from memory_audit.formats.outside_file import read_at_most
from memory_audit.jobs.clock import now_ms, publisher_ms
from memory_audit.jobs.connect.address import parse_address
from memory_audit.jobs.connect.import_source import import_source
from memory_audit.jobs.nightly.journal import Night, last_finished, nights
from memory_audit.jobs.nightly.policy import outside_policy
from memory_audit.jobs.run.purge.attestation import ATTESTATION_FILE
from memory_audit.jobs.run.purge.purge_run import published_purge, purge_run
from memory_audit.jobs.run.purge.sealed_run import open_sealed
from memory_audit.jobs.run.reuse import EarlierRun
from memory_audit.jobs.run.run_audit import audit_and_seal, name_backbone
from memory_audit.jobs.run.run_files import REPORT_FILE
from memory_audit.jobs.run.run_findings import RunFindings
from memory_audit.jobs.run.run_seal import Sealer
from memory_audit.jobs.store.alarms import lacking
from memory_audit.jobs.store.import_memories import import_entries, line_defaults
from memory_audit.jobs.store.object_store import place_of
from memory_audit.jobs.store.store_session import StoreSession
from memory_audit.jobs.watching.progress import say
from memory_audit.provenance import durable
from memory_audit.provenance.mirror import with_addresses
from memory_audit.report.summary import summarise
from memory_audit.report.untrusted import as_line
from memory_audit.request import MAX_EVENTS_BYTES, AuditRequest, read_events
from memory_audit.snapshot.layout import by_bucket, has_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from memory_audit.config import AuditConfig
    from memory_audit.jobs.connect.import_source import SourceImport
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.nightly.config import NightConfig, Source
    from memory_audit.jobs.store.lease import Lease
    from memory_audit.jobs.store.object_lease import ObjectLease
    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["EVENTS_FILE", "NightWork"]

EVENTS_FILE = "events.jsonl"

MAX_NAMED = 10
"""Tenants in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightWork:
    """The steps of one night; each returns what it did as plain JSON, without any text of a memory."""

    config: NightConfig
    night: Night
    keyring: Keyring
    lease: Lease | ObjectLease
    start: Callable[[AuditRequest], Executor]
    """Starts the models of an audit."""

    @property
    def store(self) -> Path:
        """The folder of the store."""
        return place_of(self.config.store)

    @property
    def pin(self) -> Path | None:
        """The file that remembers what was seen."""
        return None if self.config.pin is None else Path(self.config.pin)

    def import_new(self) -> Mapping[str, object]:
        """Sign what the sources have and the store has not, and count what they lack.

        Raises:
            VerificationError: there is no store, and there was one last night.
            UsageError: there is none, and nothing to make one of; a source that breaks a rule.
        """
        before = last_finished(Path(self.config.runs.folder))
        known: Mapping[str, Any] = {} if before is None else before.steps["import"]
        if known and not has_store(self.store):
            raise VerificationError(f"{self.store} is gone: night {before and before.number} had a store there")
        new: dict[str, set[str]] = defaultdict(set)
        whole: dict[str, set[str]] = defaultdict(set)
        counts = {"new": 0, "known": 0, "removed": 0}
        alarms: list[Mapping[str, object]] = []
        for source in self.config.sources:
            now = publisher_ms(self.store)
            if source.file is None:
                got = self._import_system(source, now)
                alarms += got.alarms
                fresh = len(got.new) + len(got.edited)
                for name, count in (("new", fresh), ("known", got.known), ("removed", len(got.removed))):
                    counts[name] += count
                continue
            entries = read_entries(Path(source.file), line_defaults(source.tenant, source.principal, now), once=True)
            if source.whole:
                for entry in entries:
                    whole[entry.tenant].add(entry.entry_id)
            if not entries:
                say(f"{source.file}: no memories in it")
                continue
            found = import_entries(entries, self.store, self.keyring, self.pin, new_only=True, now=now).found
            for entry in found.new:
                new[entry.tenant].add(entry.entry_id)
            for name, count in (("new", len(found.new)), ("known", found.known), ("removed", len(found.removed))):
                counts[name] += count
        if not has_store(self.store):
            raise UsageError(f"no store at {self.store}, and no source holds a memory to make one of")
        session = StoreSession.open(self.store, self.keyring.policy, self.pin, now_ms=now_ms())
        session.remember()
        dumped = sorted(whole.keys() | set(known.get("tenants", ())))
        return {
            **counts, "store": session.snapshot.store_id, "version": session.snapshot.version, "tenants": dumped,
            "alarms": [*self._lacking(session.snapshot, dumped, whole, new), *alarms],
        }  # fmt: skip

    def _import_system(self, source: Source, now: int) -> SourceImport:
        """Import from an agent's own system, of which all is there every night. Raises like `import_source`."""
        address = parse_address(source.system or "", source.options)
        return import_source(
            address.open(), str(address), self.store, self.keyring, self.pin, tenant=source.tenant,
            principal=source.principal, now=now, missing_share=self.config.missing_share,
        )  # fmt: skip

    def _lacking(
        self,
        snapshot: VerifiedSnapshot,
        tenants: Collection[str],
        whole: Mapping[str, Collection[str]],
        new: Mapping[str, Collection[str]],
    ) -> list[dict[str, object]]:
        """Say of which tenants tonight's dumps lack so much of what is live that something is wrong with a dump."""
        had = {
            tenant: {entry.entry_id for entry in snapshot.entries(tenant)}.difference(new.get(tenant, ()))
            for tenant in by_bucket(tenants)
            if tenant in snapshot.log_refs
        }
        return lacking(had, whole, self.config.missing_share)

    def collect(self) -> Mapping[str, object]:
        """Put the events of all files into one, which this night is about.

        Those of tenants without a memory are left out and counted: an offboarded one has events in the log still.

        Raises:
            UsageError: a file cannot be read; an EventError where it is too large, or a line breaks a rule.
        """
        session = StoreSession.open(self.store, self.keyring.policy, self.pin, now_ms=now_ms())
        lines, left_out, having = [], 0, dict[str, bool]()
        for name in self.config.events:
            raw = read_at_most(Path(name), MAX_EVENTS_BYTES)
            if len(raw) > MAX_EVENTS_BYTES:
                raise EventError(f"{name}: more than {MAX_EVENTS_BYTES} bytes")
            for event in parse_events(raw.splitlines(keepends=True), name):
                if event.tenant not in having:
                    having[event.tenant] = _has_memories(session.snapshot, event.tenant)
                if having[event.tenant]:
                    lines.append(event.to_json().encode() + b"\n")
                else:
                    left_out += 1
        durable.replace(self.night.path / EVENTS_FILE, lines)
        return {"events": len(lines), "without_memories": left_out}

    def audit(self) -> Mapping[str, object]:
        """Audit the tenants that have events, in a run folder of the night."""
        if not self.night.steps["events"]["events"]:
            return {"run": None}
        now, policy = now_ms(), self.keyring.policy
        session = StoreSession.open(self.store, policy, self.pin, now_ms=now)
        chosen = name_backbone(load_config(None if self.config.audit is None else Path(self.config.audit), {}))
        try:
            request = self._request(session.snapshot, chosen)
            out = self.night.path / f"audit-{request.run_id}"
            sealer, last = Sealer(self.keyring), _last_run(Path(self.config.runs.folder), but=out)
            earlier = None if last is None else EarlierRun(last, sealer)
            audited = audit_and_seal(request, self.start(request), out, sealer, now_ms=now, earlier=earlier)
        except UsageError:  # whoever corrects the files has them read again
            del self.night.steps["events"]
            self.night.write()
            raise
        result = audited.result
        told = summarise(result.tenants)
        beyond = {name for name, error in audited.failed.items() if isinstance(error, BudgetError)}
        return {
            "run": str(out), "run_id": result.run_id, "report": str(out / REPORT_FILE),
            "version": result.snapshot_version, "tenants": len(result.tenants), "seconds": round(result.seconds, 1),
            "counters": dict(result.counters),
            "verdicts": {name: count for name, count in told.verdicts.items() if count}, "unsettled": told.unsettled,
            "found": told.removed, "failed": sorted(audited.failed.keys() - beyond), "beyond_budget": sorted(beyond),
        }  # fmt: skip

    def _request(self, snapshot: VerifiedSnapshot, chosen: AuditConfig) -> AuditRequest:
        known = None if chosen.calibration is None else read_calibration(Path(chosen.calibration), self.keyring.policy)
        events = read_events(self.night.path / EVENTS_FILE)
        return AuditRequest(snapshot=snapshot, events=events, config=chosen, calibration=known)

    def purge(self) -> Mapping[str, object]:
        """Remove what was found, where all of it is within the policy; else say what waits, and for which command."""
        run = self.night.steps["audit"]["run"]
        if run is None:
            return {"removed": [], "waits": []}
        sealed = open_sealed(Path(run), self.keyring.policy)
        result = sealed.result
        session = StoreSession.open(self.store, self.keyring.policy, self.pin, now_ms=now_ms(), check_expiry=False)
        found = [
            [tenant, entry_id] for tenant, entries in sorted(result.removals.items()) for entry_id in sorted(entries)
        ]
        done = published_purge(result, session, now_ms=now_ms()) if found else None
        waits = outside_policy(result, RunFindings(sealed.path, result), self.config.policy) if done is None else []
        alarms = self.night.steps["import"]["alarms"]
        if done is None and (failed := self.night.steps["audit"]["failed"]):
            names = ", ".join(as_line(name) for name in failed[:MAX_NAMED])
            waits.append(f"{counted(len(failed), 'tenant')} could not be audited, see the report: {names}")
        if found and alarms and done is None:
            lacking = sum("tenant" in alarm for alarm in alarms)
            told = f"{counted(lacking, 'tenant')} {'lacks' if lacking == 1 else 'lack'} memories in tonight's dumps"
            waits.append(told if lacking else "a source is not as it was, see the alarms")
        if not found or waits:
            return {"removed": [], "waits": waits, "next": self.command(run) if found and waits else None}
        self.lease.check()
        try:
            purge = purge_run(sealed, result, self.store, self.keyring, self.pin, dry_run=False)
            done = purge.purified
        except StalePlanError as error:
            if done is None:
                return {"removed": [], "waits": [], "stale": str(error)}
        version = None if done is None else done.version
        return {"removed": found, "waits": [], "version": version, "attestation": f"{run}/{ATTESTATION_FILE}"}

    def command(self, run: str) -> str:
        """Return what a person types to purge a run that waits."""
        words = ["memaudit", "purge", run, str(self.store.absolute()), "--keys", str(Path(self.config.keys).absolute())]
        words += [] if self.pin is None else ["--pin", str(self.pin.absolute())]
        return with_addresses(shlex.join([*words, "--apply"]))


def _has_memories(snapshot: VerifiedSnapshot, tenant: str) -> bool:
    return tenant in snapshot.log_refs and bool(snapshot.entries(tenant))


def _last_run(runs: Path, *, but: Path) -> Path | None:
    """Return the newest run folder of another audit, whose comparisons are taken over; None where there is none."""
    for night in reversed(nights(runs)):
        found = [path for path in night.glob("audit-*") if (path / "run.json").is_file() and path != but]
        if found:
            return max(found, key=lambda path: path.stat().st_mtime_ns)
    return None
