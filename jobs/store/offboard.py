"""Offboarding: a tenant's memories leave the store, live and quarantined, for good, with a receipt.

The receipt is the attestation of the removal (`memory_audit.snapshot.attest`): it names the ids and their places in the
log, and no text. The tenant's log stays, with hashes and tombstones, so that the store can be proven as before.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import durable, strict_json
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.attest import MAX_ATTESTATION_BYTES, attest, verify_attestation
from memory_audit.snapshot.publishing.purify import purify, read_purified
from memory_audit.snapshot.reader import open_snapshot, read_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.publishing.purify import Purified
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Offboarding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offboarding:
    """Of one tenant, from the newest version of a store."""

    snapshot: VerifiedSnapshot
    tenant: str
    reason: str
    """Kept in the signed tombstones."""

    now_ms: int

    def remove(self, keyring: Keyring, *, dry_run: bool) -> Purified:
        """Take out all entries of the tenant; where an earlier start did, return what it published.

        Raises:
            UsageError: no such tenant, or one without memories that was not offboarded so. Else like `purify`.
        """
        snapshot = self.snapshot
        if self.tenant not in snapshot.log_refs:
            raise UsageError(f"{snapshot.path} has no tenant {as_line(self.tenant)}")
        entries = (*snapshot.entries(self.tenant), *snapshot.quarantined(self.tenant))
        if not entries:
            return self._published_before()
        removals = {self.tenant: {entry.entry_id: self.reason for entry in entries}}
        return purify(
            snapshot.path, snapshot, removals, keyring, run_id=self._run_id(snapshot.digest), now_ms=self.now_ms,
            config={}, models={}, dry_run=dry_run,
        )  # fmt: skip

    def is_receipt(self, file: Path) -> bool:
        """Tell whether a file is what an earlier start of the same command wrote."""
        try:
            data = durable.read_bounded(file, MAX_ATTESTATION_BYTES, str(file))
            about = verify_attestation(data, self.snapshot.trust, str(file))
        except (UsageError, VerificationError):
            return False
        return about.store_id == self.snapshot.store_id and about.run_id == self._run_id(about.audited_digest)

    def write_receipt(self, purified: Purified, keyring: Keyring, receipt: Path) -> None:
        """Sign what was removed. Raises like `attest` and `durable.replace`."""
        run_id = self._run_id(purified.audited_digest)
        data = attest(
            purified, keyring, run_id=run_id, now_ms=self.now_ms, parameters={}, models={}, score_tables={}
        )  # fmt: skip
        durable.replace(receipt, data)

    def _run_id(self, base: str) -> str:
        what = strict_json.encode([base, self.tenant, self.reason])
        return f"offboard-{hashlib.sha256(what).hexdigest()[:16]}"

    def _published_before(self) -> Purified:
        newest = self.snapshot
        for version in range(newest.version, newest.manifest.oldest - 1, -1):
            made = read_manifest(newest.path, newest.trust, version, now_ms=self.now_ms, check_expiry=False)
            if made.operation == "purify" and made.parent is not None and made.run_id == self._run_id(made.parent):
                after = open_snapshot(
                    newest.path, newest.trust, now_ms=self.now_ms, version=version, check_expiry=False
                )
                found = read_purified(after, made.run_id, made.parent)
                if found is not None:
                    return found
        raise UsageError(f"{newest.path} holds no memory of tenant {as_line(self.tenant)}")
