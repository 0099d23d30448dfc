"""A source of memories that is not as it was: an alarm with a number, and no deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["MISSING_SHARE", "alarm_line", "lacking"]

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


def alarm_line(alarm: Mapping[str, object]) -> str:
    """Say an alarm to people: of `lacking`, or of `memory_audit.jobs.connect.import_source`."""
    told = {name: as_line(str(value), 200) for name, value in alarm.items()}
    if "tenant" in told:
        return f"ALARM {told['tenant']}: the dump lacks {alarm['missing']:,} of {alarm['of']:,} memories"
    if "schema" in told:
        return f"ALARM {told['source']}: the schema is {told['schema']}, and was {told['before']}"
    return f"ALARM {told['source']}: {told['unfit']} memories break a rule of the store, and were left out"
