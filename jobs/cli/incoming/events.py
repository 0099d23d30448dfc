"""`memaudit events`: events of an agent's traces."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_at_most
from memory_audit.jobs.cli.shared import Json, Quiet, Reading, Store, as_signed, print_json, print_lines
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.places import check_place
from memory_audit.jobs.spread_options import spread_options
from memory_audit.jobs.traces.import_traces import Labels, import_traces
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.traces import harm, records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.jobs.traces.import_traces import Imported

__all__ = ["events_app"]

MAX_LABEL_BYTES = 1 << 28
"""A million traces with their tickets."""

LEAST_RESOLVED = 0.9
"""Of ten passages that an agent saw one may be from elsewhere, as from a manual; more may be where the harm is from."""

events_app = typer.Typer(help="Events of an agent's traces.", no_args_is_help=True)


@events_app.callback()
def _group() -> None:
    """Events of an agent's traces."""


@events_app.command("import")
@spread_options
def import_events(
    *,
    store: Store,
    traces: Annotated[
        list[Path], typer.Argument(help="OTLP/JSON, or exports of Phoenix or Langfuse: JSON, JSON lines or Parquet.")
    ],
    out: Annotated[Path, typer.Option(help="Events file to write: what `audit --events` reads.")],
    tenant: Annotated[str | None, typer.Option(help="Whose traces these are.")] = None,
    tenant_from: Annotated[
        str | None, typer.Option(help="Attribute that names the tenant instead, such as user.id.")
    ] = None,
    harmful: Annotated[
        list[str] | None,
        typer.Option("--harm", help="Score and threshold of harm: harm>=0.5, verdict=bad (repeatable)."),
    ] = None,
    benign: Annotated[
        list[str] | None,
        typer.Option("--benign", help="Likewise, of answers that an audit must keep (repeatable)."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="CSV file of trace_id, and optionally label and source; goes before scores.")
    ] = None,
    retriever: Annotated[
        list[str] | None, typer.Option(help="Name of spans that retrieve and do not say so (repeatable).")
    ] = None,
    least_resolved: Annotated[
        float, typer.Option(help="Share of retrieved documents that must be known memories, in each event and in all.")
    ] = LEAST_RESOLVED,
    reading: Reading,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make events of traces, with the memories that each agent saw.

    Scores may be in the same files or in others. A trace without a label is left out. Nothing is written where too few
    retrieved documents are memories of the store. Killed, the same command continues.
    """
    if (tenant is None) == (tenant_from is None):
        raise UsageError("name the tenant with --tenant, or the attribute that does with --tenant-from")
    if not harmful and labels is None:
        raise UsageError("say what harm is: --harm with a score and a threshold, or --labels with a file")
    if not 0.0 < least_resolved <= 1.0:
        raise UsageError(f"--least-resolved is {least_resolved}, expected more than 0, at most 1")
    known = Labels(
        harmful=[harm.parse_rule(rule, "--harm") for rule in harmful or ()],
        benign=[harm.parse_rule(rule, "--benign") for rule in benign or ()],
        by_trace={} if labels is None else _read_labels(labels),
    )
    place, name = check_place(out), None if tenant is None else as_signed(tenant, "--tenant")
    session = reading.open(store, now_ms())
    if name is not None:
        session.snapshot.log(name)  # says which tenants there are
    with Reporter(terminal(stderr=True), quiet=quiet or as_json):
        done = import_traces(
            traces, session.snapshot, place, labels=known, tenant=name, least=least_resolved,
            reading=records.Reading(tenant_from=tenant_from or "", retrievers=tuple(sorted(retriever or ()))),
        )  # fmt: skip
    session.remember()
    if as_json:
        print_json(_as_json(done))
    else:
        print_lines(*_told(done, out))


def _read_labels(file: Path) -> dict[str, harm.Label]:
    raw = read_at_most(file, MAX_LABEL_BYTES)
    if len(raw) > MAX_LABEL_BYTES:
        raise UsageError(f"{file}: more than {MAX_LABEL_BYTES} bytes of labels")
    try:
        return dict(harm.read_labels(raw.decode("utf-8-sig").splitlines(), file.name))
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not valid UTF-8 at byte {error.start}") from None


def _as_json(done: Imported) -> dict[str, object]:
    return {
        **done.read, "events": done.events, "left_out": done.left_out, "documents": done.documents,
        "resolved": done.resolved, "unresolved": done.unresolved, "lost": done.lost, "resolved_share": done.share,
        "truncated_traces": done.truncated, "without_retrieval": done.without_retrieval,
    }  # fmt: skip


def _told(done: Imported, out: Path) -> Iterator[str]:
    read, events = done.read, done.events
    made = counted(events.total(), "event")
    yield f"{made} written to {out}: {events['harmful']:,} harmful, {events['benign']:,} benign"
    spans, traces = counted(read["spans"], "span"), counted(read["traces"], "trace")
    yield f"  {spans} of {traces} and {counted(read['scores'], 'score')} in {counted(read['files'], 'file')}"
    if done.share is not None:
        means = {"near": "near text"}
        how = ", ".join(f"{count:,} by {means.get(by, by)}" for by, count in sorted(done.resolved.items()))
        documents = counted(done.documents, "retrieved document")
        yield f"  {done.resolved.total():,} of {documents} are known memories ({done.share:.1%}): {how}"
    if done.truncated:
        yield (
            f"  {counted(done.truncated, 'trace')} lost {counted(done.lost, 'document')} or more to a span's limit of "
            "attributes, in Python the best-ranked first: raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"
        )
    if done.without_retrieval:
        made = counted(done.without_retrieval, "event")
        yield f"  {made} without a word on what was retrieved: the audit's own retrieval stands in"
    if done.left_out:
        why = ", ".join(f"{why}: {count:,}" for why, count in sorted(done.left_out.items()))
        yield f"  {counted(done.left_out.total(), 'trace')} left out ({why})"
    if read["records_not_understood"]:
        yield f"  {counted(read['records_not_understood'], 'record')} without a span or a score"
