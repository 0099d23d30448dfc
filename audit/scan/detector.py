"""What a detector is: it reads one tenant's memories and yields findings. Nothing is removed by it.

A detector is one file in `detectors`. Users add their own by an entry point of the group `memaudit.detectors`, which
names a function without arguments that returns a `Detector`.

    class Shouting:
        name = "shouting"
        kinds = {"shouting": Kind(title="A memory in capital letters", severity="low", advice="Read it.")}
        needs = frozenset()
        alone = True

        def scan(self, memory, entries):
            for entry in entries:
                if entry.response.isupper():
                    yield Finding(…)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from memory_audit.scan.finding import Severity  # noqa: TC001 - the reader of `Kind` looks up field types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from memory_audit.consistency.tenant_graph import TenantGraph
    from memory_audit.entry import Entry
    from memory_audit.guard.blocks.block_list import BlockList
    from memory_audit.guard.guard import WriteGuard
    from memory_audit.lineage.dag import Lineage
    from memory_audit.scan.finding import Finding

__all__ = ["Detector", "Kind", "Need", "ScannedMemory"]

Need = Literal["vectors", "graph", "guard", "lineage", "outside"]
"""What a detector reads besides texts: embeddings, the whole graph with NLI, the write guard, derivation edges; or what
lies outside of the memory, the time or other tenants, so that it is asked of a memory that did not change, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of finding: a rule of SARIF."""

    title: str
    """Half a sentence: what is there."""

    advice: str
    """What to do about it, in one sentence or two."""

    severity: Severity
    """Where nothing of the memory makes it worse or better."""

    taxonomy: tuple[str, ...] = ()
    """Ids of OWASP Agentic (`ASI06`) and MITRE ATLAS (`AML.T0080`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedMemory:
    """One tenant's memory, and what was computed of it because a detector needs it."""

    tenant: str
    entries: Sequence[Entry]
    """Live ones, in log order; all texts are untrusted."""

    now_ms: int
    """The scan's clock, Unix milliseconds."""

    graph: TenantGraph | None = None
    """Embedded where `vectors` is needed, whole and compared where `graph` is; else None."""

    guard: WriteGuard | None = None
    """Judges a text as if it were written now."""

    removed: BlockList | None = None
    """What must not come back, told by ids and words without a model; None where no store says so."""

    lineage: Lineage | None = None
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    """Content digest to the number of other tenants that hold the same content. Which ones is not told."""


class Detector(Protocol):
    """See the module."""

    @property
    def name(self) -> str:
        """Its name in configuration and findings: that of its file, with hyphens."""
        ...

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Kinds of finding by their stable ids, in small letters with hyphens."""
        ...

    @property
    def needs(self) -> AbstractSet[Need]:
        """What it reads besides texts, which is what it costs."""
        ...

    @property
    def alone(self) -> bool:
        """Whether findings of a memory depend on that memory alone, so that it may be asked of some of them."""
        ...

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterable[Finding]:
        """Look at memories: all of them, or perhaps some where it is `alone`. A scan asks of all."""
        ...
