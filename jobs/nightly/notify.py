"""Who is told of a night: a webhook by JSON, mail and Prometheus by a file. Never with any text of a memory.

    {"format": "memaudit night v1", "night": 17, "host": "node-3", "store": "6d1f…", "exit_code": 1,
     "import": {"new": 12, "known": 8811, "removed": 0}, "alarms": [{"tenant": "acme", "missing": 510, "of": 1000}],
     "events": 4, "without_memories": 0, "tenants": 2, "verdicts": {"cleared": 3, "not reproduced": 1}, "unsettled": 0,
     "beyond_budget": [], "seconds": 812.4, "counters": {"replays": 240}, "removed": [["acme", "m-3"]],
     "removed_count": 1, "waits": [], "next": null,
     "run": "/nights/night-000017/audit-4f2a…", "report": "…/report.html", "failed": null}

Of a night that failed, `failed` names the step and the kind of the error, whose line is in the job's log: it may quote
what it complains of. A webhook is asked twice at most. That nobody could be told is said, and ends no night.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_audit.counted import counted
from memory_audit.errors import AuditError, UsageError
from memory_audit.jobs.nightly.config import ENV, check_address
from memory_audit.jobs.nightly.journal import FORMAT
from memory_audit.jobs.nightly.metrics import write_metrics
from memory_audit.jobs.store.alarms import alarm_line
from memory_audit.provenance import durable
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memory_audit.jobs.nightly.config import Mail, Notify
    from memory_audit.jobs.nightly.journal import Night

__all__ = ["lines_of", "message", "notify"]

TRIES = 2

MOST_NAMED = 100
"""Of ids, tenants and lines in a message: the run has them all."""


def message(night: Night, exit_code: int, failed: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what is told of a night, as it stands."""
    done: dict[str, Mapping[str, Any]] = {name: night.steps.get(name, {}) for name in ("import", "audit", "purge")}
    imported, audited, purged = done["import"], done["audit"], done["purge"]
    removed = purged.get("removed", [])
    return {
        "format": FORMAT,
        "night": night.number,
        "host": socket.gethostname(),
        "store": imported.get("store"),
        "exit_code": exit_code,
        "import": {name: imported.get(name) for name in ("new", "known", "removed")},
        "alarms": imported.get("alarms", [])[:MOST_NAMED],
        "events": night.steps.get("events", {}).get("events"),
        "without_memories": night.steps.get("events", {}).get("without_memories", 0),
        "tenants": audited.get("tenants", 0),
        "verdicts": audited.get("verdicts", {}),
        "unsettled": audited.get("unsettled", 0),
        "beyond_budget": audited.get("beyond_budget", [])[:MOST_NAMED],
        "seconds": audited.get("seconds"),
        "counters": audited.get("counters", {}),
        "removed": removed[:MOST_NAMED],
        "removed_count": len(removed),
        "waits": ([purged["stale"]] if "stale" in purged else purged.get("waits", []))[:MOST_NAMED],
        "next": purged.get("next"),
        "run": audited.get("run"),
        "report": audited.get("report"),
        "failed": failed,
    }


def lines_of(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message as lines for people."""
    new, known, removed = (told["import"][name] for name in ("new", "known", "removed"))
    if new is not None:
        yield f"imported {counted(new, 'memory')}, {known:,} known, {removed:,} left out as removed"
    yield from map(alarm_line, told["alarms"])
    verdicts = ", ".join(f"{count} {name}" for name, count in sorted(told["verdicts"].items()))
    if told["events"] is not None:
        audited = f"{counted(told['events'], 'event')}, {counted(told['tenants'], 'tenant')} audited"
        yield f"{audited}: {verdicts}" if verdicts else audited
    if told["without_memories"]:
        yield f"{counted(told['without_memories'], 'event')} of tenants without memories left out"
    if told["removed_count"]:
        yield f"removed {counted(told['removed_count'], 'memory')} within the policy"
        yield from (f"  {as_line(tenant)}/{as_line(name)}" for tenant, name in told["removed"])
    if told["unsettled"]:
        yield f"{counted(told['unsettled'], 'event')} may still do harm by memory"
    if told["beyond_budget"]:
        yield f"beyond the budget of replays: {', '.join(map(as_line, told['beyond_budget']))}"
    yield from (f"waits for a person: {line}" for line in told["waits"])
    if told["next"]:
        yield f"look at {told['report']}, then: {told['next']}"
    elif told["report"]:
        yield f"report: {told['report']}"
    if told["failed"]:
        yield f"FAILED at {told['failed']['step']}: {told['failed']['error']}; the line is in the job's log"


def notify(told: Mapping[str, Any], store: str, settings: Notify) -> list[str]:
    """Tell everybody of a night of the store at that place; return one line for each who was not reached."""
    problems = []
    if settings.webhook is not None:
        problem = _post(told, settings.webhook, settings.timeout_s)
        if problem is not None:
            problems.append(f"the webhook was not told: {problem}")
    if settings.mail is not None:
        try:
            _write_mail(told, settings.mail)
        except AuditError as error:
            problems.append(f"no mail was written: {error}")
    if settings.metrics is not None:
        try:
            write_metrics(told, store, Path(settings.metrics))
        except AuditError as error:
            problems.append(f"no metrics were written: {error}")
    return problems


def _post(told: Mapping[str, Any], webhook: str, timeout_s: float) -> str | None:
    """Send a message; return why it was not taken, without the address, which may be a secret."""
    import httpx  # noqa: PLC0415 - most commands need none

    address = webhook
    if webhook.startswith(ENV):
        name = webhook.removeprefix(ENV)
        address = os.environ.get(name, "")
        if not address:
            return f"the variable {as_line(name)} is not set"
    try:
        check_address(address)
    except UsageError:
        return "its address is none"
    # Whoever is told twice, as after a kill, knows it by this.
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"{told['store']}-{told['night']}"}
    content, problem = json.dumps(told).encode(), None
    for _ in range(TRIES):
        try:
            with httpx.stream("POST", address, content=content, headers=headers, timeout=timeout_s) as answer:
                status = answer.status_code  # of what it says besides nothing is read
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            problem = type(error).__name__
            continue
        if answer.is_success:
            return None
        problem = f"it answered {status}"
        if not answer.is_server_error:  # the same again would be refused again
            break
    return problem


def _write_mail(told: Mapping[str, Any], mail: Mail) -> None:
    """Write a message as a file that mail servers and readers take.

    Raises:
        UsageError, IncompleteError: the folder cannot be made, or not be written to.
    """
    state = "failed" if told["failed"] else "needs a person" if told["exit_code"] else "done"
    text = EmailMessage()
    text["From"], text["To"] = mail.sender, mail.to
    text["Subject"] = f"memaudit night {told['night']}: {state}"
    text["Date"] = format_datetime(dt.datetime.now(tz=dt.UTC))
    text.set_content("\n".join([*lines_of(told), f"exit code {told['exit_code']}, on {as_line(told['host'])}", ""]))
    folder = Path(mail.folder)
    durable.ensure_folder(folder)
    durable.remove_leftovers(folder)
    durable.replace(folder / f"night-{told['night']:06}.eml", bytes(text))
