"""`memaudit guard`: judge writes from a file, or serve a guard to agents that are not written in Python."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, cast

import typer

from memory_audit.counted import counted
from memory_audit.errors import IncompleteError, UsageError
from memory_audit.formats.import_jsonl import read_entries
from memory_audit.guard.decide.guard_decision import FAILURES, GuardDecision
from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.guard.decide.write import UNNAMED
from memory_audit.guard.decision_log import as_record
from memory_audit.jobs.cli.shared import (
    FINDINGS,
    BackboneKeyEnv,
    Json,
    Reading,
    Store,
    TaxonomyFile,
    as_signed,
    check_choice,
    print_json,
    print_lines,
)
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.guard.token import MIN_TOKEN_CHARS, guard_token
from memory_audit.jobs.run.block_records import taxonomy_of
from memory_audit.jobs.spread_options import spread_options
from memory_audit.jobs.store.store_session import known_pin, remember
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.entry import Entry
    from memory_audit.guard.decide.settings import GuardMode, OnFailure
    from memory_audit.guard.guarded_store import GuardedStore

__all__ = ["guard_app"]

PATIENCE_S = 3_600.0
"""A file of writes waits for the model to load, and for all of its answers."""

guard_app = typer.Typer(help="Keep removed memories from coming back.", no_args_is_help=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions(Reading):
    """What `check` and `serve` have in common: the models, how to decide, and how to trust the store."""

    backbone: Annotated[
        str,
        typer.Option(
            help="Model that reads hazards: packaged, a folder or id, or openai:URL#MODEL; never started in mode "
            "behaviour."
        ),
    ] = "packaged"
    backbone_key_env: BackboneKeyEnv = None
    nli: Annotated[
        str | None,
        typer.Option(help="NLI model (and probe) beside the backbone; by default the packaged ones go together."),
    ] = None
    embedder: Annotated[
        str, typer.Option(help="Model of the semantic keys: the one the tombstones were made with.")
    ] = "packaged"
    mode: Annotated[
        str,
        typer.Option(
            help="behaviour: what a write teaches, read by the packaged 0.5B and 1.5B; behaviour+hazards: and, in "
            "doubt, its hazards, read by --backbone."
        ),
    ] = "behaviour+hazards"
    behaviour_above: Annotated[
        float | None,
        typer.Option(help="Log-odds in nats from which a behaviour refuses; default: by the reader's calibration."),
    ] = None
    near_above: Annotated[
        float | None,
        typer.Option(
            help="Log-odds in nats from which mode behaviour refuses what is near the behaviour's key; likewise.",
        ),
    ] = None
    doubt_above: Annotated[
        float | None,
        typer.Option(help="Log-odds in nats from which a behaviour is in doubt, and its hazards are read; likewise."),
    ] = None
    fused_above: Annotated[
        float | None,
        typer.Option(
            help="Log-odds in nats of behaviour and hazard together that refuse then; likewise. inf: labels decide.",
        ),
    ] = None
    distrust_after: Annotated[
        int | None,
        typer.Option(
            help="After so many different refused writes of one writer in a day, refuse what else the behaviour "
            "leaves in doubt; 0: never. Default: 2 for serve, 0 for check.",
        ),
    ] = None
    alarm_after: Annotated[
        int | None,
        typer.Option(
            help="After so many different writes that were refused for one removal in a day, by whomever, refuse what "
            "else may restate its behaviour; likewise.",
        ),
    ] = None
    on_failure: Annotated[str, typer.Option(help="closed refuses what could not be judged, open lets it in.")] = (
        "closed"
    )
    taxonomy: TaxonomyFile = None
    log: Annotated[
        Path | None,
        typer.Option(help="Decision log, JSON lines; refusals and failures, the newest 64 MiB at least."),
    ] = None
    cache: Annotated[Path | None, typer.Option(help="Signature cache file; default: in your user cache.")] = None

    def settings(self, *, line_by_line: bool = False) -> GuardSettings:
        """Return how the guard decides.

        Args:
            line_by_line: Hold refused writes against no others, unless the command line says so.

        Raises:
            UsageError: a value out of range.
        """
        counts: dict[str, int] = {"distrust_after": 0, "alarm_after": 0} if line_by_line else {}
        for name in ("distrust_after", "alarm_after"):
            if (given := getattr(self, name)) is not None:
                counts[name] = given
        return GuardSettings(
            mode=cast("GuardMode", self.mode),
            behaviour_above_nats=self.behaviour_above,
            near_above_nats=self.near_above,
            doubt_above_nats=self.doubt_above,
            fused_above_nats=self.fused_above,
            on_failure=cast("OnFailure", self.on_failure),
            **counts,
        )


@guard_app.command("check")
@spread_options
def check(
    file: Annotated[
        Path, typer.Argument(help="Writes, JSON lines as for `memaudit import jsonl:FILE`; - reads standard input.")
    ],
    store: Store,
    *,
    tenant: Annotated[str | None, typer.Option(help="Tenant of lines that name none.")] = None,
    options: GuardOptions,
    fail_on: Annotated[str | None, typer.Option(help="Exit 1 on: blocked.")] = None,
    as_json: Json = False,
) -> None:
    """Judge writes before they are stored. Exit 3 where some could not be judged, 1 with --fail-on blocked."""
    check_choice("--fail-on", fail_on, "blocked")
    # A file is asked about to learn of each line; nobody is let in.
    settings = replace(options.settings(line_by_line=True), model_timeout_s=PATIENCE_S)
    entries = _read(file, tenant)
    named = tuple(sorted({entry.tenant for entry in entries}))
    with _guarded(store, options, settings, tenants=named, warm=False) as guarded:
        remember(guarded.snapshot, options.pin)
        decisions: dict[int, GuardDecision] = {}
        for name in named:
            numbers = [number for number, entry in enumerate(entries) if entry.tenant == name]
            found = guarded.guard(name).check_many([entries[number] for number in numbers])
            decisions |= zip(numbers, found, strict=True)
        _warn(guarded)
    judged = [(entry, decisions[number]) for number, entry in enumerate(entries)]
    if as_json:
        print_json([as_record(entry, decision) for entry, decision in judged])
    else:
        _show(judged)
    failed = sum(decision.reason in FAILURES for _, decision in judged)
    if failed:
        raise IncompleteError(
            f"{failed} of {counted(len(judged), 'write')} could not be judged; the policy is {options.on_failure}"
        )
    if fail_on and any(not decision.allowed for _, decision in judged):
        raise typer.Exit(FINDINGS)


@guard_app.command("serve")
@spread_options
def serve(
    store: Store,
    *,
    tenant: Annotated[list[str] | None, typer.Option(help="Whom to serve (repeatable); default: every tenant.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8414,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"File with the token ({MIN_TOKEN_CHARS}+ characters, mode 600); default: $MEMAUDIT_GUARD_TOKEN.",
        ),
    ] = None,
    refresh_s: Annotated[float, typer.Option(help="How often to look for a newer version of the store.")] = 5.0,
    options: GuardOptions,
) -> None:
    """Serve a guard over HTTP.

    POST /check judges a write, or several as JSON lines; GET /health, GET /metrics. Follows the store's newest version.
    """
    from memory_audit.jobs.guard.server import bound, serve_guard  # noqa: PLC0415 - brings the web server

    token = guard_token(token_file)
    if not token and host not in {"127.0.0.1", "::1", "localhost"}:
        raise UsageError(f"--host {host} is open to others: give a token with --token-file or MEMAUDIT_GUARD_TOKEN")
    if not 0 <= port < 1 << 16:
        raise UsageError(f"--port is {port}, expected 0 to 65535")
    if not 0 < refresh_s < math.inf:
        raise UsageError(f"--refresh-s is {refresh_s}, expected more than 0")
    settings, served = options.settings(), tuple(as_signed(name, "--tenant") for name in tenant or ())
    with bound(host, port) as sockets, _guarded(store, options, settings, tenants=served, warm=True) as guarded:
        remember(guarded.snapshot, options.pin)
        _warn(guarded)
        serve_guard(guarded, sockets, token=token, refresh_s=refresh_s, keep=partial(remember, given=options.pin))


@contextlib.contextmanager
def _guarded(
    store: Path, options: GuardOptions, settings: GuardSettings, *, tenants: tuple[str, ...] = (), warm: bool
) -> Iterator[GuardedStore]:
    """Open the guard for as long as the command runs."""
    from memory_audit.jobs.guard.open_guard import open_guard  # noqa: PLC0415 - the model layer

    policy, taxonomy = options.policy(), taxonomy_of(options.taxonomy)
    pin = known_pin(store, options.pin, policy, now_ms())
    with open_guard(
        store, policy, settings=settings, backbone=options.backbone, backbone_key_env=options.backbone_key_env,
        nli=options.nli, embedder=options.embedder, taxonomy=taxonomy, tenants=tenants, pin=pin, log=options.log,
        cache=options.cache, warm=warm, reporter=Reporter(terminal(stderr=True)),
    ) as guarded:  # fmt: skip
        yield guarded


def _read(file: Path, tenant: str | None) -> list[Entry]:
    defaults: dict[str, object] = {"principal": UNNAMED, "source": "agent", "created_at_ms": now_ms()}
    if tenant is not None:
        defaults["tenant"] = tenant
    entries = read_entries(file, defaults)
    if not entries:
        raise UsageError(f"{'standard input' if str(file) == '-' else file}: no writes in it")
    return entries


def _warn(guarded: GuardedStore) -> None:
    """Say which tombstones hold less than they seem to."""
    silent = {name: guard.words_only for name, guard in sorted(guarded.guards.items()) if guard.words_only}
    if silent:
        bare = sum(guard.ids_only for guard in guarded.guards.values())
        but = f", and of {bare} without a fingerprint only the id" if bare else ""
        print_lines(
            f"{as_line(', '.join(silent), 80)}: {counted(sum(silent.values()), 'tombstone')} made without the models "
            f"in use: their own words are kept out and no paraphrase{but}",
            stderr=True,
        )


def _show(judged: list[tuple[Entry, GuardDecision]]) -> None:
    lines = []
    for entry, decision in judged:
        if decision.allowed and decision.reason not in FAILURES:
            continue
        verb = "let in" if decision.allowed else "blocked"
        stone = decision.tombstone
        by = "" if stone is None else f" by the tombstone of {as_line(stone.tombstone.entry_id)}"
        labels = f" ({', '.join(sorted(decision.labels))})" if decision.labels else ""
        parts = f", with {', '.join(map(as_line, decision.with_earlier))}" if decision.with_earlier else ""
        nats = (
            (decision.restated_nats, "behaviour"),
            (decision.hazard_nats, "hazard"),
            (decision.fused_nats, "together"),
        )
        told = ", ".join(f"{what} {value:+.1f} nats" for value, what in nats if value is not None)
        odds = f" ({told})" if told else ""
        line = f"{verb} {as_line(entry.tenant)}/{as_line(entry.entry_id)}{by}: {decision.reason}{labels}{odds}{parts}"
        why = f" ({as_line(decision.detail, 200)})" if decision.detail else ""
        lines.append(f"{line}{why}")
    blocked = sum(not decision.allowed for _, decision in judged)
    print_lines(*lines, f"{counted(len(judged), 'write')} checked, {blocked} blocked")
