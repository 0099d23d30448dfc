"""The command line. With its `cli_` files the only one that reads keys, environment and clock, prints, and exits.

Its exit codes stand in `EXIT_CODES`, which ends `memaudit --help`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from audit.config import AuditConfig, load_config
from audit.counted import counted
from audit.errors import AuditError, IncompleteError, StalePlanError, UsageError
from audit.provenance import durable
from audit.provenance.keys import POLICY_FILE, generate_keys, load_keyring, save_keyring
from audit.report.html import render_html
from audit.report.json import to_json
from audit.report.sarif import to_sarif
from audit.report.summary import summarise
from audit.report.table import render_table
from audit.report.untrusted import as_line
from audit.snapshot.attest import MAX_ATTESTATION_BYTES, attest, verify_attestation
from audit.snapshot.layout import has_store
from audit.snapshot.publish import append_entries, create_store
from audit.snapshot.purify import purify, read_purified
from audit.snapshot.reader import open_snapshot
from audit.snapshot.verify import verify_store
from jobs.cli_forget import forget
from jobs.cli_gate import gate_app
from jobs.cli_guard import guard_app
from jobs.cli_lineage import lineage_app
from jobs.cli_store import (
    DEFAULT_KEYS,
    FINDINGS,
    Json,
    Keys,
    PinFile,
    Store,
    Trust,
    check_place,
    installed_policy,
    known_pin,
    print_json,
    remember,
)
from jobs.cli_vacuum import vacuum
from jobs.clock import now_ms
from jobs.descendants import with_quarantined
from jobs.edges_file import read_edges
from jobs.hazard_locks import read_locks, removals_of, write_locks
from jobs.import_jsonl import read_entries
from jobs.progress import Reporter
from jobs.reuse import EarlierRun
from jobs.run_audit import (
    REPORT_FILE,
    RESULT_FILE,
    check_input,
    make_executor,
    model_specs,
    name_backbone,
    prepare_models,
    read_events,
    read_result,
    run_audit,
)
from models.library_noise import quiet_imports

if TYPE_CHECKING:
    from audit.provenance.policy import TrustPolicy
    from audit.result import AuditResult
    from audit.snapshot.attest import Attestation
    from audit.snapshot.purify import Purified
    from audit.snapshot.reader import VerifiedSnapshot

__all__ = ["app", "main"]

VERSION = "0.1.0"
DEFECT, INTERRUPTED = 70, 130
ATTESTATION_FILE = "attestation.dsse.json"
LEFTOVERS_SHOWN = 10
MOST_SHARE = 0.5
"""Of a tenant's memories: a run that removes more of them is not applied without being told so again."""

EXIT_CODES = """\b
Exit codes:
  0    done, also with findings
  1    findings, where --fail-on asks for them
  2    usage or configuration
  3    incomplete: start again to continue
  4    integrity or signature failure
  5    the store changed since the audit
  70   a defect, here or in an agent or scorer of yours: the traceback says where
  130  interrupted
"""

quiet_imports()  # processes that vLLM spawns import this file, and then vLLM

