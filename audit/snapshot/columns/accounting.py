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
from memory_audit.snapshot.quarantine import in_force

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_audit.provenance.leaf import Tombstone
    from memory_audit.snapshot.checkpoints import LogRef
    from memory_audit.snapshot.columns.tables import SignedTombstone

__all__ = ["ACCOUNT_COLUMNS", "check_accounting"]

ACCOUNT_COLUMNS = ("tenant", "leaf_index", "entry_id", "parents")
"""The columns of entries that the accounting needs."""


def check_accounting(
    refs: Sequence[LogRef], live: pa.Table, quarantined: pa.Table, tombstones: Mapping[str, Sequence[SignedTombstone]]
) -> None:
    """Apply rules 3, 6 and 7, and that what is in quarantine is what tombstones in force say.

    Args:
        refs: The logs, each of which has a checkpoint that verified.
        live: ACCOUNT_COLUMNS of all their live entries.
        quarantined: Likewise, of all their entries in quarantine.
        tombstones: By tenant, each already checked by itself.

    Raises:
        VerificationError: names the tenant, the leaf and the rule broken.
    """
    ordinals = {ref.tenant: number for number, ref in enumerate(refs)}
    bodies = [item.tombstone for items in tombstones.values() for item in in_force(items)]
    _check_quarantine(quarantined, bodies)
    rows = pa.concat_tables([live.select(ACCOUNT_COLUMNS), quarantined.select(ACCOUNT_COLUMNS)])
    names, places = tenants_of(rows.column("tenant"))
    strangers = (set(names) | tombstones.keys()) - ordinals.keys()
    if strangers:
        raise VerificationError(f"rows of tenant {min(strangers)!r:.80}, which has no log in this bucket")
    sizes = np.array([ref.size for ref in refs], np.int64)
    firsts = np.concatenate(([0], np.cumsum(sizes)))
    removed = [body for body in bodies if not body.quarantines]
    named = pa.array([body.entry_id for body in removed], pa.string())
    logs = np.concatenate((
        np.array([ordinals[name] for name in names], np.int64)[places],
        np.array([ordinals[body.tenant] for body in removed], np.int64),
    ))  # fmt: skip
    indices = np.concatenate((
        rows.column("leaf_index").to_numpy().astype(np.int64),
        np.array([body.removed_index for body in removed], np.int64),
    ))  # fmt: skip
    ids = pa.chunked_array([*rows.column("entry_id").chunks, named], pa.string())
    keys = _keys(logs, ids)
    _check_ids(refs, logs, indices, keys)
    if np.any(indices >= sizes[logs]):
        row = int(np.argmax(indices >= sizes[logs]))
        raise VerificationError(f"{_where(refs, logs[row])}: leaf {indices[row]} is beyond the log")
    graves = np.array(
        [firsts[ordinals[tenant]] + item.index for tenant, items in tombstones.items() for item in items], np.int64
    )
    _check_leaves(refs, firsts, firsts[logs] + indices, graves)
    _check_parents(refs, rows, logs, indices, keys)


def _check_quarantine(quarantined: pa.Table, bodies: Sequence[Tombstone]) -> None:
    columns = (quarantined.column(name).to_pylist() for name in ("tenant", "leaf_index", "entry_id"))
    there = set(zip(*columns, strict=True))
    stated = {(body.tenant, body.removed_index, body.entry_id) for body in bodies if body.quarantines}
    if there != stated:
        tenant, index, entry_id = odd = min(there ^ stated)
        problem = "without a tombstone" if odd in there else "by its tombstone, and in no file of it (suppressed)"
        raise VerificationError(
            f"tenant {tenant!r:.80}, leaf {index}: entry {entry_id!r:.80} is in quarantine {problem}"
        )


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
        problem = "live, removed or in quarantine more than once"
    raise VerificationError(f"{_where(refs, log)}: leaf {wrong - firsts[log]} is {problem}")


def _check_parents(
    refs: Sequence[LogRef],
    rows: pa.Table,
    logs: NDArray[np.int64],
    indices: NDArray[np.int64],
    keys: pa.ChunkedArray,
) -> None:
    columns = rows.column("parents").chunks
    counts = np.concatenate([np.zeros(0, np.int64), *(np.diff(chunk.offsets.to_numpy()) for chunk in columns)])
    if not counts.any():
        return
    children = np.repeat(np.arange(len(counts)), counts)
    parents = pa.chunked_array([chunk.flatten().field("entry_id") for chunk in columns], pa.string())
    found = pc.index_in(_keys(logs[children], parents), value_set=keys.combine_chunks())
    places = pc.fill_null(found, -1).to_numpy()
    wrong = (places < 0) | (indices[places] >= indices[children])
    if not wrong.any():
        return
    edge = int(np.argmax(wrong))
    child = int(children[edge])
    entry_id, parent = rows.column("entry_id")[child].as_py(), parents[edge].as_py()
    raise VerificationError(
        f"{_where(refs, logs[child])}: entry {entry_id!r:.80} names parent {parent!r:.80}, which is no earlier entry"
    )


def _where(refs: Sequence[LogRef], log: int | np.int64) -> str:
    return f"tenant {refs[int(log)].tenant!r:.80}"
