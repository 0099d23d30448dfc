"""A budget of replays of a whole run: whom it serves, in which order, and whom it leaves out.

The budget is handed out in turns. In the first, each event may take its gate: a replay with the whole store, and one
with no memory. In the second each may take TYPICAL_REPLAYS, and in each further one twice as many as before. A turn
serves the tenants with most harmful events first, and then by name; one that the rest of the budget has no room for is
passed over. What a tenant may take has room for its final checks, too. What it did not take is there for the next turn.

A search that is given more replays begins anew from the same answers, and goes on where it was cut. So a result depends
on the request, the answers and the budget alone: not on where it was made, nor on how often it was interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.attribution.search.settings import GATE_REPLAYS, TYPICAL_REPLAYS
from memory_audit.jobs.run.audit_memory import most_checks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memory_audit.request import TenantEvents
    from memory_audit.result import TenantSummary

__all__ = ["Turns", "by_service"]


def by_service(by_tenant: Mapping[str, TenantEvents]) -> list[str]:
    """Return the tenants in the order in which a budget serves them."""
    return sorted(by_tenant, key=lambda tenant: (-len(by_tenant[tenant].harmful), tenant))


class Turns:
    """Hands out a budget.

    Args:
        budget: Most replays of all tenants, each sample one.
        by_tenant: The tenants, and what is asked about them.
        most: Of each tenant's search, whatever the budget; None is no bound.
    """

    def __init__(self, budget: int, by_tenant: Mapping[str, TenantEvents], most: int | None = None) -> None:
        self._budget, self._by_tenant, self._most = budget, by_tenant, most
        self._each = 0
        """Replays of each event's search in this turn."""

        self._spent = dict.fromkeys(by_tenant, 0)
        self.limits: dict[str, int] = {}
        """Tenant to the most replays of its audit; of those that were served."""

        self.left_out = dict.fromkeys(by_service(by_tenant))
        """Tenants that were not served, or whose search the budget ended, in the order of service."""

    def next(self) -> frozenset[str]:
        """Begin a turn, and return the tenants that may take more; none where the budget is spent or enough."""
        while self._each < self._budget:
            self._each = max(2 * self._each, TYPICAL_REPLAYS) if self._each else GATE_REPLAYS
            room, before = self._budget - sum(self._spent.values()), dict(self.limits)
            for tenant in self.left_out:
                events, spent = self._by_tenant[tenant], self._spent[tenant]
                checks, harmful = most_checks(events), len(events.harmful)
                limit = min(checks + self._each * harmful, spent + room)
                if limit > max(self.limits.get(tenant, 0), checks + GATE_REPLAYS * harmful - 1):
                    self.limits[tenant] = limit
                    room -= limit - spent
            if changed := {tenant for tenant, limit in self.limits.items() if before.get(tenant) != limit}:
                return frozenset(changed)
        return frozenset()

    def observe(self, tenants: Iterable[TenantSummary], failed: Iterable[str]) -> None:
        """Take in what tenants came to that were served in this turn; of one that failed all counts as spent."""
        for tenant in tenants:
            self._spent[tenant.tenant] = tenant.cost.get("replays", 0)
            given = self.limits[tenant.tenant] - most_checks(self._by_tenant[tenant.tenant])
            if not tenant.beyond_budget or (self._most is not None and given >= self._most):
                self.left_out.pop(tenant.tenant, None)
        for name in failed:
            self._spent[name] = self.limits[name]
            self.left_out.pop(name, None)