app = typer.Typer(
    name="memaudit",
    help="Find the poisoned memories of an LLM agent after harm was seen, remove them, publish a signed snapshot.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
keys_app = typer.Typer(help="Keys and the trust policy.", no_args_is_help=True)
import_app = typer.Typer(help="Bring memories into a signed store.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")
app.add_typer(import_app, name="import")
app.add_typer(guard_app, name="guard")
app.command("forget")(forget)
app.command("vacuum")(vacuum)
app.add_typer(gate_app, name="gate")
app.add_typer(lineage_app, name="lineage")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Address = Annotated[
    str | None, typer.Option("--address", envvar="RAY_ADDRESS", help="Ray cluster; default: this machine.")
]


def main() -> NoReturn:
    """Run the command line; every error becomes one line and its exit code."""
    errors = Console(stderr=True, soft_wrap=True)

    def fail(line: str, code: int) -> NoReturn:
        errors.print(f"memaudit: {as_line(line, 600)}", markup=False, highlight=False, style="bold red")
        sys.exit(code)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends a job gently gets what Ctrl-C gets
    try:
        code = app(standalone_mode=False)
    except AuditError as error:
        fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except typer.Exit as stop:
        code = stop.exit_code
    except SystemExit as stop:  # typer's 1 where nobody reads on (`memaudit … | head`) would say findings
        code = IncompleteError.exit_code if stop.code == FINDINGS else stop.code
    except OSError as error:
        fail(f"{error.filename or 'system'}: {error.strerror or error}", IncompleteError.exit_code)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no finding
        show = getattr(error, "show", None)  # typer's own usage errors know how to print themselves
        if show is None:
            traceback.print_exc()
            sys.exit(DEFECT)  # Python's own 1 would say findings
        show()
        sys.exit(getattr(error, "exit_code", UsageError.exit_code))
    if code == INTERRUPTED:
        fail("interrupted; what was computed is kept, start the same command again", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        print(VERSION)  # noqa: T201 - scripts read it
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())  # noqa: T201
        raise typer.Exit(UsageError.exit_code)


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="Where to put the demo's keys, store and run.")] = Path("demo-run"),
    backbone: Annotated[str, typer.Option(help="Model to replay with.")] = "packaged",
    *,
    local: Annotated[bool, typer.Option("--local", help="Run in this process, without Ray.")] = False,
) -> None:
    """Watch a poisoned help desk being audited, with real models.

    Takes at most 10 minutes.
    """
    from jobs.demo import run_demo  # noqa: PLC0415 - brings the corpus and the executors

    run_demo(folder, Console(soft_wrap=True), backbone=backbone, executor="local" if local else "ray", keep=True)


@keys_app.command("new")
def keys_new(
    folder: Annotated[Path, typer.Argument(help="New folder for the private keys and the policy.")] = DEFAULT_KEYS,
    name: Annotated[str, typer.Option(help="Name in the key ids, e.g. your organisation.")] = "memaudit",
) -> None:
    """Make the keys of each role, and the trust policy for readers.

    The roles are writer, log, auditor and root.
    """
    save_keyring(generate_keys(name), folder)
    console = Console(soft_wrap=True)
    console.print(f"keys in {folder} (private: keep them), policy for readers: {folder / POLICY_FILE}", markup=False)


@import_app.command("jsonl")
def import_jsonl(
    file: Annotated[Path, typer.Argument(help="Memories, one JSON object per line; - reads standard input.")],
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    tenant: Annotated[str | None, typer.Option(help="Tenant of lines that name none.")] = None,
    principal: Annotated[str, typer.Option(help="Writer of lines that name none.")] = "import",
    pin: PinFile = None,
    *,
    as_json: Json = False,
) -> None:
    """Sign memories into a store.

    Into a new one, or as the next version of an existing one.
    """
    now = now_ms()
    defaults: dict[str, object] = {"principal": principal, "source": "external", "created_at_ms": now}
    if tenant is not None:
        defaults["tenant"] = tenant
    entries = read_entries(file, defaults, once=True)
    if not entries:
        raise UsageError(f"{file}: no memories in it; nothing was written")
    keyring = load_keyring(keys)
    if has_store(store):
        published = append_entries(store, entries, keyring, now_ms=now, pin=known_pin(store, pin, keyring.policy, now))
    else:
        published = create_store(store, entries, keyring, now_ms=now)
    snapshot = open_snapshot(store, keyring.policy, now_ms=now)
    remember(snapshot, pin)
    if as_json:
        print_json({"version": published.version, "digest": snapshot.digest, "imported": len(entries)})
    else:
        memories = counted(len(entries), "memory")
        tenants = counted(len({entry.tenant for entry in entries}), "tenant")
        Console(soft_wrap=True).print(
            f"{memories} of {tenants} signed into {store}, version {published.version}",
            markup=False, highlight=False,
        )  # fmt: skip


