"""Which entries of the demo's corpus are poisoned: known to the tests, and to nothing else in the project."""

from __future__ import annotations

POISONED = {
    "orchard-bikes": frozenset({"m-009", "m-015"}),
    "tidewater-net": frozenset({"m-001", "m-003", "m-020", "m-027", "m-034", "m-036"}),
}
