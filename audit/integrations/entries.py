"""A record of a memory system as an entry of a signed store, by rules that anyone can repeat.

- The tenant is the first of the record's owners, in the system's own words: `user_id=bob`. A record without an owner is
  of the tenant that --tenant names, or refused.
- The principal is its writer likewise, `agent_id=desk`, or that of --principal. The importer's key signs for it: that
  is whose word the system took, and no proof.
- The entry's id is the record's. An edited record is an entry of its own, `ID@2`, whose parent is the one before. An id
  that ends so by itself is `ID@1`. One that is too long, not in Unicode form NFC or begins with `#` is `#` and its
  SHA-256, so that no two are taken for one.
- The text is the response; the request stays empty. It is in Unicode form NFC.
- The time is what the system says, else that of the import.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING

from memory_audit.entry import MAX_NAME_BYTES, MAX_TIME_MS, Entry
from memory_audit.errors import EntryError
from memory_audit.text.nfc import nfc

if TYPE_CHECKING:
    from memory_audit.integrations.record import Record

__all__ = ["base_of", "entry_of", "tenant_of", "version_id", "version_of"]

VERSION_BYTES = 16
"""Room for `@` and a number."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_VERSION = re.compile(r"(.*)@([1-9][0-9]{0,9})", re.ASCII | re.DOTALL)


def tenant_of(record: Record, default: str | None, where: str) -> str:
    """Return whose memory a record is.

    Raises:
        EntryError: nobody's, and there is no default.
    """
    if record.owner:
        return nfc("=".join(record.owner[0]), f"{where}: owner")
    if default is None:
        raise EntryError(f"{where}: memory {record.record_id!r:.80} names no owner: --tenant says whose such are")
    return default


def entry_of(record: Record, *, tenant: str, principal: str, now_ms: int, where: str) -> Entry:
    """Return a record as the first version of its entry.

    Args:
        record: What the system holds.
        tenant: As `tenant_of` says.
        principal: Of a record that names no writer.
        now_ms: When a record was made that does not say so.
        where: The source, for messages.

    Raises:
        EntryError: it breaks a rule of entries, such as one on length.
    """
    name = f"{where}: memory {record.record_id!r:.80}"
    at_ms = record.created_at_ms
    return Entry(
        tenant=tenant, entry_id=version_id(base_of(record.record_id), 1),
        principal=principal if record.writer is None else nfc("=".join(record.writer), f"{name}: writer"),
        source=record.source, request="", response=nfc(record.text, f"{name}: text"),
        created_at_ms=now_ms if at_ms is None or at_ms > MAX_TIME_MS else at_ms,
        metadata={
            nfc(key, f"{name}: a metadata key"): nfc(value, f"{name}: a metadata value")
            for key, value in record.metadata.items()
        },
    )  # fmt: skip


def base_of(record_id: str) -> str:
    """Return what the ids of all versions of a record begin with; no two records have the same."""
    raw = record_id.encode(errors="surrogatepass")
    fits = len(raw) <= MAX_NAME_BYTES - VERSION_BYTES and not record_id.startswith("#")
    if fits and unicodedata.is_normalized("NFC", record_id) and not _SURROGATE.search(record_id):
        return record_id
    return f"#{hashlib.sha256(raw).hexdigest()}"


def version_id(base: str, version: int) -> str:
    """Return the entry id of a version of a record, from 1."""
    return base if version == 1 and not _VERSION.fullmatch(base) else f"{base}@{version}"


def version_of(entry_id: str) -> tuple[str, int]:
    """Return base and version of an entry id, the inverse of `version_id`."""
    found = _VERSION.fullmatch(entry_id)
    return (entry_id, 1) if found is None else (found[1], int(found[2]))
