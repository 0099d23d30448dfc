"""The attestations of a run's purge and of its quarantine, which lie in its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.errors import UsageError, VerificationError
from memory_audit.jobs.run.run_files import RESULT_FILE
from memory_audit.jobs.run.run_seal import SEAL_FILE
from memory_audit.provenance import durable
from memory_audit.snapshot.attest import MAX_ATTESTATION_BYTES, attest, verify_attestation

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.jobs.run.purge.sealed_run import SealedRun
    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.manifest import Operation
    from memory_audit.snapshot.publishing.purify import Purified
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["ATTESTATION_FILE", "QUARANTINE_FILE", "attest_run", "attestation_file", "is_attested"]

ATTESTATION_FILE = "attestation.dsse.json"
QUARANTINE_FILE = "quarantine.dsse.json"


def attestation_file(operation: Operation) -> str:
    """Name of the file that attests what a run did so."""
    return QUARANTINE_FILE if operation == "quarantine" else ATTESTATION_FILE


def attest_run(run: SealedRun, purified: Purified, keyring: Keyring, *, now_ms: int) -> bytes:
    """Sign what a run removed or put in quarantine, and why, bound to its result and its seal; return the statement.

    Raises:
        UsageError: a dry run, a statement that no verifier would accept, or the auditor's key is missing.
    """
    statement = attest(
        purified, keyring, run_id=run.result.run_id, now_ms=now_ms, parameters=run.result.config,
        models=run.result.models,
        score_tables={RESULT_FILE: run.seal.files[RESULT_FILE], SEAL_FILE: run.seal.digest},
    )  # fmt: skip
    durable.replace(run.path / attestation_file(purified.operation), statement)
    return statement


def is_attested(run: Path, purified: VerifiedSnapshot) -> bool:
    """Tell whether the auditor's word for a purified version lies in a run's folder, not just a file of its name."""
    name = attestation_file(purified.manifest.operation)
    try:
        data = durable.read_bounded(run / name, MAX_ATTESTATION_BYTES, name)
        verify_attestation(data, purified.trust, name, snapshot=purified)
    except (UsageError, VerificationError):
        return False
    return True
