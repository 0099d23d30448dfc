"""The attestation of a purge, which lies in its run's folder."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from audit.provenance import durable
from audit.snapshot.attest import attest
from jobs.run_audit import RESULT_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from audit.provenance.keys import Keyring
    from audit.result import AuditResult
    from audit.snapshot.purify import Purified

__all__ = ["ATTESTATION_FILE", "attest_run"]

ATTESTATION_FILE = "attestation.dsse.json"


def attest_run(run: Path, result: AuditResult, purified: Purified, keyring: Keyring, *, now_ms: int) -> bytes:
    """Sign what a run removed and why, bound to its result file; return the statement, as it is written to the folder.

    Raises:
        UsageError: a dry run, a statement that no verifier would accept, or the auditor's key is missing.
    """
    statement = attest(
        purified, keyring, run_id=result.run_id, now_ms=now_ms, parameters=result.config, models=result.models,
        score_tables={RESULT_FILE: hashlib.sha256((run / RESULT_FILE).read_bytes()).hexdigest()},
    )  # fmt: skip
    durable.replace(run / ATTESTATION_FILE, statement)
    return statement
