"""A sealed run, read for its purge: every byte that is used is one that was held against the seal."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import IncompleteError, VerificationError
from memory_audit.jobs.run.block_records import BLOCKS_FILE, read_block_records
from memory_audit.jobs.run.run_files import MARKER_FILE, RESULT_FILE, parse_marker, read_identity
from memory_audit.jobs.run.run_seal import MAX_SEAL_BYTES, SEAL_FILE, read_seal
from memory_audit.provenance import durable
from memory_audit.report.json import from_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memory_audit.jobs.run.block_records import Extras
    from memory_audit.jobs.run.run_seal import Seal
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.result import AuditResult

__all__ = ["MAX_PART_BYTES", "SealedRun", "open_sealed"]

MAX_PART_BYTES = 1 << 30
"""Of one file of a run: as much as a result may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedRun:
    """What the auditor sealed."""

    path: Path
    seal: Seal
    identity: Mapping[str, str]
    """What the run is of, as `RunFolder` marks it."""

    result: AuditResult
    blocks: bytes | None
    """BLOCKS_FILE; None where the run has none."""

    def block_records_of(self, result: AuditResult) -> tuple[Extras, dict[str, str]]:
        """Return the block records of what `result` removes, as `read_block_records` does."""
        return read_block_records(self.path, result, self.blocks)


def open_sealed(run: Path, trust: TrustPolicy, *, seal: bytes | None = None) -> SealedRun:
    """Hold every file of a run that is there against its seal; shards, findings and pages may be gone.

    Args:
        run: The folder.
        trust: Says who is the auditor.
        seal: The seal, where it was just made; None reads the one in the folder.

    Raises:
        UsageError: no run there.
        IncompleteError: the run is not sealed.
        VerificationError: seal or files are not what the auditor sealed.
    """
    if seal is None:
        if not (run / SEAL_FILE).is_file():
            read_identity(run)
            raise IncompleteError(
                f"{run}: not sealed (no {SEAL_FILE}), as its audit was interrupted or had no auditor's key: start the "
                f"same audit again, memaudit audit … --out {shlex.quote(str(run))}, and then purge"
            )
        seal = durable.read_bounded(run / SEAL_FILE, MAX_SEAL_BYTES, str(run / SEAL_FILE))
    known = read_seal(seal, trust, str(run / SEAL_FILE))
    parts: dict[str, bytes] = {}
    for name, digest in known.files.items():
        path, used = run / name, name in {MARKER_FILE, RESULT_FILE, BLOCKS_FILE}
        if not used and not path.exists():
            continue
        data = durable.read_bounded(path, MAX_PART_BYTES, str(path))
        if hashlib.sha256(data).hexdigest() != digest:
            raise VerificationError(
                f"{path}: changed since the audit sealed it: look who writes there; the same audit, started again, "
                "writes it anew"
            )
        if used:
            parts[name] = data
    if not parts.keys() >= {MARKER_FILE, RESULT_FILE}:
        raise VerificationError(f"{run / SEAL_FILE}: seals no result")
    result = from_json(parts[RESULT_FILE], str(run / RESULT_FILE))
    if (result.store, result.snapshot_version) != (known.store_id, known.version):
        raise VerificationError(f"{run / SEAL_FILE}: of another store or version than its {RESULT_FILE}")
    return SealedRun(
        path=run, seal=known, identity=parse_marker(parts[MARKER_FILE], str(run / MARKER_FILE)), result=result,
        blocks=parts.get(BLOCKS_FILE),
    )  # fmt: skip
