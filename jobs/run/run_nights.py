"""Runs of several nights, read to be put side by side: by the word of files that anybody may have written, to show."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError, VerificationError
from memory_audit.jobs.run.purge.attestation import ATTESTATION_FILE, QUARANTINE_FILE
from memory_audit.jobs.run.run_audit import read_result
from memory_audit.jobs.run.run_files import MARKER_FILE, RESULT_FILE
from memory_audit.jobs.run.run_findings import RunFindings
from memory_audit.provenance import durable
from memory_audit.report.nights import Night
from memory_audit.snapshot.attest import MAX_ATTESTATION_BYTES, parse_attestation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memory_audit.result import EntryText

__all__ = ["read_nights", "runs_of"]


def runs_of(places: Sequence[Path]) -> list[Path]:
    """Return the runs in places: of a folder that is no run the finished ones that it, or each night in it, holds.

    Raises:
        UsageError: a folder with no run in it.
    """
    found: list[Path] = []
    for place in places:
        if (place / MARKER_FILE).is_file() or not place.is_dir():
            found.append(place)
            continue
        inside = sorted(path.parent for depth in ("*", "*/*") for path in place.glob(f"{depth}/{RESULT_FILE}"))
        if not inside:
            raise UsageError(f"{place}: no run, and no finished run in it")
        found += inside
    return found


def read_nights(runs: Sequence[Path]) -> list[Night]:
    """Read runs, the earliest first.

    Raises:
        UsageError: one is not finished, or damaged.
    """
    results = sorted(((read_result(run), run) for run in runs), key=lambda item: (item[0].started_ms, item[1].name))
    nights: list[Night] = []
    touched: set[str] = set()
    """Tenants from which an earlier night took something."""

    for result, run in results:
        read, texts, present = RunFindings(run, result), {}, {}
        for tenant in sorted(result.tenants, key=lambda tenant: tenant.part):
            names_any = tenant.removal.removed or tenant.removal.quarantined
            if tenant.failure is not None or not (names_any or tenant.tenant in touched):
                continue
            found = read(tenant)
            texts[tenant.tenant] = {text.entry_id: _digest(text) for text in found.texts}
            present[tenant.tenant] = {score.entry_id for score in found.scores} if tenant.tenant in touched else set()
        taken = _taken(run)
        touched |= taken.keys()
        nights.append(Night(name=run.resolve().name, result=result, texts=texts, taken=taken, present=present))
    return nights


def _taken(run: Path) -> dict[str, set[str]]:
    """Return what a run's purge and quarantine took out, by their attestations."""
    taken: dict[str, set[str]] = {}
    for name in (ATTESTATION_FILE, QUARANTINE_FILE):
        path = run / name
        if not path.is_file():
            continue
        try:
            attested = parse_attestation(durable.read_bounded(path, MAX_ATTESTATION_BYTES, str(path)), str(path))
        except VerificationError as error:
            raise UsageError(f"{error}") from None
        for item in attested.removed:
            taken.setdefault(item.tenant, set()).add(item.entry_id)
    return taken


def _digest(text: EntryText) -> str:
    return hashlib.sha256(f"{len(text.request)} {text.request}{text.response}".encode()).hexdigest()
