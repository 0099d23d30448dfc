"""`memaudit demo`: a poisoned memory audited before the user's eyes, with real models and a real signed store.

    FOLDER/demo.json                         what this demo is of: only a folder with it, or an empty one, is used
    FOLDER/{entries,events}.jsonl, memaudit.yaml   the corpus, as files to copy from
    FOLDER/keys/                             fresh keys of all roles
    FOLDER/store/                            version 1 signed and audited, version 2 purified
    FOLDER/run/                              replays as they arrived, result.json, hazards.json, report.html,
                                             seal.dsse.json, attestation.dsse.json

Every step looks first at what is there, so that a second start of an interrupted demo continues, and one of a finished
demo shows it again. It uses the same functions as the other commands; nothing here is simulated.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from rich.text import Text

from memory_audit.config import load_config
from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.formats.import_jsonl import parse_entries
from memory_audit.formats.outside_file import read_regular
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.demo_corpus import CONFIG_FILE, ENTRIES_FILE, EVENTS_FILE, corpus_folder
from memory_audit.jobs.places import check_outside_stores
from memory_audit.jobs.run.purge.attestation import ATTESTATION_FILE, attest_run
from memory_audit.jobs.run.purge.sealed_run import open_sealed
from memory_audit.jobs.run.run_audit import (
    audit_and_seal,
    make_executor,
    model_specs,
    name_backbone,
    prepare_models,
)
from memory_audit.jobs.run.run_files import MAX_MARKER_BYTES, REPORT_FILE
from memory_audit.jobs.run.run_findings import RunFindings
from memory_audit.jobs.run.run_seal import Sealer
from memory_audit.jobs.watching.progress import Reporter, say, steps
from memory_audit.models.backbone.generator_vllm import VllmSettings
from memory_audit.models.recorded import RECORDED
from memory_audit.models.weights.hub import PACKAGED
from memory_audit.provenance import durable
from memory_audit.provenance.keys import POLICY_FILE, generate_keys, load_keyring, save_keyring
from memory_audit.report.summary import summarise, untold
from memory_audit.report.table import render_table
from memory_audit.report.untrusted import as_line
from memory_audit.request import AuditRequest, read_events
from memory_audit.snapshot.attest import verify_attestation
from memory_audit.snapshot.layout import versions
from memory_audit.snapshot.publishing.publish import create_store
from memory_audit.snapshot.publishing.purify import Purified, purify, read_purified
from memory_audit.snapshot.reader import open_snapshot
from memory_audit.snapshot.verify import verify_store

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from memory_audit.config import AuditConfig
    from memory_audit.jobs.run.purge.sealed_run import SealedRun
    from memory_audit.provenance.keys import Keyring
    from memory_audit.result import AuditResult
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["run_demo"]

MARKER_FILE = "demo.json"
FORMAT = "memaudit demo v1"

SERVING = VllmSettings(max_model_len=4_096, kv_cache_gib=2)
"""Prompts of the corpus have about 900 tokens: half the usual cache holds them, so smaller machines can run it."""

STEPS = 6

RECORDED_AS = {"backbone": RECORDED, "nli": RECORDED, "embedder": RECORDED, "hazards": "off"}

GREETING = """\
MemAudit demo: the memories of two help desks, some of them poisoned. Which ones, only the audit finds out.
working in {folder}; press Ctrl-C at any time, the same command continues"""

RECORDED_GREETING = """\
RECORDED: the models' answers come from a file, as real models gave them once. Signing, audit, purge and verification
are done here and now. `memaudit demo` asks the models."""

LOOK = """\
report: {run}/report.html
look closer:
  memaudit report {run}
  memaudit verify {store} --keys {keys} --deep"""

CLOSING = """\
judge what an agent wants to remember by what was removed:
  memaudit guard check WRITES {store} --keys {keys} --tenant TENANT
on your own data:
  memaudit keys new
  memaudit import jsonl:memories.jsonl STORE --tenant TENANT
  memaudit audit STORE --events events.jsonl --out RUN
  memaudit purge RUN STORE          (add --apply to remove)
