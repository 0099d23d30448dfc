"""The configuration of a nightly job, one YAML file (`memory_audit.formats.strict_yaml`).

    store: store
    keys: memaudit-keys
    runs: {folder: nights, keep: 30}
    sources:                                  # what is imported, as `memaudit import jsonl:FILE --new-only` does
      - {file: dump.jsonl, tenant: acme}
      - {system: "mem0:/var/lib/agent/qdrant", options: {history: /home/agent/.mem0/history.db}}
    events: [harm.jsonl]                      # as `memaudit audit --events` takes them
    audit: memaudit.yaml                      # the audit's own configuration
    policy: {most_entries: 5, most_share: 0.02, verdicts: [cleared], most_p: 0.02}
    notify:
      webhook: env:MEMAUDIT_WEBHOOK
      mail: {folder: outbox, to: security@acme.example, sender: memaudit@acme.example}
      metrics: metrics/memaudit.prom
    schedule: {at: "02:30", image: "registry.example/memaudit:0.1", claim: memaudit}

Paths, those in the audit's configuration too, are relative to the folder of this file. A reader MUST reject unknown
members, a member twice, other types, and a file longer than MAX_CONFIG_BYTES.
"""

from __future__ import annotations

import re
from email.errors import MessageError
from email.headerregistry import Address
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from memory_audit.config import MAX_CONFIG_BYTES, MAX_COUNT
from memory_audit.errors import UsageError
from memory_audit.events import EventVerdict  # noqa: TC001 - msgspec reads the annotations
from memory_audit.formats import strict_yaml
from memory_audit.formats.outside_file import read_at_most
from memory_audit.formats.records import convert
from memory_audit.jobs.connect.address import JSONL, parse_address

__all__ = ["ENV", "Mail", "NightConfig", "Notify", "Policy", "Runs", "Schedule", "Source", "load_night"]

ENV = "env:"
"""Before the name of a variable that holds a webhook's address: most are secrets."""

MAX_TIMEOUT_S = 120

Name = Annotated[str, Meta(pattern=r"\A[^\0\r\n]+\Z", description="a text of one line, not empty")]
Share = Annotated[float, Meta(ge=0, le=1)]


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `memaudit import` takes: a file of memories, or an agent's own system."""

    file: Name | None = None
    """Of JSON lines."""

    system: Name | None = None
    """SYSTEM:PLACE, in the place of a file."""

    options: dict[str, str] = {}
    """Of the system, as `--option` gives them."""

    tenant: Name | None = None
    """Of memories that name none."""

    principal: Name = "import"
    """Writer of memories that name none."""

    whole: bool = True
    """Whether it holds all memories of its tenants every night, so that what it lacks is counted; a system does."""

    def __post_init__(self) -> None:
        if (self.file is None) == (self.system is None):
            raise UsageError("a source has either a file or a system")
        if self.system is not None:
            if not self.whole:
                raise UsageError("a source that is a system is whole")
            if parse_address(self.system).system == JSONL:
                raise UsageError(f"a source has its file as such: {{file: {self.system.partition(':')[2]}}}")
        elif self.options:
            raise UsageError("a source that is a file has no options")


class Runs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where nights are kept."""

    folder: Name
    """Of one store alone."""

    keep: Annotated[int, Meta(ge=1, le=MAX_COUNT)] = 30
    """Nights kept whole. Of older ones stay the record, seals and attestations, which hold no memory text."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be purged without a person; by default nothing."""

    most_entries: Annotated[int, Meta(ge=0, le=MAX_COUNT)] = 0
    """Memories removed in one night, of all tenants."""

    most_share: Share = 0.0
    """Of a tenant's memories."""

    verdicts: tuple[EventVerdict, ...] = ("cleared",)
    """Those of the events that a removed memory caused."""

    most_p: Share | None = None
    """Of each removed memory, by the audit's calibration; one without a p waits. None asks for none."""

    def __post_init__(self) -> None:
        if bool(self.most_entries) != bool(self.most_share):
            raise UsageError("policy: most_entries and most_share are given together; without them nothing is purged")


class Mail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder that a mail server picks messages up from."""

    folder: Name
    to: Name
    sender: Name

    def __post_init__(self) -> None:
        for name in ("to", "sender"):
            text = getattr(self, name)
            try:
                Address(addr_spec=text)
            except (MessageError, ValueError, IndexError):
                raise UsageError(f"notify.mail.{name} is {text!r:.80}, expected an address like a@b.example") from None


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is told."""

    webhook: Name | None = None
    """Address that is sent JSON, or `env:NAME` of the variable that holds it."""

    timeout_s: Annotated[float, Meta(ge=0.1, le=MAX_TIMEOUT_S)] = 10.0
    mail: Mail | None = None
    metrics: Name | None = None
    """File for the textfile collector of Prometheus' node exporter; its name ends in .prom."""

    @property
    def run_metrics(self) -> Path | None:
        """The file beside it for what a night tells while it is at work: this one keeps what the last night told."""
        file = None if self.metrics is None else Path(self.metrics)
        return None if file is None else file.with_stem(f"{file.stem}-run")

    def __post_init__(self) -> None:
        if self.webhook is not None and not self.webhook.startswith(ENV):
            check_address(self.webhook)


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `memaudit render` writes besides the command."""

    at: str = "02:30"
    """Time of the day, UTC; of a crontab the machine's own."""

    image: Name | None = None
    """Container with this program, for Kubernetes."""

    claim: Name | None = None
    """PersistentVolumeClaim that is mounted where this file's folder lies."""

    gpus: Annotated[int, Meta(ge=0, le=64)] = 0

    def __post_init__(self) -> None:
        if re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", self.at) is None:
            raise UsageError(f'schedule.at is {self.at!r:.40}, expected a time like "02:30", in quotes')


class NightConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    store: Name
    runs: Runs
    events: Annotated[tuple[Name, ...], Meta(min_length=1)]
    """Files; one of them may be empty. Each night audits all that they hold."""

    sources: tuple[Source, ...] = ()
    keys: Name = "memaudit-keys"
    pin: Name | None = None
    """File that remembers the newest version seen; None is one in the user's state folder."""

    audit: Name | None = None
    """The audit's configuration; None is its defaults."""

    local: bool = False
    """Run in this process, without Ray."""

    missing_share: Annotated[float, Meta(ge=0.01, le=1)] = 0.5
    """Of a tenant's memories: where a dump lacks as large a share, a person is told, and nothing is purged."""

    policy: Policy = Policy()
    notify: Notify = Notify()
    schedule: Schedule = Schedule()


def load_night(path: Path) -> NightConfig:
    """Read the configuration of a nightly job.

    Raises:
        UsageError: names the file and the rule broken.
    """
    value = strict_yaml.decode(read_at_most(path, MAX_CONFIG_BYTES), max_bytes=MAX_CONFIG_BYTES, where=str(path))
    return convert(value, NightConfig, str(path))


def check_address(address: str) -> None:
    """Refuse what is no address of a webhook; it is not repeated, as it may be a secret.

    Raises:
        UsageError: it is none.
    """
    try:
        parts = urlsplit(address)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits:
        raise UsageError("notify.webhook is no address like https://host/path")
