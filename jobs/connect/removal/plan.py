"""What a removal takes out of a source: looked up once, signed, and gone by from then on.

A removed entry means the record of its id and tenant, where that still has the text which was audited. One that was
edited since is another memory: it stays and is named, and its old text goes from the side tables alone. Of a record
that is gone already, what the store knows of it is looked for in the side tables.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from memory_audit.errors import EntryError, VerificationError
from memory_audit.integrations.entries import base_of, tenant_of, version_of
from memory_audit.jobs.connect.connector import Record, Removed
from memory_audit.jobs.connect.removal.evidence import Evidence, examine
from memory_audit.provenance import dsse, strict_json
from memory_audit.text.nfc import nfc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.entry import Entry
    from memory_audit.jobs.connect.address import Address
    from memory_audit.jobs.connect.connector import Connector
    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.trust_policy import TrustPolicy

__all__ = ["MAX_PLAN_BYTES", "Named", "Plan", "make_plan", "parse_plan", "sign_plan"]

PAYLOAD_TYPE = "application/vnd.memaudit.withdrawal-plan+json"
MAX_PLAN_BYTES = 1 << 30

Named = tuple[str, str]
"""Tenant and entry id."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to go, and what was there before."""

    address: str
    options: dict[str, str]
    store: str
    run_id: str
    schema: str
    context: bool
    records: tuple[Record, ...]
    """As they lie in the source; of those that are gone, what is known."""

    texts_only: tuple[str, ...]
    """Texts that are no record's any more."""

    missing: tuple[Named, ...]
    """What is gone from the source already."""

    edited: tuple[Named, ...]
    """What has another text there now, and stays."""

    key: str
    """Of the census, hex; drawn for this removal."""

    before: Evidence

    @property
    def removed(self) -> Removed:
        """What is taken out."""
        return Removed(records=self.records, texts_only=self.texts_only, context=self.context)


def make_plan(  # noqa: PLR0913 - what is removed, from where, and how
    source: Connector,
    address: Address,
    entries: Mapping[Named, Entry],
    *,
    store: str,
    run_id: str,
    context: bool,
) -> Plan:
    """Look up what is to go; nothing is changed.

    Args:
        source: Opened at `address`; best while its agent is kept out.
        address: Where it is.
        entries: What was removed from the store, as it was audited.
        store: Id of the store.
        run_id: Of the run that found them.
        context: See `Removed`.

    Raises:
        UsageError: as `Connector.rows`.
    """
    schema = source.schema()
    by_base: dict[str, list[Named]] = defaultdict(list)
    for tenant, name in sorted(entries):
        by_base[version_of(name)[0]].append((tenant, name))
    records: list[Record] = []
    edited: list[Named] = []
    texts_only: set[str] = set()
    found: set[Named] = set()
    for record in source.records():
        same = by_base.get(base_of(record.record_id), ())
        mine = [named for named in same if not record.owner or _tenant(record) == named[0]]
        if not mine:
            continue
        found.update(mine)
        texts = {entries[named].response for named in mine}
        if (text := _nfc(record.text)) in texts:
            records.append(record)
            texts_only |= texts - {text}
        else:
            edited += mine
            texts_only |= texts
    missing = tuple(sorted(entries.keys() - found))
    records += (
        Record(record_id=version_of(name)[0], text=entries[tenant, name].response, owner=())
        for tenant, name in missing
    )  # fmt: skip
    removed = Removed(records=tuple(records), texts_only=tuple(sorted(texts_only)), context=context)
    key = secrets.token_bytes(32)
    return Plan(
        address=str(address), options=dict(address.options), store=store, run_id=run_id, schema=schema,
        context=context, records=removed.records, texts_only=removed.texts_only, missing=missing,
        edited=tuple(edited), key=key.hex(), before=examine(source, removed, key, raw_bytes=False),
    )  # fmt: skip


def sign_plan(plan: Plan, keyring: Keyring) -> bytes:
    """Sign a plan as the auditor. Raises like `Keyring.signers`."""
    return dsse.seal(PAYLOAD_TYPE, strict_json.encode(msgspec.to_builtins(plan)), keyring.signers("auditor"))


def parse_plan(data: bytes, trust: TrustPolicy, where: str) -> Plan:
    """Read a plan.

    Raises:
        VerificationError: not the auditor's, or not in its form.
    """
    envelope = dsse.parse_envelope(data, PAYLOAD_TYPE, max_bytes=MAX_PLAN_BYTES, where=where)
    dsse.verify_envelope(envelope, trust.roles["auditor"].keys, 1, "auditor")
    try:
        return msgspec.convert(envelope.json(MAX_PLAN_BYTES), Plan)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{where}: no plan of a removal ({error!s:.200})") from None


def _tenant(record: Record) -> str | None:
    try:
        return tenant_of(record, None, "")
    except EntryError:
        return None


def _nfc(text: str) -> str | None:
    try:
        return nfc(text, "")
    except EntryError:
        return None
