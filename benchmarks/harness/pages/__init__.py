"""Tables of the documentation's results pages and of the README, from the committed results. Runs nothing.

Each part is a function without arguments that returns Markdown; `docs.generate` puts it into its page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness.pages import attribution, gate, guard, listing, overview, systems

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PARTS"]

PARTS: dict[str, Callable[[], str]] = {
    **overview.PARTS, **attribution.PARTS, **guard.PARTS, **gate.PARTS, **systems.PARTS, **listing.PARTS,
}  # fmt: skip
