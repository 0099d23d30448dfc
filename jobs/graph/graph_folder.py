"""Whole graphs on disk, by tenant: what was embedded and compared, in blocks of nodes.

    RUN/graph/1f0c…/vectors-0-256-1000-CODE.parquet   embeddings of the first 256 of 1,000 nodes
    RUN/graph/1f0c…/pairs-0-100-1000-CODE.parquet     pairs of the first 100 (`memory_audit.consistency.stored_graph`)

A tenant's folder is named by the first digits of the SHA-256 of its name, a file by its code
(`memory_audit.jobs.run.run_seal`): one that is damaged, or that no start of this run wrote, is as if it were not there.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memory_audit import parquet
from memory_audit.consistency.stored_graph import PAIRS_SCHEMA, REPEATING, StoredGraph
from memory_audit.errors import UsageError
from memory_audit.jobs.run.shards import parse_vectors, read_shard, text_key, vectors_table
from memory_audit.provenance import durable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from memory_audit.consistency.tenant_graph import TenantGraph
    from memory_audit.jobs.run.run_seal import Codes

__all__ = ["Block", "GraphFolder"]

VECTORS, PAIRS = "vectors", "pairs"
_MODEL = {VECTORS: "embedder", PAIRS: "nli"}
_NAME = re.compile(r"pairs-(\d{1,12})-(\d{1,12})-(\d{1,12})-[0-9a-f]{32}\.parquet", re.ASCII)


class Block(NamedTuple):
    """Nodes of a tenant that follow on each other."""

    tenant: str
    first: int
    end: int
    """The one after the last."""

    nodes: int
    """Of the tenant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFolder:
    """The whole graphs of one run. Can be pickled."""

    path: Path
    codes: Codes
    models: Mapping[str, str]
    """Role (embedder, nli) to model id."""

    def add_vectors(self, block: Block, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Keep the embeddings of a block's texts.

        Raises:
            IncompleteError: the disk is full or refuses.
        """
        self._write(VECTORS, block, parquet.write(vectors_table(dict(zip(map(text_key, texts), vectors, strict=True)))))

    def vectors(self, block: Block, texts: Sequence[str]) -> NDArray[np.float32] | None:
        """Return the embeddings of a block's texts, shape (texts, dimensions); None where they are not known."""
        for data, where in self._read(VECTORS, block):
            found = parse_vectors(data, where)
            return np.stack([found[text_key(text)] for text in texts])
        return None

    def add_pairs(self, block: Block, pairs: pa.Table) -> None:
        """Keep the pairs that are stored with a block's nodes, of PAIRS_SCHEMA. Raises like `add_vectors`."""
        self._write(PAIRS, block, parquet.write(pairs, repeating=REPEATING))

    def pairs(self, block: Block) -> pa.Table | None:
        """Return what `add_pairs` kept; None where that is not known."""
        for data, _ in self._read(PAIRS, block):
            return parquet.read(data, PAIRS_SCHEMA, repeating=REPEATING)
        return None

    def blocks(self, tenant: str) -> list[Block]:
        """Return the blocks whose pairs are there, in order, by the names of files that were not read."""
        names = (_NAME.fullmatch(path.name) for path in self._folder(tenant).glob("pairs-*"))
        return sorted({Block(tenant, *map(int, name.groups())) for name in names if name is not None})

    def is_complete(self, tenant: str) -> bool:
        """Tell whether all blocks of a tenant are there, likewise."""
        at = nodes = 0
        for block in self.blocks(tenant):
            if block.first != at:
                return False
            at, nodes = block.end, block.nodes
        return at == nodes > 0

    def graph(self, tenant: str, graph: TenantGraph) -> StoredGraph:
        """Return the stored graph of a tenant's entries; what is wrong with it is seen as it is read."""
        return StoredGraph(graph.node_ids, graph.width, lambda: self._tables(tenant))

    def _tables(self, tenant: str) -> Iterator[pa.Table]:
        for block in self.blocks(tenant):
            table = self.pairs(block)
            if table is None:
                raise UsageError(f"{self._folder(tenant)}: a file that this run did not write; delete it and resume")
            yield table

    def _folder(self, tenant: str) -> Path:
        return self.path / hashlib.sha256(tenant.encode()).hexdigest()[:32]

    def _stem(self, kind: str, block: Block) -> str:
        return f"{kind}-{block.first}-{block.end}-{block.nodes}"

    def _code(self, kind: str, block: Block, data: bytes) -> str:
        part = f"graph/{self._folder(block.tenant).name}/{self._stem(kind, block)}"
        return self.codes.of(part, self.models[_MODEL[kind]], data)

    def _write(self, kind: str, block: Block, data: bytes) -> None:
        folder = self._folder(block.tenant)
        durable.ensure_folder(folder)
        durable.replace(folder / f"{self._stem(kind, block)}-{self._code(kind, block, data)}.parquet", data)

    def _read(self, kind: str, block: Block) -> Iterator[tuple[bytes, str]]:
        """Yield the files of a block that this run wrote: two where it was asked twice."""
        stem = self._stem(kind, block)
        for path in sorted(self._folder(block.tenant).glob(f"{stem}-*.parquet")):
            try:
                data = read_shard(path)
            except UsageError:
                continue
            if path.stem == f"{stem}-{self._code(kind, block, data)}":
                yield data, str(path)
