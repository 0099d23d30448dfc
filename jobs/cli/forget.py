"""`memaudit forget`: remove named entries, and lock their hazards out. A dry run unless told otherwise."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.guard.blocks.hazard import HazardSignature, Taxonomy
from memory_audit.guard.blocks.tombstone import EXTRA_KEY, BlockRecord, read_block_record
from memory_audit.jobs.cli.shared import (
    DEFAULT_KEYS,
    BackboneKeyEnv,
    Json,
    Keys,
    PinFile,
    Store,
    TaxonomyFile,
    as_signed,
    open_keyring,
    print_json,
    print_lines,
)
from memory_audit.jobs.clock import now_ms, publisher_ms
from memory_audit.jobs.run.block_records import NO_BEHAVIOURS, BlockPlan, block_records_of, described, taxonomy_of
from memory_audit.jobs.store.store_session import StoreSession, check_pin_place
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.provenance import strict_json
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.publishing.purify import Purified, purify, read_purified
from memory_audit.snapshot.reader import VerifiedSnapshot, open_snapshot, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["expiry_ms", "forget"]

STATED = "stated by the operator"
"""The model of a signature that a person gave."""

_DAYS = re.compile(r"([1-9][0-9]{0,4})d")
DAY_MS = 86_400_000


def forget(
    store: Store,
    entries: Annotated[list[str], typer.Argument(help="Ids of the entries to remove.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Whose entries they are.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the signed tombstone.")],
    expires: Annotated[
        str | None,
        typer.Option(help="End of the lockout: 90d or 2027-01-31. The removal itself stays. Default: never."),
    ] = None,
    hazard: Annotated[
        list[str] | None, typer.Option("--hazard", help="State a hazard yourself (repeatable); no model is asked then.")
    ] = None,
    taxonomy: TaxonomyFile = None,
    backbone: Annotated[str, typer.Option(help="Model that reads the hazards; none: asks no model.")] = "packaged",
    backbone_key_env: BackboneKeyEnv = None,
    embedder: Annotated[
        str, typer.Option(help="Model of the semantic keys; none: no keys, no behaviours.")
    ] = "packaged",
    keys: Keys = DEFAULT_KEYS,
    pin: PinFile = None,
    *,
    operator_wide: Annotated[
        bool, typer.Option("--operator-wide", help="Lock the hazard out for every tenant of the store.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Really remove; without it, only show what would be.")] = False,
    as_json: Json = False,
) -> None:
    """Remove entries by id and keep their paraphrases out. Changes nothing unless --apply is given."""
    now, keyring = publisher_ms(store) if apply else now_ms(), open_keyring(keys)
    session = StoreSession.open(store, keyring.policy, pin, now_ms=now, check_expiry=False)
    snapshot = session.snapshot
    named = taxonomy_of(taxonomy)
    unknown = sorted(set(hazard or ()) - set(named.names))
    if unknown:
        raise UsageError(f"no hazard {unknown[0]!r:.80} in taxonomy {named.name}; it has {', '.join(named.names)}")
    tenant, reason = as_signed(tenant, "--tenant"), as_signed(reason, "--reason")
    entries = [as_signed(entry_id, "an entry's id") for entry_id in entries]
    if len(set(entries)) != len(entries):
        raise UsageError("an entry is named twice")
    until = None if expires is None else expiry_ms(expires, now)
    removals = {tenant: dict.fromkeys(entries, reason)}

    def run_id(base: str, end: int | None) -> str:
        what = [base, tenant, *sorted(entries), reason, str(end), str(operator_wide)]
        return "forget-" + hashlib.sha256(strict_json.encode(what)).hexdigest()[:16]

    this = run_id(snapshot.digest, until)
    try:
        plan = purify(store, snapshot, removals, keyring, run_id=this, now_ms=now, config={}, models={}, dry_run=True)
    except UsageError:
        done = _published_before(snapshot, expires, run_id, now) if apply else None
        if done is None:
            raise
        blocks = _blocks_of(snapshot, tenant, entries)
    else:
        if not apply:
            _show(plan, [], as_json=as_json)
            return
        check_pin_place(pin)
        blocks, models = _block_records(
            snapshot, tenant, entries, named, hazard, backbone, embedder, until, key_env=backbone_key_env,
            operator_wide=operator_wide,
        )  # fmt: skip
        done = purify(
            store, snapshot, removals, keyring, run_id=this, now_ms=now, config=described(named), models=models,
            extra={tenant: {entry_id: block.to_extra() for entry_id, block in zip(entries, blocks, strict=True)}},
        )  # fmt: skip
    session.remember_published(done.version)
    _show(done, blocks, as_json=as_json)
    if not as_json:
        print_lines(
            "older versions still hold the text of what was removed; to erase them: memaudit vacuum "
            f"{shlex.quote(str(store))}"
        )


def _published_before(
    snapshot: VerifiedSnapshot, expires: str | None, run_id: Callable[[str, int | None], str], now: int
) -> Purified | None:
    """Return what this very command published before it was interrupted, where that version is kept; else None.

    Args:
        snapshot: The newest version.
        expires: End of the block as the user gave it: days count from when the version was made.
        run_id: Of this command, by the digest of the version it removes from and the end of the block.
        now: Clock, Unix milliseconds.
    """
    for version in range(snapshot.version, snapshot.manifest.oldest - 1, -1):
        made = read_manifest(snapshot.path, snapshot.trust, version, now_ms=now, check_expiry=False)
        if made.operation == "purify" and made.parent is not None:
            until = None if expires is None else expiry_ms(expires, made.created_ms)
            if made.run_id == run_id(made.parent, until):
                after = open_snapshot(snapshot.path, snapshot.trust, now_ms=now, version=version, check_expiry=False)
                return read_purified(after, made.run_id, made.parent)
    return None


def _blocks_of(snapshot: VerifiedSnapshot, tenant: str, entries: list[str]) -> list[BlockRecord]:
    """Return the locks of removed entries, as their tombstones hold them."""
    stones = {stone.entry_id: stone for stone in snapshot.tombstones(tenant)}
    return [read_block_record(stones[entry_id].extra[EXTRA_KEY], entry_id) for entry_id in entries]


def expiry_ms(text: str, now: int) -> int:
    """Read `90d` or a date; a date ends the block at its first moment, UTC.

    Raises:
        UsageError: neither, or in the past.
    """
    days = _DAYS.fullmatch(text)
    if days is not None:
        return now + int(days[1]) * DAY_MS
    try:
        moment = int(dt.datetime.combine(dt.date.fromisoformat(text), dt.time(), dt.UTC).timestamp() * 1_000)
    except ValueError:
        raise UsageError(f"--expires is {text!r:.40}, expected days like 90d or a date like 2027-01-31") from None
    if moment <= now:
        raise UsageError(f"--expires {text} is in the past: the lockout would never hold")
    return moment


def _block_records(
    snapshot: VerifiedSnapshot,
    tenant: str,
    entries: list[str],
    taxonomy: Taxonomy,
    stated: list[str] | None,
    backbone: str,
    embedder: str,
    until: int | None,
    *,
    key_env: str | None,
    operator_wide: bool,
) -> tuple[list[BlockRecord], dict[str, str]]:
    """Load what is needed and build the locks, in the order of `entries`."""
    from memory_audit.models.backbone.generator_http import HttpSettings  # noqa: PLC0415 - the model layer
    from memory_audit.models.loading import ModelSpecs  # noqa: PLC0415
    from memory_audit.models.readers import NONE, GuardReaders  # noqa: PLC0415

    specs = ModelSpecs(backbone=backbone, embedder=embedder, http=HttpSettings(api_key_env=key_env or ""))
    reads = not stated and backbone != NONE
    by_id = {entry.entry_id: entry for entry in (*snapshot.entries(tenant), *snapshot.quarantined(tenant))}
    removed = [by_id[entry_id] for entry_id in entries]
    with GuardReaders.open(specs, taxonomy, hazards=reads, steps=Reporter(terminal(stderr=True)).steps) as readers:
        model, behaviours = readers.embedder, readers.behaviours
        plan = BlockPlan(
            store_id=snapshot.store_id,
            taxonomy=taxonomy,
            embed=None if model is None else model.embed,
            embedder="" if model is None else model.model_id,
            behaviours=behaviours,
            scope="operator" if operator_wide else "tenant",
            expires_at_ms=until,
        )
        if model is not None and behaviours is None:
            terminal(stderr=True).print(NO_BEHAVIOURS, markup=False, highlight=False)
        used = {"embedder": model, "acts": behaviours, "backbone": readers.backbone}
        models = {role: found.model_id for role, found in used.items() if found is not None}

        async def read() -> list[BlockRecord]:
            try:
                return await block_records_of(removed, plan, readers.hazards)
            finally:
                if readers.backbone is not None:
                    await readers.backbone.close()

        blocks = asyncio.run(read())
    if not reads:
        signature = HazardSignature(labels=frozenset(stated or ()), taxonomy=taxonomy.digest, model=STATED)
        blocks = [replace(block, signature=signature if stated else None) for block in blocks]
    return blocks, models


def _show(done: Purified, blocks: list[BlockRecord], *, as_json: bool) -> None:
    labels = [None if block.signature is None else sorted(block.signature.labels) for block in blocks]
    if as_json:
        print_json({
            "version": done.version, "published": done.published, "digest": done.digest,
            "removed": [{"tenant": r.tenant, "entry_id": r.entry_id, "reason": r.reason} for r in done.removed],
            "hazards": labels,
        })  # fmt: skip
        return
    verb = "removed" if done.published else "would remove"
    lines = [f"{verb} {as_line(item.tenant)}/{as_line(item.entry_id)}" for item in done.removed]
    for block, found in zip(blocks, labels, strict=True):
        names = "unknown" if found is None else ", ".join(found) or "none found"
        keys, prints = counted(len(block.keys), "semantic key"), counted(len(block.fingerprints), "fingerprint")
        lines.append(f"  locked out: hazards {names}; {keys}, {prints}")
    if done.published:
        lines.append(f"version {done.version} published with {counted(done.entries, 'memory')}")
    else:
        lines.append("dry run: nothing was changed; add --apply to remove")
    print_lines(*lines)
