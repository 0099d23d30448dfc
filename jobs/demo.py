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
from dataclasses import dataclass, replace
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
from memory_audit.jobs.progress import Reporter
from memory_audit.jobs.run.attestation import ATTESTATION_FILE, attest_run
from memory_audit.jobs.run.block_records import write_block_records
from memory_audit.jobs.run.run_audit import (
    REPORT_FILE,
    make_executor,
    model_specs,
    name_backbone,
    prepare_models,
    read_events,
    run_audit,
)
from memory_audit.jobs.run.run_folder import KINDS, MAX_MARKER_BYTES
from memory_audit.jobs.run.run_seal import Sealer
from memory_audit.jobs.run.sealed_run import open_sealed
from memory_audit.models.backbone.generator_vllm import VllmSettings
from memory_audit.provenance import durable
from memory_audit.provenance.keys import POLICY_FILE, generate_keys, load_keyring, save_keyring
from memory_audit.report.summary import summarise, untold
from memory_audit.report.table import render_table
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.attest import verify_attestation
from memory_audit.snapshot.layout import versions
from memory_audit.snapshot.publishing.publish import create_store
from memory_audit.snapshot.publishing.purify import Purified, RemovedEntry, purify
from memory_audit.snapshot.reader import open_snapshot
from memory_audit.snapshot.verify import verify_store

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from memory_audit.config import AuditConfig
    from memory_audit.jobs.run.sealed_run import SealedRun
    from memory_audit.models.loading import ModelSpecs
    from memory_audit.provenance.keys import Keyring
    from memory_audit.result import AuditResult
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["run_demo"]

MARKER_FILE = "demo.json"
FORMAT = "memaudit demo v1"

SERVING = VllmSettings(max_model_len=4_096, kv_cache_gib=2)
"""Prompts of the corpus have about 900 tokens: half the usual cache holds them, so smaller machines can run it."""