@app.command()
def verify(
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    trust: Trust = None,
    pin: PinFile = None,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Every version, every signature, every proof.")] = False,
    attestation: Annotated[
        Path | None, typer.Option("--attestation", help="Of a purge, in its run folder: must agree with the log.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check every byte of a store offline.

    Signatures, hashes, roots, and that its log only ever grew.
    """
    now, policy, console = now_ms(), installed_policy(keys, trust), Console(soft_wrap=True)
    reporter = Reporter(console, quiet=quiet or as_json)
    with reporter.steps() as progress:
        report = verify_store(
            store, policy, now_ms=now, pin=known_pin(store, pin, policy, now), deep=deep, progress=progress
        )
    attested = None if attestation is None else _attested(attestation, store, policy, now)
    remember(open_snapshot(store, policy, now_ms=now), pin)
    if as_json:
        found = None if attested is None else {
            "run_id": attested.run_id, "version": attested.version, "removed": len(attested.removed),
        }  # fmt: skip
        print_json(report.to_json() | ({} if found is None else {"attestation": found}))
        return
    console.print(
        f"verified: version {report.version} of store {report.store_id}: "
        f"{counted(report.entries, 'memory')} of {counted(report.tenants, 'tenant')}, "
        f"{counted(report.tombstones, 'tombstone')}, {counted(report.signatures, 'signature')}, "
        f"{counted(report.files, 'file')}",
        markup=False, highlight=False,
    )  # fmt: skip
    for step in report.steps:
        console.print(
            f"  log of {as_line(step.tenant)}: version {step.from_version} "
            f"({counted(step.from_size, 'leaf')}) is a prefix of version {step.to_version} "
            f"({counted(step.to_size, 'leaf')})", markup=False, highlight=False,
        )  # fmt: skip
    if attested is not None:
        console.print(
            f"  attestation: version {attested.version} removed {counted(len(attested.removed), 'memory')}, as the log "
            "says", markup=False, highlight=False,
        )  # fmt: skip
    _print_leftovers(report.leftovers, console)


@app.command()
def audit(
    store: Store,
    events: Annotated[Path, typer.Option("--events", help="Events, one JSON object per line.")],
    out: Annotated[Path, typer.Option("--out", help="Run folder; an unfinished run in it is continued.")],
    config: Annotated[Path | None, typer.Option("--config", help="Default: memaudit.yaml where there is one.")] = None,
    keys: Keys = DEFAULT_KEYS,
    trust: Trust = None,
    pin: PinFile = None,
    alpha: Annotated[float | None, typer.Option(help="Weight of influence against anomaly; default: 0.6.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="Memories the agent retrieves; default: 5.")] = None,
    retrieval: Annotated[str | None, typer.Option(help="dense or levenshtein; default: dense.")] = None,
    attribution: Annotated[
        str | None, typer.Option(help="set, or loo for the paper's plain leave-one-out; default: set.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Remove exactly this many; default: as many as end the harm.")
    ] = None,
    max_replays: Annotated[
        int | None,
        typer.Option(
            help="Most replays of each tenant's search; the final check of removal and probes comes on top; default: "
            "no limit."
        ),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="packaged, a folder or id, or openai:URL#MODEL; default: packaged.")
    ] = None,
    nli: Annotated[
        str | None, typer.Option(help="packaged, or a Hugging Face folder or id; default: packaged.")
    ] = None,
    embedder: Annotated[
        str | None, typer.Option(help="packaged, or a sentence-transformers folder or id; default: packaged.")
    ] = None,
    descendants: Annotated[
        str | None,
        typer.Option(help="Memories derived from removed ones: remove, quarantine or report; default: remove."),
    ] = None,
    edges: Annotated[
        Path | None, typer.Option("--edges", help="Estimated edges, from `memaudit lineage estimate`.")
    ] = None,
    reuse: Annotated[
        Path | None,
        typer.Option("--reuse", help="Earlier run folder, e.g. last night's: what it compared is not compared again."),
    ] = None,
    address: Address = None,
    fail_on: Annotated[str | None, typer.Option(help="Exit 1 on: removed, or not-cleared.")] = None,
    *,
    local: Annotated[bool, typer.Option("--local", help="Run in this process, without Ray.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Purge at once what was found.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find which memories caused the harmful events. Changes nothing unless --apply is given.

    Flags win over memaudit.yaml; defaults hold where neither says it.
    """
    if fail_on not in {None, "removed", "not-cleared"}:
        raise UsageError(f"--fail-on is {fail_on!r:.40}, expected removed or not-cleared")
    if local and address is not None:
        raise UsageError("--local runs without Ray: leave out --address, or unset RAY_ADDRESS")
    default = Path("memaudit.yaml")
    chosen = config if config is not None else (default if default.is_file() else None)
    overrides = {
        "alpha": alpha, "k": k, "retrieval": retrieval, "attribution": attribution, "budget": budget,
        "max_replays": max_replays, "backbone": backbone, "nli": nli, "embedder": embedder,
        "descendants": descendants,
    }  # fmt: skip
    settings: AuditConfig = name_backbone(load_config(chosen, overrides))
    now, policy, console = now_ms(), installed_policy(keys, trust), Console(soft_wrap=True)
    if apply:  # a missing key is to be heard before the work, not after it
        keyring = load_keyring(keys)
        keyring.signers("auditor"), keyring.signers("log")
    read, guessed = read_events(events), None if edges is None else read_edges(edges)
    earlier = None if reuse is None else EarlierRun(reuse)
    snapshot = open_snapshot(store, policy, now_ms=now, pin=known_pin(store, pin, policy, now))
    harmful = check_input(snapshot, read, settings, guessed)
    reporter = Reporter(console, quiet=quiet or as_json)
    if harmful:
        with reporter.steps() as progress:
            prepare_models(settings, progress)
    # After a quiet night nothing is asked of any model, so none is started, and no cluster.
    executor = make_executor(model_specs(settings), local=local or not harmful, address=address)
    try:
        result = run_audit(
            snapshot, read, settings, executor, out, reporter, now_ms=now, edges=guessed, earlier=earlier
        )
        # A later purge may take the quarantined ones too: their hazards are read while the backbone is loaded.
        write_locks(snapshot, with_quarantined(result), settings, executor, out, reporter)
    finally:
        executor.close()
    if not as_json:
        console.print(render_table(result))
        console.print(f"report: {out / REPORT_FILE}", markup=False, highlight=False)
    purged = None
    if apply and removals_of(result):
        if large := _large_removals(result):
            raise UsageError(
                f"{large[0]}; look at {out / REPORT_FILE}, then: memaudit purge {out} {store} --apply --most"
            )
        purged = _purge(out, result, store, keys, pin, dry_run=False, quiet=as_json)
    elif not as_json and removals_of(result):
        console.print(f"nothing was removed; to remove: memaudit purge {out} {store} --apply", markup=False)
    if as_json:  # one document, also with --apply
        print_json(json.loads(to_json(result)) | ({"purged": purged} if apply else {}))
    summary = summarise(result.tenants)
    found = {"removed": summary.removed, "not-cleared": summary.verdicts["not cleared"]}
    if fail_on is not None and found[fail_on]:
        raise typer.Exit(FINDINGS)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    form: Annotated[str, typer.Option("--format", "-f", help="table, json, html or sarif.")] = "table",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default: print.")] = None,
) -> None:
    """Show a finished run again."""
    result = read_result(run)
    if form == "table":
        if out is not None:
            raise UsageError("--format table is for the terminal; choose json, html or sarif to write a file")
        Console(soft_wrap=True).print(render_table(result))
        return
    if form == "json":
        text = to_json(result)
    elif form == "html":
        text = render_html(result)
    elif form == "sarif":
        text = to_sarif(result, VERSION)
    else:
        raise UsageError(f"--format is {form!r:.40}, expected table, json, html or sarif")
    if out is None:
        sys.stdout.write(text)
        return
    check_place(out)
    durable.replace(out, text.encode())
    Console(soft_wrap=True).print(f"written: {out}", markup=False, highlight=False)


@app.command()
def purge(
    run: Annotated[Path, typer.Argument(help="Finished run folder.")],
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    pin: PinFile = None,
    *,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="Also what derives from a removed memory and was quarantined.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Really remove; without it, only show what would be.")] = False,
    most: Annotated[bool, typer.Option("--most", help="Also where more than half of a tenant's memories go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what a run found.

    Tombstones are appended, the live view is rewritten and re-signed. Changes nothing unless --apply is given.
    """
    result = read_result(run)
    if quarantined:
        result = with_quarantined(result)
    large = _large_removals(result)
    if large and apply and not most:
        raise UsageError(f"{large[0]}; look at the report, and add --most to remove them all the same")
    purged = _purge(run, result, store, keys, pin, dry_run=not apply, quiet=as_json)
    if as_json:
        print_json(purged)
    if large and not apply and not as_json:
        for line in large:
            Console(soft_wrap=True).print(line, markup=False, highlight=False)


@app.command()
def doctor(*, as_json: Json = False) -> None:
    """Check this machine: packages, weights, disk, memory, cores."""
    from jobs.doctor import examine  # noqa: PLC0415 - imports the model layer
    from models.weights_cache import cache_dir  # noqa: PLC0415

    checks = examine(cache_dir())
    if as_json:
        print_json([{"name": c.name, "ok": c.ok, "found": c.found, "advice": c.advice} for c in checks])
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for check in checks:
        table.add_row("ok" if check.ok else "--", check.name, check.found, check.advice)
    Console(soft_wrap=True).print(table)


@app.command(context_settings={"allow_extra_args": True, "allow_interspersed_args": False})
def submit(
    context: typer.Context,
    address: Annotated[str, typer.Option("--address", envvar="RAY_API_SERVER_ADDRESS", help="Ray dashboard address.")],
    name: Annotated[str, typer.Option("--name", help="Job name; a second job of this name and day is refused.")],
    working_dir: Annotated[Path | None, typer.Option(help="Folder uploaded with the job.")] = None,
) -> None:
    """Run a memaudit command as a Ray job.

    Example: memaudit submit --address URL --name acme audit STORE --events EVENTS --out RUN
    """
    from jobs import cluster  # noqa: PLC0415 - imports Ray

    if not context.args:
        raise UsageError("nothing to submit: add the memaudit command to run, e.g. audit STORE --events E --out RUN")
    today = dt.datetime.now(tz=dt.UTC).date()
    identifier = cluster.submission_id_of(name, today)
    command = ["memaudit", *context.args]
    submitted = cluster.submit(address, command, submission_id=identifier, working_dir=working_dir)
    print(submitted)  # noqa: T201 - scripts read it


@app.command()
def status(
    job: Annotated[str, typer.Argument(help="Job id, as `submit` printed it.")],
    address: Annotated[str, typer.Option("--address", envvar="RAY_API_SERVER_ADDRESS", help="Ray dashboard address.")],
) -> None:
    """Say how a submitted job is doing."""
    from jobs import cluster  # noqa: PLC0415

    state = cluster.status(address, job)
    print(f"{state.state} {state.message}".strip())  # noqa: T201


@app.command()
def logs(
    job: Annotated[str, typer.Argument(help="Job id.")],
    address: Annotated[str, typer.Option("--address", envvar="RAY_API_SERVER_ADDRESS", help="Ray dashboard address.")],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the job ends.")] = False,
) -> None:
    """Print a submitted job's log."""
    from jobs import cluster  # noqa: PLC0415

    for line in cluster.logs(address, job, follow=follow):
        sys.stdout.write(line)


def _attested(file: Path, store: Path, policy: TrustPolicy, now: int) -> Attestation:
    """Verify an attestation against the version that it is about."""
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    data = durable.read_bounded(file, MAX_ATTESTATION_BYTES, str(file))
    about = verify_attestation(data, policy, str(file))
    snapshot = open_snapshot(store, policy, now_ms=now, version=about.version, check_expiry=False)
    return verify_attestation(data, policy, str(file), snapshot=snapshot)


def _print_leftovers(names: tuple[str, ...], console: Console) -> None:
    """Name the files that are no part of the store; whoever planted one chose its name."""
    if not names:
        return
    console.print(
        f"no part of any version (left over from an interrupted publisher, or planted): {counted(len(names), 'file')}. "
        "Nothing reads what is named here; delete it while nobody publishes to the store",
        markup=False, highlight=False,
    )  # fmt: skip
    for name in names[:LEFTOVERS_SHOWN]:
        console.print(f"  {as_line(name, 200)}", markup=False, highlight=False)
    if len(names) > LEFTOVERS_SHOWN:
        console.print(f"  … {len(names) - LEFTOVERS_SHOWN:,} more: --json names them", markup=False, highlight=False)


def _large_removals(result: AuditResult) -> list[str]:
    """Say of which tenants a run removes so much that it is more likely a mistake than a finding."""
    removals = removals_of(result)
    return [
        f"{len(removals[tenant.tenant])} of {counted(tenant.entries, 'memory')} of {as_line(tenant.tenant)} would be "
        "removed: a set that is most of a store is seldom the cause"
        for tenant in result.tenants
        if len(removals.get(tenant.tenant, ())) > MOST_SHARE * tenant.entries
    ]


def _purge(
    run: Path, result: AuditResult, store: Path, keys: Path, pin: Path | None, *, dry_run: bool, quiet: bool
) -> dict[str, object]:
    """Remove, attest and remember what a run found, and say so unless `quiet`; return it as `--json` shows it."""
    now, keyring, console = now_ms(), load_keyring(keys), Console(soft_wrap=True, quiet=quiet)
    removals = removals_of(result)
    extra, taxonomy = read_locks(run, result)
    known = known_pin(store, pin, keyring.policy, now)
    snapshot = open_snapshot(store, keyring.policy, now_ms=now, pin=known, check_expiry=False)
    if snapshot.store_id != result.store:
        raise UsageError(f"{run} audited another store than {store}")
    purified = None if dry_run else _published_before(run, result, snapshot)
    if snapshot.digest != result.snapshot_digest and purified is None:
        raise StalePlanError(
            f"{store} is at version {snapshot.version}, {run} audited version {result.snapshot_version}: audit again"
        )
    if not removals:  # a clean night, and no mistake
        console.print(f"{run} found nothing to remove: {store} stays as it is", markup=False, highlight=False)
        return {"version": snapshot.version, "published": False, "digest": snapshot.digest, "removed": []}
    if purified is None:
        purified = purify(
            store, snapshot, removals, keyring, run_id=result.run_id, now_ms=now,
            config={**result.config, **taxonomy}, models=result.models, extra=extra, dry_run=dry_run,
        )  # fmt: skip
    if not dry_run:
        statement = attest(
            purified, keyring, run_id=result.run_id, now_ms=now, parameters=result.config, models=result.models,
            score_tables={RESULT_FILE: hashlib.sha256((run / RESULT_FILE).read_bytes()).hexdigest()},
        )  # fmt: skip
        durable.replace(run / ATTESTATION_FILE, statement)
        remember(open_snapshot(store, keyring.policy, now_ms=now), pin)
    verb = "removed" if purified.published else "would remove"
    for item in purified.removed:
        console.print(
            f"{verb} {as_line(item.tenant)}/{as_line(item.entry_id)}: {as_line(item.reason, 200)}",
            markup=False, highlight=False,
        )  # fmt: skip
    if not extra:
        console.print(
            "the run read no hazards: these tombstones keep the ids out and no paraphrase", markup=False,
            highlight=False,
        )  # fmt: skip
    if purified.published:
        console.print(
            f"version {purified.version} published with {counted(purified.entries, 'memory')}; attestation: "
            f"{run / ATTESTATION_FILE}; check both with: memaudit verify {store} "
            f"--attestation {run / ATTESTATION_FILE}",
            markup=False, highlight=False,
        )  # fmt: skip
        console.print(
            f"older versions and {run} still hold the text of what was removed; to erase the versions: memaudit vacuum "
            f"{store}", markup=False, highlight=False,
        )  # fmt: skip
    else:
        console.print("dry run: nothing was changed; add --apply to remove", markup=False, highlight=False)
    return {
        "version": purified.version, "published": purified.published, "digest": purified.digest,
        "removed": [{"tenant": r.tenant, "entry_id": r.entry_id, "reason": r.reason} for r in purified.removed],
    }  # fmt: skip


def _published_before(run: Path, result: AuditResult, snapshot: VerifiedSnapshot) -> Purified | None:
    """Return what an interrupted purge of this run published and did not attest, where it is what is asked for."""
    if (run / ATTESTATION_FILE).exists():
        return None
    purified = read_purified(snapshot, result.run_id, result.snapshot_digest)
    asked = {(tenant, entry_id) for tenant, entries in removals_of(result).items() for entry_id in entries}
    return purified if purified and {(item.tenant, item.entry_id) for item in purified.removed} == asked else None


if __name__ == "__main__":
    main()
