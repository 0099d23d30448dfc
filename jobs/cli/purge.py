"""`memaudit purge`: remove what a run found, re-sign, attest. A dry run unless told otherwise."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.errors import IncompleteError, StalePlanError, UsageError
from memory_audit.jobs.cli.shared import DEFAULT_KEYS, Json, Keys, PinFile, Store, print_json, print_lines
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.run.purge_run import large_removals, purge_run
from memory_audit.jobs.run.run_files import read_identity
from memory_audit.jobs.run.sealed_run import open_sealed
from memory_audit.provenance.keys import load_keyring
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from memory_audit.jobs.run.sealed_run import SealedRun
    from memory_audit.provenance.trust_policy import TrustPolicy

__all__ = ["purge"]


def purge(
    run: Annotated[Path, typer.Argument(help="Finished run folder.")],
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    pin: PinFile = None,
    *,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="Also what derives from a removed memory and was quarantined.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Really remove; without it, only show what would be.")] = False,
    most: Annotated[bool, typer.Option("--most", help="Also where more than half of a tenant's memories go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what a run found.

    Tombstones are appended, the live view is rewritten and re-signed. Changes nothing unless --apply is given. A run
    that its audit did not seal, or that was changed since, is refused.
    """
    keyring = load_keyring(keys)
    sealed = _sealed(run, store, keyring.policy)
    result = sealed.result.with_quarantined() if quarantined else sealed.result
    large = large_removals(result)
    if large and apply and not most:
        raise UsageError(f"{large[0]}; look at the report, and add --most to remove them all the same")
    done = purge_run(sealed, result, store, keyring, pin, dry_run=not apply)
    if as_json:
        print_json(done.to_json())
    else:
        print_lines(*done.lines(), *(() if apply else large))


def _sealed(run: Path, store: Path, trust: TrustPolicy) -> SealedRun:
    """Open a run; one that is not sealed, and whose audit cannot be finished as the store has changed, is stale."""
    try:
        return open_sealed(run, trust)
    except IncompleteError:
        newest = open_snapshot(store, trust, now_ms=now_ms(), check_expiry=False)
        if read_identity(run).get("snapshot") != newest.digest:
            raise StalePlanError(
                f"{run} is not sealed, and {store} is at version {newest.version} since: audit again"
            ) from None
        raise
