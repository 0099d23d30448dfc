"""`memaudit audit` and `memaudit report`: find what caused the harm, and show it again."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from memory_audit.config import AuditConfig, load_config
from memory_audit.errors import AuditError, UsageError
from memory_audit.jobs.cli.purge import large_removals, purge_run, unfinished_purge
from memory_audit.jobs.cli.store import (
    DEFAULT_KEYS,
    FINDINGS,
    VERSION,
    BackboneKeyEnv,
    Json,
    Keys,
    PinFile,
    Quiet,
    Store,
    Trust,
    installed_policy,
    known_pin,
    print_json,
    remember,
)
from memory_audit.jobs.clock import now_ms, publisher_ms
from memory_audit.jobs.places import check_folder, check_place
from memory_audit.jobs.progress import Reporter
from memory_audit.jobs.run.block_records import write_block_records
from memory_audit.jobs.run.reuse import EarlierRun
from memory_audit.jobs.run.run_audit import (
    REPORT_FILE,
    check_input,
    make_executor,
    model_specs,
    name_backbone,
    prepare_models,
    read_events,
    read_result,
    run_audit,
)
from memory_audit.jobs.run.run_folder import read_identity
from memory_audit.jobs.run.run_seal import SEAL_FILE, Sealer
from memory_audit.jobs.run.sealed_run import open_sealed
from memory_audit.lineage.edges_file import read_edges
from memory_audit.provenance import durable
from memory_audit.provenance.keys import POLICY_FILE, load_keyring
from memory_audit.report.html import render_html
from memory_audit.report.json import to_json
from memory_audit.report.sarif import to_sarif
from memory_audit.report.summary import summarise
from memory_audit.report.table import render_table
from memory_audit.snapshot.manifest import check_dated_near
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.jobs.run.sealed_run import SealedRun
    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.pin import Pin
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["audit", "report"]

Address = Annotated[
    str | None, typer.Option("--address", envvar="RAY_ADDRESS", help="Ray cluster; default: this machine.")
]


def audit(
    store: Store,
    events: Annotated[Path, typer.Option("--events", help="Events, one JSON object per line.")],
    out: Annotated[Path, typer.Option("--out", help="Run folder; an unfinished run in it is continued.")],
    config: Annotated[Path | None, typer.Option("--config", help="Default: memaudit.yaml where there is one.")] = None,
    keys: Keys = DEFAULT_KEYS,
    trust: Trust = None,
    pin: PinFile = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="Weight of influence (CMIS) against inconsistency (CAS) in the score; default: 0.6."),
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="Memories the agent retrieves; default: 5.")] = None,
    retrieval: Annotated[str | None, typer.Option(help="dense or levenshtein; default: dense.")] = None,
    attribution: Annotated[
        str | None, typer.Option(help="set, or loo for the paper's plain leave-one-out; default: set.")
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            help="Remove so many, highest scores first, none without evidence; default: as many as end the harm."
        ),
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
    backbone_key_env: BackboneKeyEnv = None,
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
    fail_on: Annotated[
        str | None,
        typer.Option(
            help="Exit 1 on: removed (there is something to remove), or not-cleared (an event that is harmful "
            "without it too, or was not examined)."
        ),
    ] = None,
    *,
    local: Annotated[bool, typer.Option("--local", help="Run in this process, without Ray.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Purge at once what was found.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find which memories caused the harmful events. Changes nothing unless --apply is given.

    The run is sealed with the auditor's key in the key folder: `purge` takes no other. Flags win over memaudit.yaml;
    defaults hold where neither says it.
    """
    if fail_on not in {None, "removed", "not-cleared"}:
        raise UsageError(f"--fail-on is {fail_on!r:.40}, expected removed or not-cleared")
    if local and address is not None:
        raise UsageError("--local runs without Ray: leave out --address, or unset RAY_ADDRESS")
    default = Path("memaudit.yaml")
    chosen = config if config is not None else (default if default.is_file() else None)
    overrides = {
        "alpha": alpha, "k": k, "retrieval": retrieval, "attribution": attribution, "budget": budget,
        "max_replays": max_replays, "backbone": backbone, "backbone_key_env": backbone_key_env, "nli": nli,
        "embedder": embedder, "descendants": descendants,
    }  # fmt: skip
    check_folder(out)
    settings: AuditConfig = name_backbone(load_config(chosen, overrides))
    now, policy, console = now_ms(), installed_policy(keys, trust), Console(soft_wrap=True)
    if apply:
        publisher_ms(store)  # a wrong clock is told before the work, not after it
    keyring = _auditor(keys, apply=apply)
    sealer = Sealer(keyring)
    read, guessed = read_events(events), None if edges is None else read_edges(edges)
    earlier = None if reuse is None else EarlierRun(reuse, sealer)
    known = known_pin(store, pin, policy, now)
    snapshot = open_snapshot(store, policy, now_ms=now, pin=known)
    if apply:
        check_dated_near(snapshot.manifest, now)
    reporter = Reporter(console, quiet=quiet or as_json)
    digests = {"configuration": settings.digest(), "events": read[1], "edges": None if guessed is None else guessed[1]}
    sealed = None if keyring is None or not apply else _purged_before(out, digests, snapshot, known, now, keyring)
    if sealed is not None:
        result = sealed.result
        reporter.say(f"the purge of {out} was published by an earlier start: what is missing after it is done now")
    else:
        if keyring is None:
            reporter.say(
                f"{keys} has no auditor's key: this run will not be sealed, and `memaudit purge` will refuse it"
            )
        harmful = check_input(snapshot, read, settings, guessed)
        remember(snapshot, pin)  # now: what others publish during the run is newer, and no rollback of it
        if harmful:
            with reporter.steps() as progress:
                prepare_models(settings, progress)
        # After a quiet night nothing is asked of any model, so none is started, and no cluster.
        executor = make_executor(model_specs(settings), local=local or not harmful, address=address)
        try:
            result = run_audit(
                snapshot, read, settings, executor, out, reporter, now_ms=now, edges=guessed, earlier=earlier,
                sealer=sealer,
            )  # fmt: skip
            # A later purge may take the quarantined ones too: their hazards are read while the backbone is loaded.
            write_block_records(snapshot, result.with_quarantined(), settings, executor, out, reporter, sealer)
        finally:
            executor.close()
        seal = sealer.seal(out, result.store, result.snapshot_version)
        if apply and keyring is not None:
            sealed = open_sealed(out, keyring.policy, seal=seal)
    if not as_json:
        console.print(render_table(result))
        console.print(f"report: {out / REPORT_FILE}", markup=False, highlight=False)
    purged, refused = None, None
    command = f"memaudit purge {shlex.quote(str(out))} {shlex.quote(str(store))} --apply"
    if sealed is not None and result.removals:
        try:
            if large := large_removals(result):
                raise UsageError(f"{large[0]}; look at {out / REPORT_FILE}, then: {command} --most")
            purged = purge_run(sealed, result, store, keys, pin, dry_run=False, quiet=as_json)
        except AuditError as error:
            refused = error
    elif not as_json and result.removals:
        how = f"to remove: {command}" if keyring is not None else f"not sealed, as {keys} has no auditor's key"
        console.print(f"nothing was removed; {how}", markup=False, highlight=False)
    if as_json:  # one document, also with --apply, and where the purge is refused
        told = {"purged": purged} if refused is None else {"purged": None, "refused": str(refused)}
        print_json(json.loads(to_json(result)) | (told if apply else {}))
    if refused is not None:
        raise refused
    summary = summarise(result.tenants)
    found = {"removed": summary.removed, "not-cleared": summary.unsettled}
    if fail_on is not None and found[fail_on]:
        raise typer.Exit(FINDINGS)


