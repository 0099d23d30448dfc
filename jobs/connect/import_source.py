"""An import from a memory system: what is new, what was edited there, what is gone.

What a source had at its last import is kept beside the store's own folders, unsigned: it raises alarms and decides
nothing else.

    STORE/sources/<SHA-256 of the address>.json    {"format", "address", "schema", "tenants": {tenant: memories}}

A tenant is fed by one source: what its store has live and the source lacks is gone there. It stays in the store, where
`memaudit forget` takes it out. What was removed or is in quarantine is never imported again, edited or not.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memory_audit.entry import PARTS_PER_MILLION, Parent
from memory_audit.errors import EntryError, UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_regular
from memory_audit.integrations.entries import entry_of, tenant_of, version_id, version_of
from memory_audit.jobs.store.alarms import MISSING_SHARE, lacking
from memory_audit.jobs.store.import_memories import import_entries
from memory_audit.jobs.store.store_session import StoreSession
from memory_audit.provenance import durable
from memory_audit.snapshot.layout import by_bucket, has_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from memory_audit.entry import Entry
    from memory_audit.jobs.connect.connector import Source
    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["SourceImport", "entries_of", "import_source"]

FORMAT = "memaudit source v1"
MAX_STATE_BYTES = 64 << 20
"""Names of a hundred thousand tenants."""

MAX_UNFIT = 1_000
"""Records named that break a rule of entries; more are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceImport:
    """What an import from a system found and did."""

    snapshot: VerifiedSnapshot
    """The store afterwards."""

    schema: str
    new: tuple[Entry, ...]
    edited: tuple[Entry, ...]
    """Signed now, each with its earlier version as its parent."""

    known: int
    removed: tuple[tuple[str, str], ...]
    """Tenant and entry id of what was removed from the store or is in quarantine, and is in the source still."""

    gone: tuple[tuple[str, str], ...]
    """Of what is live in the store, and in the source no more."""

    unfit: tuple[str, ...]
    """Why a record could not be signed, one line each; an attacker may write such, so that the rest goes on."""

    alarms: tuple[Mapping[str, object], ...]
    """`tenant`, `missing` and `of`; or `source` with `schema` and `before`, or with `unfit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A source, held against a store."""

    new: list[Entry]
    edited: list[Entry]
    known: int
    removed: list[tuple[str, str]]
    had: dict[str, dict[str, str]]
    """Tenant to the bases of its live entries, each with the id of its last version."""


def import_source(  # noqa: PLR0913 - what is imported, where to, and by whom
    source: Source,
    where: str,
    store: Path,
    keyring: Keyring,
    pin: Path | None,
    *,
    tenant: str | None,
    principal: str,
    now: int,
    missing_share: float = MISSING_SHARE,
) -> SourceImport:
    """Sign what a source has and a store has not.

    Args:
        source: Opened.
        where: Its address.
        store: The folder of the store; one is made where there is none.
        keyring: Holds the writer and the log keys.
        pin: The file of --pin.
        tenant: Of records that name no owner.
        principal: Of records that name no writer.
        now: The publisher's clock, Unix milliseconds.
        missing_share: See `lacking`.

    Raises:
        UsageError: a schema that the connector does not know; nothing there to make a store of.
        StalePlanError, VerificationError, IncompleteError: as `import_entries`.
    """
    schema = source.schema()
    found, unfit = entries_of(source, where, tenant, principal, now)
    before = _state(store, where) if has_store(store) else {}
    snapshot = None
    if has_store(store):
        snapshot = StoreSession.open(store, keyring.policy, pin, now_ms=now, check_expiry=False).snapshot
    held = _hold(snapshot, found, before.get("tenants", {}))
    fresh = [*held.new, *held.edited]
    if fresh:
        snapshot = import_entries(fresh, store, keyring, pin, new_only=False, now=now).snapshot
    elif snapshot is None:
        raise UsageError(f"{where}: no memories in it; nothing was written")
    else:
        StoreSession.open(store, keyring.policy, pin, now_ms=now, check_expiry=False).remember()
    dumped = {name: {version_of(entry.entry_id)[0] for entry in entries} for name, entries in found.items()}
    alarms: list[Mapping[str, object]] = list(lacking(held.had, dumped, missing_share))
    if before and before["schema"] != schema:
        alarms.append({"source": where, "schema": schema, "before": before["schema"]})
    if unfit:
        alarms.append({"source": where, "unfit": len(unfit)})
    _write_state(store, where, schema, {name: len(found.get(name, ())) for name in found.keys() | held.had.keys()})
    return SourceImport(
        snapshot=snapshot, schema=schema, new=tuple(held.new), edited=tuple(held.edited), known=held.known,
        removed=tuple(held.removed), unfit=tuple(unfit[:MAX_UNFIT]), alarms=tuple(alarms),
        gone=tuple(
            (name, entry_id) for name, bases in sorted(held.had.items()) for base, entry_id in bases.items()
            if base not in dumped.get(name, ())
        ),
    )  # fmt: skip


