"""Where every leaf of a bucket's logs went: rules 3, 6 and 7 of `memory_audit.snapshot.log`, for all its logs at once.

A row's leaf is named by one number: its log's first leaf in the bucket, plus its index in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_audit.errors import VerificationError
from memory_audit.snapshot.columns.rows import tenants_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_audit.snapshot.checkpoints import LogRef
    from memory_audit.snapshot.columns.tables import SignedTombstone

__all__ = ["ACCOUNT_COLUMNS", "check_accounting"]

ACCOUNT_COLUMNS = ("tenant", "leaf_index", "entry_id", "parents")
"""The columns of live entries that the accounting needs."""


def check_accounting(
    refs: Sequence[LogRef], live: pa.Table, tombstones: Mapping[str, Sequence[SignedTombstone]]
) -> None:
    """Apply rules 3, 6 and 7.

    Args:
        refs: The logs, each of which has a checkpoint that verified.
        live: ACCOUNT_COLUMNS of all their live entries.
        tombstones: By tenant, each already checked by itself.

    Raises:
        VerificationError: names the tenant, the leaf and the rule broken.
    """
    ordinals = {ref.tenant: number for number, ref in enumerate(refs)}
    names, places = tenants_of(live.column("tenant"))
    strangers = (set(names) | tombstones.keys()) - ordinals.keys()
    if strangers:
        raise VerificationError(f"rows of tenant {min(strangers)!r:.80}, which has no log in this bucket")
    sizes = np.array([ref.size for ref in refs], np.int64)
    firsts = np.concatenate(([0], np.cumsum(sizes)))
    stones = [(ordinals[tenant], item) for tenant, items in tombstones.items() for item in items]
    named = pa.array([item.tombstone.entry_id for _, item in stones], pa.string())
    logs = np.concatenate((
        np.array([ordinals[name] for name in names], np.int64)[places],
        np.array([log for log, _ in stones], np.int64),
    ))  # fmt: skip
    indices = np.concatenate((
        live.column("leaf_index").to_numpy().astype(np.int64),
        np.array([item.tombstone.removed_index for _, item in stones], np.int64),
    ))  # fmt: skip
    ids = pa.chunked_array([*live.column("entry_id").chunks, named], pa.string())
    keys = _keys(logs, ids)
    _check_ids(refs, logs, indices, keys)
    if np.any(indices >= sizes[logs]):
        row = int(np.argmax(indices >= sizes[logs]))
        raise VerificationError(f"{_where(refs, logs[row])}: leaf {indices[row]} is beyond the log")
    graves = np.array([firsts[log] + item.index for log, item in stones], np.int64)
    _check_leaves(refs, firsts, firsts[logs] + indices, graves)
    _check_parents(refs, live, logs, indices, keys)


def _keys(logs: NDArray[np.int64], ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Entry ids made unique over logs: the log's number in 4 bytes, then the id."""
    prefix = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(4), len(logs), [None, pa.py_buffer(logs.astype(">u4").tobytes())]
    )
    large = pa.large_binary()
    return pc.binary_join_element_wise(
        pa.chunked_array([prefix.cast(pa.binary()).cast(large)]),
        ids.cast(pa.large_string()).cast(large),
        pa.scalar(b"", large),
    )


def _check_ids(
    refs: Sequence[LogRef], logs: NDArray[np.int64], indices: NDArray[np.int64], keys: pa.ChunkedArray
) -> None:
    if pc.count_distinct(keys).as_py() == len(keys):
        return
    codes = keys.combine_chunks().dictionary_encode().indices.to_numpy()
    first_rows = np.unique(codes, return_index=True)[1][codes]
    again = int(np.argmax(first_rows != np.arange(len(codes))))
    entry_id = keys[again].as_py()[4:].decode()
    raise VerificationError(
        f"{_where(refs, logs[again])}: entry id {entry_id!r:.80} at leaf {indices[again]} "
        f"and at {indices[first_rows[again]]}"
    )


def _check_leaves(
    refs: Sequence[LogRef], firsts: NDArray[np.int64], entries: NDArray[np.int64], graves: NDArray[np.int64]
) -> None:
    uses = np.bincount(np.concatenate((entries, graves)), minlength=int(firsts[-1]))
    wrong = int(np.argmax(uses != 1)) if len(uses) else 0
    if not len(uses) or uses[wrong] == 1:
        return
    log = int(np.searchsorted(firsts, wrong, side="right")) - 1
    if uses[wrong] == 0:
        problem = "neither live nor removed by a tombstone (suppressed)"
    elif wrong in graves:
        problem = "a tombstone and an entry"
    else:
        problem = "removed and live, or live twice"
    raise VerificationError(f"{_where(refs, log)}: leaf {wrong - firsts[log]} is {problem}")


def _check_parents(
    refs: Sequence[LogRef],
    live: pa.Table,
    logs: NDArray[np.int64],
    indices: NDArray[np.int64],
    keys: pa.ChunkedArray,
) -> None:
    columns = live.column("parents").chunks
    counts = np.concatenate([np.zeros(0, np.int64), *(np.diff(chunk.offsets.to_numpy()) for chunk in columns)])
    if not counts.any():
        return
    children = np.repeat(np.arange(len(counts)), counts)
    parents = pa.chunked_array([chunk.flatten().field("entry_id") for chunk in columns], pa.string())
    found = pc.index_in(_keys(logs[children], parents), value_set=keys.combine_chunks())
    rows = pc.fill_null(found, -1).to_numpy()
    wrong = (rows < 0) | (indices[rows] >= indices[children])
    if not wrong.any():
        return
    edge = int(np.argmax(wrong))
    child = int(children[edge])
    entry_id, parent = live.column("entry_id")[child].as_py(), parents[edge].as_py()
    raise VerificationError(
        f"{_where(refs, logs[child])}: entry {entry_id!r:.80} names parent {parent!r:.80}, which is no earlier entry"
    )


def _where(refs: Sequence[LogRef], log: int | np.int64) -> str:
    return f"tenant {refs[int(log)].tenant!r:.80}"