memories, events and settings to start from: {folder}"""

STARTING = {
    "ray": "starting Ray and the models: vLLM takes about a minute before it answers",
    "local": "starting the models: vLLM takes about a minute before it answers",
}

KEYS, STORE, RUN = "keys", "store", "run"
"""Folders of a demo."""


def run_demo(  # noqa: PLR0913 - a place, a terminal, and what may differ
    folder: Path,
    console: Console,
    *,
    backbone: str = "packaged",
    backbone_key_env: str | None = None,
    executor: Literal["local", "ray"] = "ray",
    corpus: Path | None = None,
    recorded: bool = False,
) -> Path:
    """Sign a poisoned memory, audit it, purify it, verify the result, and print what happens.

    Args:
        folder: Where to work: absent, empty, or an earlier demo with the same corpus and backbone, which is continued.
        console: Where to print; bars on a terminal, plain lines elsewhere.
        backbone: As `AuditConfig.backbone`; the corpus was written for the default.
        backbone_key_env: As `AuditConfig.backbone_key_env`.
        executor: `ray` starts Ray on this machine; `local` works in this process.
        corpus: Folder with the three files of `memory_audit.jobs.demo_corpus`; None is the packaged one.
        recorded: Take recorded answers (`memory_audit.models.recorded`), in this process; of the packaged corpus.

    Returns:
        The HTML report.

    Raises:
        UsageError: the folder holds something else; a backbone beside `recorded`.
        IncompleteError: the demo stopped; the same call continues it.
    """
    source = corpus_folder() if corpus is None else corpus
    options: dict[str, object] = {"backbone": backbone, "backbone_key_env": backbone_key_env}
    if recorded:
        if backbone != PACKAGED:
            raise UsageError("--recorded takes recorded answers, and --backbone names a model that is to be asked")
        options, executor = dict(RECORDED_AS), "local"
    config = name_backbone(load_config(source / CONFIG_FILE, options))
    _claim(folder, source, config)

    def step(number: int, title: str) -> None:
        console.print(Text(f"\n[{number}/{STEPS}] {title}", style="bold cyan"))

    with Reporter(console):
        say(GREETING.format(folder=folder))
        if recorded:
            say(RECORDED_GREETING)

        step(1, "Models")
        specs = replace(model_specs(config), vllm=SERVING)
        with steps() as progress:
            prepare_models(config, progress)
        say(f"backbone {specs.backbone}, NLI {specs.nli}, embeddings {specs.embedder}: ready")

        step(2, "Sign the memories into a store and verify it")
        keyring = _keys(folder)
        snapshot = _sign(folder, keyring)

        step(3, "Audit: replay what went wrong, with memories left out")
        request = AuditRequest(snapshot=snapshot, events=read_events(folder / EVENTS_FILE), config=config)
        _say_what_is_asked(request, "no model has to start" if recorded else STARTING[executor])
        worker = make_executor(specs, local=executor == "local", address=None)
        audited = audit_and_seal(request, worker, folder / RUN, Sealer(keyring), now_ms=now_ms())
        run = open_sealed(folder / RUN, keyring.policy, seal=audited.seal)

        step(4, "Verdict")
        console.print(render_table(run.result, RunFindings(run.path, run.result)))

        step(5, "Purify the store")
        purified = _purify(folder, snapshot, run, keyring)

        step(6, "Verify the purified store")
        if purified is not None:
            statement = attest_run(run, purified, keyring, now_ms=now_ms())
            _verify(folder, snapshot, statement, keyring)

        _close(folder, run.result)
    return folder / RUN / REPORT_FILE


def _claim(folder: Path, source: Path, config: AuditConfig) -> None:
    """Take the folder for this demo, or refuse it.

    Raises:
        UsageError: it holds something else.
    """
    names = (ENTRIES_FILE, EVENTS_FILE, CONFIG_FILE)
    files = {name: (source / name).read_bytes() for name in names}
    identity = {"format": FORMAT, "configuration": config.digest()}
    identity |= {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    marker = folder / MARKER_FILE
    if marker.is_file():
        if _read_marker(marker) != identity:
            raise UsageError(f"{folder}: holds a demo with another backbone or corpus; choose another folder")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder}: is not empty and holds no demo; choose another folder")
    check_outside_stores(folder)
    durable.ensure_folder(folder)
    durable.replace(marker, json.dumps(identity, indent=1, sort_keys=True).encode())
    for name, data in files.items():
        if name == CONFIG_FILE:  # the copy says what was really run
            data += f"\nbackbone: {json.dumps(config.backbone)}\n".encode()  # noqa: PLW2901
        durable.replace(folder / name, data)


def _read_marker(marker: Path) -> object:
    try:
        return json.loads(read_regular(marker, MAX_MARKER_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def _remove(folder: Path) -> None:
    """Remove a folder of this demo with all that is in it; absent is fine.

    Raises:
        UsageError: somebody nested folders in it as deep as no demo does.
    """
    try:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
    except RecursionError:
        raise UsageError(f"{folder}: folders nested too deep to be removed; remove it yourself") from None


def _keys(folder: Path) -> Keyring:
    if not (folder / KEYS / POLICY_FILE).is_file():  # it is written last: without it the folder is a torso
        _remove(folder / KEYS)
        save_keyring(generate_keys(), folder / KEYS)
    return load_keyring(folder / KEYS)


def _sign(folder: Path, keyring: Keyring) -> VerifiedSnapshot:
    """Import the corpus, unless that is done, and return version 1, verified to the last entry."""
    if not (folder / STORE / "manifests" / "1.json").is_file():
        _remove(folder / RUN)  # of a store that is gone
        path = folder / ENTRIES_FILE
        with path.open("rb") as lines:
            entries = list(parse_entries(lines, path.name, {}))
        create_store(folder / STORE, entries, keyring, now_ms=now_ms())
    snapshot = open_snapshot(folder / STORE, keyring.policy, now_ms=now_ms(), version=1)
    for tenant in snapshot.tenants:
        snapshot.log(tenant)
    say(
        f"{counted(snapshot.manifest.entries, 'memory')} of {counted(len(snapshot.tenants), 'tenant')} "
        f"({', '.join(map(as_line, snapshot.tenants))}), each signed by its writer and logged; version "
        f"{snapshot.version} verifies"
    )
    return snapshot


def _say_what_is_asked(request: AuditRequest, what_starts: str) -> None:
    events = request.events.events
    harmful = sum(event.harm == "harmful" for event in events)
    say(
        f"{counted(harmful, 'harmful event')} and {counted(len(events) - harmful, 'answer')} not marked harmful, "
        f"which must survive; {what_starts}"
    )


def _purify(folder: Path, snapshot: VerifiedSnapshot, run: SealedRun, keyring: Keyring) -> Purified | None:
    result = run.result
    removals = result.removals
    if not removals:
        say("nothing to remove: the store stays as it is")
        return None
    if versions(folder / STORE)[-1] > snapshot.version:  # an interrupted or finished demo removed it
        newest = open_snapshot(folder / STORE, keyring.policy, now_ms=now_ms(), pin=snapshot.pin())
        purified = read_purified(newest, result.run_id, snapshot.digest)
        if purified is None:
            raise UsageError(f"{folder / STORE}: was changed after the demo; choose another folder")
        say(f"done by an earlier start: version {purified.version}, {counted(purified.entries, 'memory')}")
        return purified
    now = now_ms()
    extra, taxonomy = run.block_records_of(result)

    def remove(*, dry_run: bool) -> Purified:
        return purify(
            folder / STORE, snapshot, removals, keyring, run_id=result.run_id, now_ms=now,
            config={**result.config, **taxonomy}, models=result.models, extra=extra, dry_run=dry_run,
        )  # fmt: skip

    say("dry run, as `memaudit purge` does without --apply:")
    for item in remove(dry_run=True).removed:
        say(f"  would remove {as_line(item.tenant)}/{as_line(item.entry_id)}: {as_line(item.reason, 120)}")
    purified = remove(dry_run=False)
    say(
        f"applied, since this store is the demo's own copy: version {purified.version} has "
        f"{counted(purified.entries, 'memory')} and {counted(len(purified.removed), 'signed tombstone')}, "
        "holding what the removed ones taught and none of their text"
    )
    return purified


def _verify(folder: Path, audited: VerifiedSnapshot, statement: bytes, keyring: Keyring) -> None:
    """Verify everything as a stranger with the policy and a pin would."""
    pin, now = audited.pin(), now_ms()
    with steps() as progress:
        report = verify_store(
            folder / STORE, keyring.policy, now_ms=now, pin=pin, deep=True, progress=progress, workers=1
        )
    say(
        f"version {report.version}: {counted(report.files, 'file')}, {counted(report.entries, 'memory')}, "
        f"{counted(report.tombstones, 'tombstone')}, {counted(report.signatures, 'signature')} over "
        f"{counted(len(report.versions), 'version')}: all verify"
    )
    for step in report.steps:
        say(
            f"  log of {as_line(step.tenant)}: what was audited ({counted(step.from_size, 'leaf')}) is the start of "
            f"what is published ({counted(step.to_size, 'leaf')}; consistency proof of "
            f"{counted(step.proof_hashes, 'hash')})"
        )
    newest = open_snapshot(folder / STORE, keyring.policy, now_ms=now, pin=pin)
    verify_attestation(statement, keyring.policy, ATTESTATION_FILE, snapshot=newest)
    say(f"  attestation {folder / RUN / ATTESTATION_FILE}: signed by the auditor, agrees with the log")


def _close(folder: Path, result: AuditResult) -> None:
    """Say what came of it, where it lies, and what to do next."""
    say("")
    for tenant in result.tenants:
        counts = summarise([tenant])
        left = f" ({quiet})" if (quiet := untold(counts)) else ""
        say(
            f"{as_line(tenant.tenant)}: harm in {counts.harmful_before} of {counts.judged} replays before, in "
            f"{counts.harmful_after} after{left}; {counts.probes_kept} of {counts.probes} benign answers kept; "
            f"{counts.removed} of {tenant.entries} memories removed"
        )
    places = {"folder": folder, "keys": folder / KEYS, "store": folder / STORE, "run": folder / RUN}
    say(LOOK.format(**places))
    if result.config.get("hazards") != "off":  # else nothing is there that a guard could read paraphrases by
        say(CLOSING.format(**places))
