"""S, the removed set, as one record: which memories go, which may go, which are only suspected, and why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

__all__ = ["RemovalSet"]


@dataclass(frozen=True, kw_only=True)
class RemovalSet:
    """Entry id to the machine-written reason, by what the entry is there for. No id is in two of them."""

    attributed: dict[str, str] = field(default_factory=dict)
    """By its own evidence, or its rank."""

    derived: dict[str, str] = field(default_factory=dict)
    """Since it derives from others that go."""

    quarantined: dict[str, str] = field(default_factory=dict)
    """It derives from others that go, and is proposed for quarantine: a plain purge leaves it."""

    suspected: dict[str, str] = field(default_factory=dict)
    """Some evidence speaks against it, and less than attributes a harm: it stays."""

    @cached_property
    def removed(self) -> dict[str, str]:
        """What goes: entry id to the reason."""
        return {**self.attributed, **self.derived}

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of what goes."""
        return frozenset(self.removed)

    def with_quarantined(self) -> RemovalSet:
        """Return the set where what is proposed for quarantine goes, too."""
        return replace(self, derived={**self.derived, **self.quarantined}, quarantined={})
