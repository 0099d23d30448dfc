"""What the pipeline does with one tenant, and with one block of its nodes.

A block says all that is needed to compare it, so that any process can. Which blocks a tenant has, and in which order,
follows from the store alone: Ray makes lost ones again by running what made them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from memory_audit.consistency.entailment import plan_pairs, weights
from memory_audit.consistency.neighbours import check_vectors
from memory_audit.consistency.stored_graph import PAIRS_SCHEMA, OwnedPairs
from memory_audit.consistency.tenant_graph import TenantGraph
from memory_audit.errors import AnswerError, VerificationError
from memory_audit.jobs.graph.earlier_graph import EarlierGraph
from memory_audit.jobs.graph.graph_folder import Block, Nodes
from memory_audit.jobs.run.batches import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from memory_audit.config import AuditConfig
    from memory_audit.consistency.neighbours import Propose
    from memory_audit.entry import Entry
    from memory_audit.jobs.graph.graph_folder import GraphFolder
    from memory_audit.models.protocols import Embedder, EntailmentModel
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["StoreGraphs", "compare", "whole_graph"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGraphs:
    """Which stores are to be compared, and where what is found is kept. Can be pickled."""

    snapshot: VerifiedSnapshot
    config: AuditConfig
    folder: GraphFolder
    block_nodes: int
    """Nodes of a block."""

    earlier: GraphFolder | None = None
    """Of an earlier run, with the models of this one: what it knew is not asked."""

    def blocks(self, tenant: str, embedder: Embedder, propose: Propose | None = None) -> Iterator[dict[str, Any]]:
        """Read and embed a tenant's memories, find their neighbours, and yield blocks for `compare`.

        A tenant that cannot be read or embedded has no blocks: whoever needs its graph meets the same error.
        """
        try:
            graph = whole_graph(self.snapshot.entries(tenant), self.config)
            if not graph.entries:
                return
            ids, texts = graph.node_ids, graph.texts
            earlier = None if self.earlier is None else EarlierGraph(self.earlier, tenant, ids, texts)
            vectors = self._embedded(tenant, ids, texts, embedder, earlier)
            graph.embed(vectors, np.zeros((0, 0), np.float32))
            found = graph.nearest(propose=propose)
        except (VerificationError, AnswerError):
            return
        owned, copies = OwnedPairs.of(found), graph.copies
        for first in range(0, len(ids), self.block_nodes):
            end = min(first + self.block_nodes, len(ids))
            pairs = owned.of_nodes(first, end)
            near, far = pairs.entry.tolist(), pairs.neighbour.tolist()
            yield {
                **Block(tenant, first, end, len(ids))._asdict(),
                "entries": int(copies[first:end].sum()),
                "entry": [ids[node] for node in near],
                "neighbour": [ids[node] for node in far],
                "cosine": pairs.cosine.tolist(),
                "place": pairs.place.tolist(),
                "place_back": pairs.place_back.tolist(),
                "contradiction": (np.full(len(near), np.nan) if earlier is None else earlier.weights(pairs)).tolist(),
                "text": [texts[node] for node in near],
                "other": [texts[node] for node in far],
            }

    def _embedded(
        self, tenant: str, ids: Sequence[str], texts: Sequence[str], embedder: Embedder, earlier: EarlierGraph | None
    ) -> NDArray[np.float32]:
        """Return the vectors of a tenant's nodes, shape (nodes, dimensions), past those on disk."""
        parts, first = [], 0
        for part in pieces(texts):
            block = Block(tenant, first, first + len(part), len(texts))
            nodes = self.folder.nodes(block)
            if nodes is None:
                names = ids[first : block.end]
                known = {} if earlier is None else earlier.vectors
                new = [place for place, name in enumerate(names) if name not in known]
                asked = dict(zip(new, embedder.embed([part[place] for place in new]) if new else (), strict=True))
                vectors = np.stack([asked[at] if at in asked else known[name] for at, name in enumerate(names)])
                check_vectors(vectors)
                nodes = Nodes.of(names, part, vectors)
                self.folder.add_nodes(block, nodes)
            parts.append(nodes.vectors)
            first = block.end
        return np.concatenate(parts)


def whole_graph(entries: Sequence[Entry], config: AuditConfig) -> TenantGraph:
    """Return the graph of a tenant's entries, of which nothing is known yet."""
    return TenantGraph(
        entries, neighbours=config.neighbours, all_pairs_below=config.all_pairs_below, seed=config.seed, whole=True
    )


def compare(block: dict[str, Any], folder: GraphFolder, entailment: EntailmentModel) -> dict[str, int]:
    """Ask NLI both ways about a block's pairs, and keep them; a block that is kept already is not asked again.

    Returns:
        `entries` that the block's nodes stand for, and `asked` pairs.
    """
    place = Block(*(block[name] for name in Block._fields))
    done = {"entries": block["entries"], "asked": 0}
    if folder.pairs(place) is not None:
        return done
    contradiction, pairs = (
        np.array(block["contradiction"], np.float64),
        list(zip(block["text"], block["other"], strict=True)),
    )
    # By length, so that what a model is given at once is padded little.
    new = sorted(np.flatnonzero(np.isnan(contradiction)).tolist(), key=lambda number: sum(map(len, pairs[number])))
    if new:
        try:
            contradiction[new] = weights(entailment.probabilities(plan_pairs([pairs[number] for number in new])))
        except AnswerError:  # of this tenant alone: whoever needs its graph asks again, and meets it
            return done
    columns = block | {"contradiction": contradiction}
    folder.add_pairs(place, pa.table([columns[name] for name in PAIRS_SCHEMA.names], schema=PAIRS_SCHEMA))
    return {**done, "asked": len(new)}
