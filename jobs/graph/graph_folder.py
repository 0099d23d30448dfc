"""Whole graphs on disk, by tenant: what was embedded and compared, in blocks of nodes.

    RUN/graph/1f0c…/nodes-0-256-1000-CODE.parquet   the first 256 of 1,000 nodes: entry, text's digest, embedding
    RUN/graph/1f0c…/pairs-0-100-1000-CODE.parquet   pairs of the first 100 (`memory_audit.consistency.stored_graph`)

A tenant's folder is named by the first digits of the SHA-256 of its name, a file by its code
(`memory_audit.jobs.run.run_seal`): one that is damaged, or that no start of this run wrote, is as if it were not there.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from memory_audit import parquet
from memory_audit.consistency.stored_graph import PAIRS_SCHEMA, REPEATING, StoredGraph
from memory_audit.errors import UsageError
from memory_audit.jobs.run.shards import read_shard, text_key
from memory_audit.provenance import durable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from memory_audit.consistency.tenant_graph import TenantGraph
    from memory_audit.jobs.run.run_seal import Codes

__all__ = ["NODES", "Block", "GraphFolder", "Nodes"]

NODES, PAIRS = "nodes", "pairs"
_MODEL = {NODES: "embedder", PAIRS: "nli"}
_NAME = re.compile(r"(nodes|pairs)-(\d{1,12})-(\d{1,12})-(\d{1,12})-[0-9a-f]{32}\.parquet", re.ASCII)


NODES_SCHEMA = pa.schema([("entry", pa.string()), ("text", pa.string()), ("vector", pa.binary())])
_FLOAT = np.dtype("<f4")


class Block(NamedTuple):
    """Nodes of a tenant that follow on each other."""

    tenant: str
    first: int
    end: int
    """The one after the last."""

    nodes: int
    """Of the tenant."""


class Nodes(NamedTuple):
    """What is known of the nodes of a block before any is compared."""

    entries: list[str]
    """The first entry of each."""

    texts: list[str]
    """Digest of each text (`memory_audit.jobs.run.shards.text_key`)."""

    vectors: NDArray[np.float32]
    """Shape (nodes, dimensions), unit rows."""

    @classmethod
    def of(cls, entries: Sequence[str], texts: Sequence[str], vectors: NDArray[np.float32]) -> Nodes:
        """Take entries with their texts."""
        return cls(list(entries), [text_key(text) for text in texts], vectors)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFolder:
    """The whole graphs of one run. Can be pickled."""

    path: Path
    codes: Codes
    models: Mapping[str, str]
    """Role (embedder, nli) to model id."""

    def add_nodes(self, block: Block, nodes: Nodes) -> None:
        """Keep the nodes of a block.

        Raises:
            IncompleteError: the disk is full or refuses.
        """
        vectors = [vector.astype(_FLOAT).tobytes() for vector in nodes.vectors]
        table = pa.table([nodes.entries, nodes.texts, vectors], schema=NODES_SCHEMA)
        self._write(NODES, block, parquet.write(table))

    def nodes(self, block: Block) -> Nodes | None:
        """Return what `add_nodes` kept; None where that is not known."""
        for data in self._read(NODES, block):
            entries, texts, vectors = (column.to_pylist() for column in parquet.read(data, NODES_SCHEMA).columns)
            found = np.frombuffer(b"".join(vectors), _FLOAT).astype(np.float32)
            return Nodes(entries, texts, found.reshape(len(vectors), -1))
        return None

    def add_pairs(self, block: Block, pairs: pa.Table) -> None:
        """Keep the pairs that are stored with a block's nodes, of PAIRS_SCHEMA. Raises like `add_nodes`."""
        self._write(PAIRS, block, parquet.write(pairs, repeating=REPEATING))

    def pairs(self, block: Block) -> pa.Table | None:
        """Return what `add_pairs` kept; None where that is not known."""
        for data in self._read(PAIRS, block):
            return parquet.read(data, PAIRS_SCHEMA, repeating=REPEATING)
        return None

    def blocks(self, tenant: str, kind: str = PAIRS) -> list[Block]:
        """Return the blocks that are there, in order, by the names of files that were not read."""
        names = (_NAME.fullmatch(path.name) for path in self._folder(tenant).glob(f"{kind}-*"))
        return sorted({Block(tenant, *map(int, name.groups()[1:])) for name in names if name is not None})

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

    def _read(self, kind: str, block: Block) -> Iterator[bytes]:
        """Yield the files of a block that this run wrote: two where it was asked twice."""
        stem = self._stem(kind, block)
        for path in sorted(self._folder(block.tenant).glob(f"{stem}-*.parquet")):
            try:
                data = read_shard(path)
            except UsageError:
                continue
            if path.stem == f"{stem}-{self._code(kind, block, data)}":
                yield data
