"""A whole night, from the lease to its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_audit.errors import DEFECT, AuditError, StalePlanError
from memory_audit.jobs.nightly.journal import END, open_night, prune
from memory_audit.jobs.nightly.night import NightWork
from memory_audit.jobs.nightly.notify import message, notify
from memory_audit.jobs.places import check_outside_stores
from memory_audit.jobs.store.lease import leased
from memory_audit.jobs.store.object_store import place_of
from memory_audit.jobs.watching.progress import say
from memory_audit.jobs.watching.status import STATUS_FILE
from memory_audit.provenance import durable

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.nightly.config import NightConfig
    from memory_audit.provenance.keys import Keyring
    from memory_audit.request import AuditRequest

__all__ = ["NEEDS_A_PERSON", "run_night"]

NEEDS_A_PERSON = 1
"""Exit code of a night that found what its policy leaves to a person, or that raised an alarm."""


def run_night(
    config: NightConfig,
    keyring: Keyring,
    start: Callable[[AuditRequest], Executor],
    *,
    now_ms: int,
    wait_s: float = 0.0,
) -> dict[str, Any]:
    """Do a night, or continue the one that was stopped.

    Args:
        config: Its paths are relative to the working folder.
        keyring: Writer's, log and auditor's keys.
        start: Starts the models of an audit.
        now_ms: Clock, Unix milliseconds.
        wait_s: How long to wait for others who hold the store, seconds.

    Returns:
        What was told (`memory_audit.jobs.nightly.notify`), with the exit code.

    Raises:
        HeldError: others hold the store.
        AuditError: a step failed; that was told, and the same call continues.
    """
    check_outside_stores(store := place_of(config.store))
    with leased(store, "nightly", wait_s=wait_s, new=True) as lease:
        runs = Path(config.runs.folder).absolute()
        night = open_night(runs, store, now_ms)
        durable.remove(runs / STATUS_FILE)  # of a night that was killed
        say(f"night {night.number}" + (f", continued after {', '.join(night.steps)}" if night.steps else ""))
        work = NightWork(config=config, night=night, keyring=keyring, lease=lease, start=start)
        steps = {"import": work.import_new, "events": work.collect, "audit": work.audit, "purge": work.purge}
        for name, step in steps.items():
            try:
                night.step(name, step)
            except Exception as error:
                code = error.exit_code if isinstance(error, AuditError) else DEFECT
                failed = {"step": name, "error": type(error).__name__}
                untold = notify(message(night, code, failed), night.store, config.notify)
                if isinstance(error, AuditError) and untold:
                    raise type(error)("; ".join([str(error), *untold])) from error
                raise
        purged, audited = night.steps["purge"], night.steps["audit"]
        needed = purged["waits"] or night.steps["import"]["alarms"]
        needed = needed or audited.get("unsettled") or audited.get("beyond_budget")
        code = StalePlanError.exit_code if "stale" in purged else NEEDS_A_PERSON if needed else 0
        told = message(night, code)
        told |= night.step("notify", lambda: {"untold": notify(told, night.store, config.notify)})
        night.step("prune", lambda: {"files": prune(runs, config.runs.keep)})
        night.step(END, lambda: {"exit_code": code})
        return told
