"""The findings of tenants as Parquet tables.

    findings/events6d3f09c2a4e81b57.parquet    findings/scores6d3f09c2a4e81b57.parquet    …

A part holds some tenants, and is named by them: `findings/6d3f09c2a4e81b57`. Each kind is one file of a part, absent
where none of its tenants has any. In it each tenant has one row group, in the order of `result.json`, so that one is
read without the others. Columns are the fields of the kind's record in `memory_audit.result`, after a column `tenant`;
a score also says by `removed` whether the removal takes its entry. A field that may be None is null then.

A reader MUST refuse a file of another digest than `result.json` states, of other columns, or beyond the bounds of
`memory_audit.parquet`; a row of another tenant or type; numbers that are not finite or beyond MAX_NUMBER; a removal of
what has no score, or other descendants than the lineage, a `removed` that differs from it, a descendant without a path,
a lineage that lacks an entry to remove; and findings that come to another tally than the summary. Nothing here reads or
writes files.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from memory_audit import parquet
from memory_audit.errors import UsageError
from memory_audit.formats.records import convert
from memory_audit.report.summary import tally
from memory_audit.result import (
    DescendantFinding,
    EntryScore,
    EntryText,
    EntryTrust,
    EventFinding,
    GraphEdge,
    ProbeFinding,
    Single,
    TenantLineage,
    TenantResult,
    TenantSummary,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "FOLDER", "KINDS", "MAX_NUMBER", "file_name", "open_findings", "part_name", "read_findings", "summary_of",
    "write_findings",
]  # fmt: skip

FOLDER = "findings"

KINDS: dict[str, type] = {
    "events": EventFinding,
    "probes": ProbeFinding,
    "scores": EntryScore,
    "edges": GraphEdge,
    "texts": EntryText,
    "lineage": TenantLineage,
    "trust": EntryTrust,
    "descendants": DescendantFinding,
}
"""Kind of finding to its record. A `lineage` has one row, without the entries and descendants, which have their own."""

MAX_NUMBER = 10**15
"""Of either sign: scores are sums of nats, and far beyond this drawings leave a float."""

_APART = ("entries", "descendants")
"""Fields of a lineage that are kinds of their own."""

_REPEATING = ("tenant", "a", "b")
_PLAIN = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}


def part_name(tenants: Iterable[str]) -> str:
    """Name the part of these tenants."""
    return f"{FOLDER}/{hashlib.sha256(repr(list(tenants)).encode(errors='surrogatepass')).hexdigest()[:16]}"


def file_name(kind: str, part: str) -> str:
    """Name the file of one kind and part, within a run."""
    folder, _, name = part.rpartition("/")
    return f"{folder}/{kind}{name}.parquet"


def write_findings(part: str, tenants: Sequence[TenantResult]) -> dict[str, bytes]:
    """Return the files of one part, by name; those that would be empty are left out.

    Args:
        part: Its name.
        tenants: In the order in which the run lists them.

    Raises:
        UsageError: a text is no Unicode, a number is not finite, or there is more than one part can hold.
    """
    found = {}
    for kind in KINDS:
        rows = [_rows(kind, tenant) for tenant in tenants]
        if not any(rows):
            continue
        try:
            table = pa.Table.from_pylist([row for of in rows for row in of], schema=_schema(kind))
            _check_numbers(table)
        except ValueError as error:  # also of Unicode and of Arrow
            raise UsageError(f"{file_name(kind, part)}: cannot be written ({str(error)[:120]})") from None
        found[file_name(kind, part)] = parquet.write(
            table, repeating=_names(kind), rows_per_group=[len(of) for of in rows]
        )
    return found


def summary_of(tenant: TenantResult, part: str) -> TenantSummary:
    """Return what the run says of a tenant whose findings lie in a part."""
    return TenantSummary(
        tenant=tenant.tenant, entries=tenant.entries, tally=tally(tenant), removal=tenant.removal,
        not_examined=tenant.not_examined, beyond_budget=tenant.beyond_budget, cost=tenant.cost,
        usual_cas=tenant.usual_cas, part=part,
    )  # fmt: skip


def open_findings(data: bytes, kind: str, digest: str, where: str) -> parquet.RowGroups:
    """Open one file.

    Args:
        data: The file.
        kind: Of KINDS.
        digest: What the run says of it (`AuditResult.files`).
        where: Names it, for messages.

    Raises:
        UsageError: another file, or not as `write_findings` makes them.
    """
    if hashlib.sha256(data).hexdigest() != digest:
        raise UsageError(f"{where}: not the one that result.json states: the same audit, started again, writes it anew")
    try:
        return parquet.RowGroups(data, _schema(kind), repeating=_names(kind))
    except parquet.ParquetError as error:
        raise UsageError(f"{where}: not readable ({error})") from None


def read_findings(
    files: Mapping[str, parquet.RowGroups], part: Sequence[TenantSummary], place: int, where: str
) -> TenantResult:
    """Return one tenant's findings.

    Args:
        files: Of its part, by kind.
        part: All tenants of the part, in order.
        place: Which of them is wanted.
        where: Names the run, for messages.

    Raises:
        UsageError: a rule of the module's docstring is broken.
    """
    summary = part[place]
    name = f"{where}: tenant {summary.tenant!r:.80}"
    rows = {kind: _read(files[kind], part, place, f"{name}: its {kind}") if kind in files else [] for kind in KINDS}
    for row in rows["scores"]:
        if row.pop("removed") is not (row["entry_id"] in summary.removal.ids):
            raise UsageError(f"{name}: removed is not what the removal says of {row['entry_id']!r:.80}")
    trust, descendants, lineage = (rows.pop(kind) for kind in ("trust", "descendants", "lineage"))
    record = rows | {"lineage": {**lineage[0], "entries": trust, "descendants": descendants} if lineage else None}
    for field in ("tenant", "entries", "removal", "not_examined", "beyond_budget", "cost", "usual_cas"):
        record[field] = msgspec.to_builtins(getattr(summary, field))
    tenant = convert(record, TenantResult, name)
    _check(tenant, summary, name)
    return tenant


def _read(file: parquet.RowGroups, part: Sequence[TenantSummary], place: int, where: str) -> list[dict[str, Any]]:
    if len(file) != len(part):
        raise UsageError(f"{where} are in a file of {len(file)} row groups, expected {len(part)}, one a tenant")
    try:
        table = file.read([place])
        table.validate(full=True)  # UTF-8, offsets
        _check_numbers(table)
        rows: list[dict[str, Any]] = table.to_pylist()
    except ValueError as error:  # also of Parquet, Arrow and Unicode
        raise UsageError(f"{where} are not readable ({' '.join(str(error).split())[:120]})") from None
    if any(row.pop("tenant") != part[place].tenant for row in rows):
        raise UsageError(f"{where} are of another tenant")
    return rows


def _rows(kind: str, tenant: TenantResult) -> list[dict[str, Any]]:
    lineage = tenant.lineage
    if kind == "lineage":
        items: Sequence[Any] = () if lineage is None else (lineage,)
    elif kind in {"trust", "descendants"}:
        items = () if lineage is None else lineage.entries if kind == "trust" else lineage.descendants
    else:
        items = getattr(tenant, kind)
    rows = [{"tenant": tenant.tenant, **msgspec.to_builtins(item)} for item in items]
    for row in rows if kind == "scores" else ():
        row["removed"] = row["entry_id"] in tenant.removal.ids
    return rows


def _names(kind: str) -> list[str]:
    return [name for name in _REPEATING if name in _schema(kind).names]


@cache
def _schema(kind: str) -> pa.Schema:
    record = KINDS[kind]
    columns = [("tenant", pa.string()), *_columns(record, _APART if kind == "lineage" else ())]
    return pa.schema([*columns, ("removed", pa.bool_())] if kind == "scores" else columns)


def _columns(record: type, apart: Sequence[str] = ()) -> list[tuple[str, pa.DataType]]:
    hints = get_type_hints(record, include_extras=True)
    return [(field.name, _type(hints[field.name])) for field in fields(record) if field.name not in apart]


def _type(hint: Any) -> pa.DataType:
    """Return the type of a column whose values are of a Python type."""
    if hint == Single:
        return pa.float32()
    origin, of = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return _type(next(option for option in of if option is not NoneType))
    if origin is tuple:
        return pa.list_(pa.field("element", _type(of[0])))
    if origin is Literal:
        return pa.string()
    return _PLAIN[hint] if hint in _PLAIN else pa.struct(_columns(hint))


def _check_numbers(table: pa.Table) -> None:
    for column in table.columns:
        for numbers in _numbers(column.combine_chunks()):
            if not pc.all(
                pc.less_equal(pc.abs(numbers.cast(pa.float64())), MAX_NUMBER), min_count=0
            ).as_py():  # false for NaN too
                raise ValueError(f"a number that is not finite, or beyond {MAX_NUMBER:.0e}")


def _numbers(array: pa.Array) -> Iterator[pa.Array]:
    """Yield what is numbers in an array of any depth."""
    if pa.types.is_floating(array.type) or pa.types.is_integer(array.type):
        yield array
    elif pa.types.is_list(array.type):
        yield from _numbers(array.flatten())
    elif pa.types.is_struct(array.type):
        for part in array.flatten():
            yield from _numbers(part)


def _check(tenant: TenantResult, summary: TenantSummary, where: str) -> None:
    """Check what the types do not say, and every report relies on."""
    removal, lineage = tenant.removal, tenant.lineage
    shown = {score.entry_id for score in tenant.scores}
    parts = (removal.attributed, removal.derived, removal.quarantined, removal.suspected)
    for name in (name for part in parts for name in part):
        if name not in shown:
            raise UsageError(f"{where}: the removal names {name!r:.80}, which has no score")
    descendants = () if lineage is None else lineage.descendants
    for item in descendants:
        if not item.path:
            raise UsageError(f"{where}: the path of the descendant {item.entry_id!r:.80} is empty")
    for proposal, of in (("remove", removal.derived), ("quarantine", removal.quarantined)):
        if {item.entry_id: item.reason for item in descendants if item.proposal == proposal} != of:
            raise UsageError(f"{where}: the removal has other descendants to {proposal} than the lineage")
    known = set() if lineage is None else {item.entry_id for item in lineage.entries}
    for name in removal.removed if lineage is not None else ():
        if name not in known:
            raise UsageError(f"{where}: the lineage lacks {name!r:.80}, which is to be removed")
    if tally(tenant) != summary.tally:
        raise UsageError(f"{where}: its events and probes come to another tally than result.json states")
