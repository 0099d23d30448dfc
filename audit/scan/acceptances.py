"""Findings that people accept: the file `.memauditignore.yaml`, strict YAML (`memory_audit.formats.strict_yaml`).

    - fingerprint: 3b0c5f1d…                # 64 hexadecimal digits, as a scan prints them
      reason: a note about chat templates
      by: ana
      until: "2027-03-31"                   # the last day, in UTC; without one for ever
    - kind: near-duplicate                  # all findings of a kind in a tenant
      tenant: acme
      entry: m-17                           # or only those whose first memory this is, whatever it says by then
      reason: the greeting is meant to be there often
      by: ben

A reader MUST reject other members, a member twice, a file of more than MAX_FILE_BYTES, and two acceptances of the same.
An acceptance that has ended counts no more. It is told then, as is one that accepts nothing that is there.
"""

from __future__ import annotations

import datetime as dt
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from memory_audit.errors import UsageError
from memory_audit.formats import strict_yaml
from memory_audit.formats.members import Name  # noqa: TC001 - msgspec reads the annotations
from memory_audit.formats.records import convert
from memory_audit.scan.result import Acceptance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memory_audit.scan.finding import Finding
    from memory_audit.scan.result import KnownFinding

__all__ = ["ACCEPTANCES_FILE", "MAX_FILE_BYTES", "Acceptances", "Accepted", "end_of", "read_acceptances"]

ACCEPTANCES_FILE = ".memauditignore.yaml"
"""Its usual name, beside what runs the scan: it belongs under version control."""

MAX_FILE_BYTES = 4 << 20
"""Ten thousand acceptances with long reasons."""

DAY_MS = 86_400_000

_Hex = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z", description="a fingerprint of 64 hexadecimal digits")]


class Accepted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One acceptance, as the file has it."""

    fingerprint: _Hex | None = None
    kind: Name | None = None
    tenant: Name | None = None
    entry: Name | None = None
    reason: Name
    by: Name
    until: Name | None = None

    def __post_init__(self) -> None:
        of_kind = (self.kind, self.tenant, self.entry)
        if (self.fingerprint is None) != (self.kind is not None and self.tenant is not None) or (
            self.fingerprint is not None and any(of_kind)
        ):
            raise UsageError("what is accepted is either a fingerprint, or a kind and a tenant")
        if self.until is not None:
            end_of(self.until)

    @property
    def of(self) -> tuple[str | None, ...]:
        """What it accepts."""
        return self.fingerprint, self.kind, self.tenant, self.entry

    @property
    def until_ms(self) -> int | None:
        """When it has ended, Unix milliseconds; None where it never does."""
        return None if self.until is None else end_of(self.until)

    @property
    def named(self) -> str:
        """What it accepts, in words."""
        if self.fingerprint is not None:
            return f"fingerprint {self.fingerprint[:16]}"
        return f"{self.kind} of tenant {self.tenant}" + ("" if self.entry is None else f", memory {self.entry}")


class Acceptances(msgspec.Struct, frozen=True, dict=True):
    """All of a file."""

    items: tuple[Accepted, ...] = ()

    @cached_property
    def _by_what(self) -> dict[tuple[str | None, ...], Accepted]:
        return {item.of: item for item in self.items}

    def of(self, finding: Finding, now_ms: int) -> Acceptance | None:
        """Return what accepts a finding now, or None."""
        for item in self._matching(finding):
            if item.until_ms is None or now_ms < item.until_ms:
                return Acceptance(reason=item.reason, by=item.by, until_ms=item.until_ms)
        return None

    def notes(self, findings: Iterable[KnownFinding], now_ms: int) -> list[str]:
        """Say of each acceptance that has ended, or accepts nothing, so in a line; names in it are as they were given.

        Args:
            findings: Of all tenants, after `memory_audit.scan.life.track`.
            now_ms: The scan's clock, Unix milliseconds.
        """
        used = {
            item.of for known in findings if known.state != "fixed" for item in self._matching(known.finding)
        }  # fmt: skip
        notes = []
        for item in self.items:
            if item.until_ms is not None and now_ms >= item.until_ms:
                notes.append(f"the acceptance of {item.named} by {item.by} ended on {item.until}: it counts no more")
            elif item.of not in used:
                notes.append(f"the acceptance of {item.named} by {item.by} accepts nothing that was found")
        return notes

    def _matching(self, finding: Finding) -> Iterator[Accepted]:
        known = self._by_what
        if not known:
            return
        first = finding.entry_ids[0] if finding.entry_ids else None
        for what in (
            (finding.fingerprint, None, None, None),
            (None, finding.kind, finding.tenant, first),
            (None, finding.kind, finding.tenant, None),
        ):
            if (item := known.get(what)) is not None:
                yield item


def read_acceptances(data: bytes, where: str) -> Acceptances:
    """Read a file of acceptances; an empty one has none.

    Raises:
        UsageError: names `where` and the rule broken.
    """
    items = convert(
        strict_yaml.decode(data, max_bytes=MAX_FILE_BYTES, where=where) or [], tuple[Accepted, ...], where
    )  # fmt: skip
    seen: set[tuple[str | None, ...]] = set()
    for item in items:
        if item.of in seen:
            raise UsageError(f"{where}: {item.named:.300} is accepted twice")
        seen.add(item.of)
    return Acceptances(items)


def end_of(day: str) -> int:
    """Return when a day like `2027-03-31` ends in UTC, Unix milliseconds.

    Raises:
        UsageError: no such day.
    """
    try:
        start = dt.datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=dt.UTC)
    except ValueError:
        raise UsageError(f"until is {day!r:.40}, expected a day like 2027-03-31") from None
    return int(start.timestamp()) * 1_000 + DAY_MS
