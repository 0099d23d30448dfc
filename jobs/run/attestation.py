"""The attestation of a purge, which lies in its run's folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.errors import UsageError, VerificationError
from memory_audit.jobs.run.run_files import RESULT_FILE
from memory_audit.jobs.run.run_seal import SEAL_FILE
from memory_audit.provenance import durable
from memory_audit.snapshot.attest import MAX_ATTESTATION_BYTES, attest, verify_attestation

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.jobs.run.sealed_run import SealedRun
    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.publishing.purify import Purified
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["ATTESTATION_FILE", "attest_run", "is_attested"]

ATTESTATION_FILE = "attestation.dsse.json"


def attest_run(run: SealedRun, purified: Purified, keyring: Keyring, *, now_ms: int) -> bytes:
    """Sign what a run removed and why, bound to its result and its seal; return the statement, as it is written there.

    Raises:
        UsageError: a dry run, a statement that no verifier would accept, or the auditor's key is missing.
    """
    statement = attest(
        purified, keyring, run_id=run.result.run_id, now_ms=now_ms, parameters=run.result.config,
        models=run.result.models,
        score_tables={RESULT_FILE: run.seal.files[RESULT_FILE], SEAL_FILE: run.seal.digest},
    )  # fmt: skip
    durable.replace(run.path / ATTESTATION_FILE, statement)
    return statement


def is_attested(run: Path, purified: VerifiedSnapshot) -> bool:
    """Tell whether the auditor's word for a purified version lies in a run's folder, not just a file of its name."""
    try:
        data = durable.read_bounded(run / ATTESTATION_FILE, MAX_ATTESTATION_BYTES, ATTESTATION_FILE)
        verify_attestation(data, purified.trust, ATTESTATION_FILE, snapshot=purified)
    except (UsageError, VerificationError):
        return False
    return True