def entries_of(
    source: Source, where: str, tenant: str | None, principal: str, now: int
) -> tuple[dict[str, list[Entry]], list[str]]:
    """Return each tenant's records as entries, and what breaks a rule of entries; of one seen twice, the later form."""
    found: dict[str, dict[str, Entry]] = defaultdict(dict)
    unfit: list[str] = []
    for record in source.records():
        mine = tenant_of(record, tenant, where)
        try:
            entry = entry_of(record, tenant=mine, principal=principal, now_ms=now, where=where)
        except EntryError as error:
            unfit.append(str(error))
        else:
            found[mine][entry.entry_id] = entry
    return {name: list(entries.values()) for name, entries in found.items()}, unfit


def _hold(snapshot: VerifiedSnapshot | None, found: Mapping[str, Sequence[Entry]], before: Mapping[str, int]) -> _Held:
    held = _Held(new=[], edited=[], known=0, removed=[], had={})
    known = 0
    for tenant in by_bucket(found.keys() | before.keys()):
        there = snapshot if snapshot is not None and tenant in snapshot.log_refs else None
        live = {entry.entry_id: entry for entry in there.entries(tenant)} if there is not None else {}
        ids = [*live, *(stone.entry_id for stone in there.tombstones(tenant))] if there is not None else []
        last: dict[str, int] = {}
        for base, version in map(version_of, ids):
            last[base] = max(version, last.get(base, 0))
        bases = {base: name for base, version in last.items() if (name := version_id(base, version)) in live}
        if bases:
            held.had[tenant] = bases
        for entry in found.get(tenant, ()):
            base, _ = version_of(entry.entry_id)
            if base not in last:
                held.new.append(entry)
                continue
            name = version_id(base, last[base])
            signed = live.get(name)
            if signed is None:
                held.removed.append((tenant, name))
            elif (signed.response, dict(signed.metadata)) == (entry.response, dict(entry.metadata)):
                known += 1
            else:
                edge = Parent(entry_id=name, weight_ppm=PARTS_PER_MILLION)
                held.edited.append(replace(entry, entry_id=version_id(base, last[base] + 1), parents=(edge,)))
    return replace(held, known=known)


def _place(store: Path, where: str) -> Path:
    return store / "sources" / f"{hashlib.sha256(where.encode(errors='surrogateescape')).hexdigest()}.json"


def _state(store: Path, where: str) -> dict[str, Any]:
    """Read what a source had at its last import; nothing for a first one.

    Raises:
        UsageError: it is damaged.
    """
    path = _place(store, where)
    try:
        record = outside_json.decode(read_regular(path, MAX_STATE_BYTES), str(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if isinstance(record, dict) and record.get("format") == FORMAT:
        schema, tenants = record.get("schema"), record.get("tenants")
        if isinstance(schema, str) and isinstance(tenants, dict):
            return {"schema": schema, "tenants": tenants}
    raise UsageError(f"{path}: not a {FORMAT}; move it away: the next import raises no alarm")


def _write_state(store: Path, where: str, schema: str, tenants: Mapping[str, int]) -> None:
    path = _place(store, where)
    durable.ensure_folder(path.parent)
    record = {"format": FORMAT, "address": where, "schema": schema, "tenants": dict(sorted(tenants.items()))}
    durable.replace(path, json.dumps(record, indent=1).encode())