def _auditor(keys: Path, *, apply: bool) -> Keyring | None:
    """Return the keys that seal the run; None where the folder has not the auditor's, and nothing is to be applied.

    Raises:
        UsageError: `apply`, and a key that a purge needs is missing: told before the work, not after it.
    """
    if not apply and not (keys / POLICY_FILE).is_file():
        return None
    keyring = load_keyring(keys)
    try:
        keyring.signers("auditor")
        if apply:
            keyring.signers("log")
    except UsageError:
        if apply:
            raise
        return None
    return keyring


def _purged_before(
    out: Path,
    digests: Mapping[str, str | None],
    snapshot: VerifiedSnapshot,
    known: Pin | None,
    now: int,
    keyring: Keyring,
) -> SealedRun | None:
    """Return the run in a folder where it is what this command found before its purge was published and interrupted.

    The purge made a version of its own, so the run there is of another snapshot than the newest.
    """

    def may_be(identity: Mapping[str, str]) -> bool:
        other = identity.get("snapshot") != snapshot.digest
        return other and all(identity.get(name) == digest for name, digest in digests.items())

    try:
        if not (out / SEAL_FILE).is_file() or not may_be(read_identity(out)):
            return None
    except UsageError:  # no run: `RunFolder` refuses it and says why
        return None
    sealed = open_sealed(out, keyring.policy)
    unfinished = unfinished_purge(out, sealed.result, snapshot, known, now_ms=now)
    return sealed if may_be(sealed.identity) and unfinished is not None else None


def _print_document(text: str) -> None:
    """Print a whole file as UTF-8, as it says of itself, whatever the terminal's encoding."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


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
        _print_document(text)
        return
    durable.replace(check_place(out), text.encode())
    Console(soft_wrap=True).print(f"written: {out}", markup=False, highlight=False)
