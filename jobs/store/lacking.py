"""A dump that suddenly lacks much of a tenant: an alarm, and no deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["MISSING_SHARE", "lacking"]

MISSING_SHARE = 0.5
"""Of what a tenant had: more than a person forgets in a day, less than a broken dump loses."""


def lacking(
    had: Mapping[str, Collection[str]], dumped: Mapping[str, Collection[str]], share: float
) -> list[dict[str, object]]:
    """Say of which tenants a dump lacks so much that something is wrong with the dump.

    Args:
        had: Tenant to the ids that the dump had before; a tenant without any is passed over.
        dumped: Tenant to the ids that it has now.
        share: Of what a tenant had, from which on it is an alarm, 0 … 1.

    Returns:
        By tenant: `tenant`, how many are `missing`, and `of` how many.
    """
    alarms: list[dict[str, object]] = []
    for tenant, ids in sorted(had.items()):
        missing = len(set(ids).difference(dumped.get(tenant, ())))
        if ids and missing >= share * len(ids):
            alarms.append({"tenant": tenant, "missing": missing, "of": len(ids)})
    return alarms