STEPS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where everything of one demo lies."""

    folder: Path

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def run(self) -> Path:
        return self.folder / "run"


def run_demo(  # noqa: PLR0913 - a place, a terminal, and what may differ
    folder: Path,
    console: Console,
    *,
    backbone: str = "packaged",
    backbone_key_env: str | None = None,
    executor: Literal["local", "ray"] = "ray",
    keep: bool = True,
    corpus: Path | None = None,
) -> Path:
    """Sign a poisoned memory, audit it, purify it, verify the result, and print what happens.

    Args:
        folder: Where to work: absent, empty, or an earlier demo with the same corpus and backbone, which is continued.
        console: Where to print; bars on a terminal, plain lines elsewhere.
        backbone: As `AuditConfig.backbone`; the corpus was written for the default.
        backbone_key_env: As `AuditConfig.backbone_key_env`.
        executor: `ray` starts Ray on this machine; `local` works in this process.
        keep: False deletes keys, store and replays at the end and leaves report, result and attestation.
        corpus: Folder with the three files of `memory_audit.jobs.demo_corpus`; None is the packaged one.

    Returns:
        The HTML report.

    Raises:
        UsageError: the folder holds something else.
        IncompleteError: the demo stopped; the same call continues it.
    """
    place = _Layout(folder=folder)
    source = corpus_folder() if corpus is None else corpus
    options = {"backbone": backbone, "backbone_key_env": backbone_key_env}
    config = name_backbone(load_config(source / CONFIG_FILE, options))
    _claim(place, source, config)
    reporter = Reporter(console)
    say = _Narrator(console)
    say.plain(
        "MemAudit demo: the memories of two help desks, some of them poisoned. Which ones, only the audit finds out."
    )
    say.plain(f"working in {folder}; press Ctrl-C at any time, the same command continues")

    say.step(1, "Models")
    specs = replace(model_specs(config), vllm=SERVING)
    with reporter.steps() as progress:
        prepare_models(config, progress)
    say.plain(f"backbone {specs.backbone}, NLI {specs.nli}, embeddings {specs.embedder}: ready")

    say.step(2, "Sign the memories into a store and verify it")
    keyring = _keys(place)
    snapshot = _sign(place, keyring)
    say.plain(
        f"{counted(snapshot.manifest.entries, 'memory')} of {counted(len(snapshot.tenants), 'tenant')} "
        f"({_names(snapshot.tenants)}), each signed by its writer and logged; version {snapshot.version} verifies"
    )

    say.step(3, "Audit: replay what went wrong, with memories left out")
    run = _audit(place, snapshot, config, specs, executor, keyring, reporter, say)

    say.step(4, "Verdict")
    console.print(render_table(run.result))

    say.step(5, "Purify the store")
    purified = _purify(place, snapshot, run, keyring, say)

    say.step(6, "Verify the purified store")
    if purified is not None:
        _verify(place, snapshot, purified, run, keyring, reporter, say)

    _close(place, run.result, say, keep=keep)
    return place.run / REPORT_FILE


class _Narrator:
    """Prints steps and plain lines; nothing of it is parsed as markup."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def step(self, number: int, title: str) -> None:
        self._console.print(Text(f"\n[{number}/{STEPS}] {title}", style="bold cyan"))

    def plain(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _claim(place: _Layout, source: Path, config: AuditConfig) -> None:
    """Take the folder for this demo, or refuse it.

    Raises:
        UsageError: it holds something else.
    """
    names = (ENTRIES_FILE, EVENTS_FILE, CONFIG_FILE)
    files = {name: (source / name).read_bytes() for name in names}
    identity = {"format": FORMAT, "configuration": config.digest()}
    identity |= {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    marker = place.folder / MARKER_FILE
    if marker.is_file():
        if _read_marker(marker) != identity:
            raise UsageError(f"{place.folder}: holds a demo with another backbone or corpus; choose another folder")
    elif place.folder.exists() and (not place.folder.is_dir() or any(place.folder.iterdir())):
        raise UsageError(f"{place.folder}: is not empty and holds no demo; choose another folder")
    check_outside_stores(place.folder)
    durable.ensure_folder(place.folder)
    durable.replace(marker, json.dumps(identity, indent=1, sort_keys=True).encode())
    for name, data in files.items():
        if name == CONFIG_FILE:  # the copy says what was really run
            data += f"\nbackbone: {json.dumps(config.backbone)}\n".encode()  # noqa: PLW2901
        durable.replace(place.folder / name, data)


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


def _keys(place: _Layout) -> Keyring:
    if not (place.keys / POLICY_FILE).is_file():  # it is written last: without it the folder is a torso
        _remove(place.keys)
        save_keyring(generate_keys(), place.keys)
    return load_keyring(place.keys)


def _sign(place: _Layout, keyring: Keyring) -> VerifiedSnapshot:
    """Import the corpus, unless that is done, and return version 1, verified to the last entry."""
    if not (place.store / "manifests" / "1.json").is_file():
        _remove(place.run)  # of a store that is gone
        path = place.folder / ENTRIES_FILE
        with path.open("rb") as lines:
            entries = list(parse_entries(lines, path.name, {}))
        create_store(place.store, entries, keyring, now_ms=now_ms())
    snapshot = open_snapshot(place.store, keyring.policy, now_ms=now_ms(), version=1)
    for tenant in snapshot.tenants:
        snapshot.log(tenant)
    return snapshot


def _audit(  # noqa: PLR0913, PLR0917 - the parts of a run
    place: _Layout,
    snapshot: VerifiedSnapshot,
    config: AuditConfig,
    specs: ModelSpecs,
    executor: Literal["local", "ray"],
    keyring: Keyring,
    reporter: Reporter,
    say: _Narrator,
) -> SealedRun:
    events = read_events(place.folder / EVENTS_FILE)
    harmful = sum(event.harm == "harmful" for event in events[0])
    say.plain(
        f"{counted(harmful, 'harmful event')} and {counted(len(events[0]) - harmful, 'answer')} not marked harmful, "
        f"which must survive; starting {'Ray and ' if executor == 'ray' else ''}the models: vLLM takes about a minute "
        "before it answers"
    )
    worker, sealer = make_executor(specs, local=executor == "local", address=None), Sealer(keyring)
    try:
        result = run_audit(snapshot, events, config, worker, place.run, reporter, now_ms=now_ms(), sealer=sealer)
        write_block_records(snapshot, result, config, worker, place.run, reporter, sealer)
    finally:
        worker.close()
    seal = sealer.seal(place.run, result.store, result.snapshot_version)
    return open_sealed(place.run, keyring.policy, seal=seal)


def _purify(
    place: _Layout, snapshot: VerifiedSnapshot, run: SealedRun, keyring: Keyring, say: _Narrator
) -> Purified | None:
    result = run.result
    removals = result.removals
    if not removals:
        say.plain("nothing to remove: the store stays as it is")
        return None
    if versions(place.store)[-1] > snapshot.version:
        purified = _purified_before(place, snapshot, result, keyring)
        say.plain(f"done by an earlier start: version {purified.version}, {counted(purified.entries, 'memory')}")
        return purified
    now = now_ms()
    extra, taxonomy = run.block_records_of(result)

    def remove(*, dry_run: bool) -> Purified:
        return purify(
            place.store, snapshot, removals, keyring, run_id=result.run_id, now_ms=now,
            config={**result.config, **taxonomy}, models=result.models, extra=extra, dry_run=dry_run,
        )  # fmt: skip

    say.plain("dry run, as `memaudit purge` does without --apply:")
    for item in remove(dry_run=True).removed:
        say.plain(f"  would remove {as_line(item.tenant)}/{as_line(item.entry_id)}: {as_line(item.reason, 120)}")
    purified = remove(dry_run=False)
    say.plain(
        f"applied, since this store is the demo's own copy: version {purified.version} has "
        f"{counted(purified.entries, 'memory')} and {counted(len(purified.removed), 'signed tombstone')}, "
        "holding what the removed ones taught and none of their text"
    )
    return purified


def _purified_before(place: _Layout, snapshot: VerifiedSnapshot, result: AuditResult, keyring: Keyring) -> Purified:
    """Read back what an interrupted or finished demo has removed."""
    newest = open_snapshot(place.store, keyring.policy, now_ms=now_ms(), pin=snapshot.pin())
    if newest.manifest.parent != snapshot.digest or newest.manifest.run_id != result.run_id:
        raise UsageError(f"{place.store}: was changed after the demo; choose another folder")
    removed = tuple(
        RemovedEntry(
            tenant=tenant, entry_id=stone.entry_id, index=stone.removed_index,
            leaf_hash=stone.removed_leaf_hash.hex(), reason=stone.reason,
        )
        for tenant in newest.tenants
        for stone in newest.tombstones(tenant)
    )  # fmt: skip
    return Purified(
        store_id=newest.store_id, audited_version=snapshot.version, audited_digest=snapshot.digest,
        version=newest.version, digest=newest.digest, published=True,
        removed=tuple(sorted(removed, key=lambda item: (item.tenant, item.index))), entries=newest.manifest.entries,
    )  # fmt: skip


def _verify(  # noqa: PLR0913, PLR0917 - two versions, what lies between them, and what judges it
    place: _Layout,
    audited: VerifiedSnapshot,
    purified: Purified,
    run: SealedRun,
    keyring: Keyring,
    reporter: Reporter,
    say: _Narrator,
) -> None:
    """Attest the purification, then verify everything as a stranger with the policy and a pin would."""
    pin = audited.pin()
    statement = attest_run(run, purified, keyring, now_ms=now_ms())
    with reporter.steps() as progress:
        report = verify_store(
            place.store, keyring.policy, now_ms=now_ms(), pin=pin, deep=True, progress=progress, workers=1
        )
    say.plain(
        f"version {report.version}: {counted(report.files, 'file')}, {counted(report.entries, 'memory')}, "
        f"{counted(report.tombstones, 'tombstone')}, {counted(report.signatures, 'signature')} over "
        f"{counted(len(report.versions), 'version')}: all verify"
    )
    for step in report.steps:
        say.plain(
            f"  log of {as_line(step.tenant)}: what was audited ({counted(step.from_size, 'leaf')}) is the start of "
            f"what is published ({counted(step.to_size, 'leaf')}; consistency proof of "
            f"{counted(step.proof_hashes, 'hash')})"
        )
    newest = open_snapshot(place.store, keyring.policy, now_ms=now_ms(), pin=pin)
    verify_attestation(statement, keyring.policy, ATTESTATION_FILE, snapshot=newest)
    say.plain(f"  attestation {place.run / ATTESTATION_FILE}: signed by the auditor, agrees with the log")


def _close(place: _Layout, result: AuditResult, say: _Narrator, *, keep: bool) -> None:
    """Say what came of it, where it lies, and what to do next."""
    say.plain("")
    for tenant in result.tenants:
        counts = summarise([tenant])
        left = f" ({quiet})" if (quiet := untold(counts)) else ""
        say.plain(
            f"{as_line(tenant.tenant)}: harm in {counts.harmful_before} of {counts.judged} replays before, in "
            f"{counts.harmful_after} after{left}; {counts.probes_kept} of {counts.probes} benign answers kept; "
            f"{counts.removed} of {tenant.entries} memories removed"
        )
    report = place.run / REPORT_FILE
    say.plain(f"report: {report}")
    if keep:
        say.plain("look closer:")
        say.plain(f"  memaudit report {place.run}")
        say.plain(f"  memaudit verify {place.store} --keys {place.keys} --deep")
        say.plain("judge what an agent wants to remember by what was removed:")
        say.plain(f"  memaudit guard check WRITES {place.store} --keys {place.keys} --tenant TENANT")
    else:
        for path in (place.keys, place.store, *(place.run / kind for kind in KINDS)):
            _remove(path)
        say.plain("keys, store and replays of the demo are deleted; report, result and attestation stay")
    say.plain("on your own data:")
    say.plain("  memaudit keys new")
    say.plain("  memaudit import jsonl memories.jsonl STORE --tenant TENANT")
    say.plain("  memaudit audit STORE --events events.jsonl --out RUN")
    say.plain("  memaudit purge RUN STORE          (add --apply to remove)")
    say.plain(f"memories, events and settings to start from: {place.folder}")


def _names(tenants: tuple[str, ...]) -> str:
    return ", ".join(as_line(tenant) for tenant in tenants)
