"""The attestation of a purification or a quarantine: an in-toto Statement v1 in a DSSE envelope, of the auditor.

    {"_type": "https://in-toto.io/Statement/v1",
     "subject": [{"name": "memaudit/6d1f…@3", "digest": {"sha256": digest of manifest 3}}],
     "predicateType": "urn:memaudit:purification:v1",
     "predicate": {"runId": "…", "createdMs": …, "parameters": {…}, "models": {…},
                   "resolvedDependencies": [{"name": "memaudit/6d1f…@2", "digest": {"sha256": …}}],
                   "removed": [{"tenant", "entryId", "leafIndex", "leafHash", "reason"} …],
                   "scoreTables": [{"name": "…", "digest": {"sha256": …}} …]}}

Of a quarantine it is of type "urn:memaudit:quarantine:v1", and has `quarantined` in the place of `removed`.

The subject is the purified snapshot, the resolved dependency the version before: the audited one, unless what is
removed was in quarantine meanwhile. It says why; the log proves what. It states all that the run has removed, or has in
quarantine, in that version. Parameters and models stand there as in the manifest (`recorded_settings`). Against a
snapshot, a verifier MUST reject a statement about a version that was made otherwise, about another store, version or
run than its manifest names, with other models, with a parameter that its manifest does not have so, and with other
entries than its log shows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memory_audit.entry import MAX_TIME_MS
from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import dsse, strict_json
from memory_audit.provenance.leaf import MAX_REASON_BYTES
from memory_audit.provenance.tlog.merkle import HASH_BYTES, MAX_TREE_SIZE
from memory_audit.snapshot.layout import MAX_VERSION, bucket_of
from memory_audit.snapshot.manifest import MAX_SETTING_BYTES, MAX_SETTINGS
from memory_audit.snapshot.publishing.draft import recorded_settings
from memory_audit.snapshot.publishing.purify import MAX_REMOVED, RemovedEntry, removal_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.publishing.purify import Purified, Withdrawal
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = [
    "MAX_ATTESTATION_BYTES", "PREDICATES", "Attestation", "attest", "parse_attestation", "verify_attestation",
]  # fmt: skip

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATES: Mapping[Withdrawal, tuple[str, str]] = MappingProxyType({
    "purify": ("urn:memaudit:purification:v1", "removed"), "quarantine": ("urn:memaudit:quarantine:v1", "quarantined"),
})  # fmt: skip
"""Type, and member that lists the entries."""

MAX_ATTESTATION_BYTES = 256 << 20
"""A hundred thousand removed entries with their reasons."""

MAX_TABLES = 10_000

_SNAPSHOT_NAME = re.compile(r"memaudit/([0-9a-f]{32})@([1-9][0-9]{0,6})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """A verified statement about one purification or quarantine."""

    operation: Withdrawal
    store_id: str
    audited_version: int
    audited_digest: str
    version: int
    digest: str
    run_id: str
    created_ms: int
    parameters: Mapping[str, str]
    models: Mapping[str, str]
    removed: tuple[RemovedEntry, ...]
    """Or put in quarantine."""

    score_tables: Mapping[str, str]
    """File name to SHA-256 (hex)."""


def attest(  # noqa: PLR0913 - what the statement says
    purified: Purified,
    keyring: Keyring,
    *,
    run_id: str,
    now_ms: int,
    parameters: Mapping[str, str],
    models: Mapping[str, str],
    score_tables: Mapping[str, str],
) -> bytes:
    """Sign the statement of a published purification or quarantine.

    Raises:
        UsageError: a dry run, a statement that no verifier would accept, or the auditor's key is missing.
    """
    if purified.digest is None:
        raise UsageError("nothing to attest: the purification was a dry run")
    predicate_type, member = PREDICATES[purified.operation]
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [_snapshot(purified.store_id, purified.version, purified.digest)],
        "predicateType": predicate_type,
        "predicate": {
            "runId": run_id,
            "createdMs": now_ms,
            "parameters": recorded_settings(parameters),
            "models": recorded_settings(models),
            "resolvedDependencies": [_snapshot(purified.store_id, purified.audited_version, purified.audited_digest)],
            member: [removal_record(item) for item in purified.removed],
            "scoreTables": [
                {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(score_tables.items())
            ],
        },
    }
    data = dsse.seal(PAYLOAD_TYPE, strict_json.encode(statement), keyring.signers("auditor"))
    try:
        verify_attestation(data, keyring.policy, f"attestation of version {purified.version}")
    except VerificationError as error:
        raise UsageError(f"no verifier would accept the {error}; shorten or leave out what is named there") from None
    return data


def verify_attestation(
    data: bytes, trust: TrustPolicy, where: str, *, snapshot: VerifiedSnapshot | None = None
) -> Attestation:
    """Verify an attestation, and that it is about `snapshot` where one is given.

    Raises:
        VerificationError: signature, form, another purification than the snapshot's, or a removal that only one of
            attestation and log shows.
    """
    envelope = dsse.parse_envelope(data, PAYLOAD_TYPE, max_bytes=MAX_ATTESTATION_BYTES, where=where)
    auditor = trust.roles["auditor"]
    dsse.verify_envelope(envelope, auditor.keys, 1, "auditor")  # before a stranger's is parsed
    attestation = _parse(strict_json.Fields(envelope.json(MAX_ATTESTATION_BYTES), where))
    keys = trust.manifest_keys("auditor", attestation.store_id, attestation.version)
    dsse.verify_envelope(envelope, keys, auditor.threshold, "auditor")
    if snapshot is not None:
        _check_against(attestation, snapshot, where)
    return attestation


def parse_attestation(data: bytes, where: str) -> Attestation:
    """Read an attestation by the word of a file that anybody may have written: to show, not to act upon.

    Raises:
        VerificationError: no attestation.
    """
    envelope = dsse.parse_envelope(data, PAYLOAD_TYPE, max_bytes=MAX_ATTESTATION_BYTES, where=where)
    return _parse(strict_json.Fields(envelope.json(MAX_ATTESTATION_BYTES), where))


def _check_against(attestation: Attestation, snapshot: VerifiedSnapshot, where: str) -> None:
    manifest = snapshot.manifest
    if attestation.digest != snapshot.digest:
        raise VerificationError(f"{where}: about snapshot {attestation.digest}, expected {snapshot.digest}")
    if manifest.operation != attestation.operation:
        raise VerificationError(
            f"{where}: about a version made by {manifest.operation!r}, expected {attestation.operation!r}"
        )
    if manifest.parent != attestation.audited_digest:
        raise VerificationError(
            f"{where}: audited {attestation.audited_digest}, the snapshot's parent is {manifest.parent}"
        )
    for what, stated, expected in (
        ("store", attestation.store_id, manifest.store_id),
        ("version", attestation.version, manifest.version),
        ("audited version", attestation.audited_version, manifest.version - 1),
        ("run", attestation.run_id, manifest.run_id),
    ):
        if stated != expected:
            raise VerificationError(f"{where}: about {what} {stated!r:.80}, expected {expected!r:.80}")
    roles = {*attestation.models, *manifest.models}
    _check_settings(f"{where}: model", roles, attestation.models, manifest.models)
    # the manifest may have more: it also describes the taxonomy of the tombstones
    _check_settings(f"{where}: parameter", attestation.parameters, attestation.parameters, manifest.config)
    _check_removed(attestation, snapshot, where)


def _check_settings(where: str, names: Iterable[str], stated: Mapping[str, str], expected: Mapping[str, str]) -> None:
    for name in sorted(names):
        if stated.get(name) != expected.get(name):
            raise VerificationError(
                f"{where} {name!r:.80} is {stated.get(name)!r:.80}, expected {expected.get(name)!r:.80}"
            )


def _check_removed(attestation: Attestation, snapshot: VerifiedSnapshot, where: str) -> None:
    buckets = snapshot.manifest.buckets
    buried = {tenant for tenant in snapshot.tenants if buckets[bucket_of(tenant)].tombstones is not None}
    for tenant in sorted(buried | {item.tenant for item in attestation.removed}):
        stones = snapshot.tombstones(tenant) if tenant in buried else ()
        in_log = {
            (stone.entry_id, stone.removed_index, stone.removed_leaf_hash.hex(), stone.reason)
            for stone in stones
            if stone.run_id == attestation.run_id and stone.quarantines == (attestation.operation == "quarantine")
        }
        stated = {
            (item.entry_id, item.index, item.leaf_hash, item.reason)
            for item in attestation.removed
            if item.tenant == tenant
        }
        if in_log != stated:
            odd = min(in_log ^ stated)
            member = PREDICATES[attestation.operation][1]
            raise VerificationError(f"{where}: entry {odd[0]!r:.80} of tenant {tenant!r:.80} is {member} in one of two")


def _snapshot(store_id: str, version: int, digest: str) -> dict[str, Any]:
    return {"name": f"memaudit/{store_id}@{version}", "digest": {"sha256": digest}}


def _parse(fields: strict_json.Fields) -> Attestation:
    where = fields.where
    stated = fields.text("_type"), fields.text("predicateType")
    operation = next((one for one, (kind, _) in PREDICATES.items() if stated == (STATEMENT_TYPE, kind)), None)
    if operation is None:
        kinds = " or ".join(kind for kind, _ in PREDICATES.values())
        raise VerificationError(f"{where}: not an in-toto statement of type {kinds}")
    store_id, version, digest = _parse_snapshot(fields, "subject")
    predicate = fields.object("predicate")
    audited_store, audited_version, audited_digest = _parse_snapshot(predicate, "resolvedDependencies")
    if audited_store != store_id or audited_version >= version:
        raise VerificationError(f"{where}: version {version} cannot follow from {audited_version} of {audited_store}")
    removed = []
    for item in predicate.objects(PREDICATES[operation][1], MAX_REMOVED):
        removed.append(
            RemovedEntry(
                tenant=item.text("tenant"),
                entry_id=item.text("entryId"),
                index=item.whole("leafIndex", MAX_TREE_SIZE),
                leaf_hash=item.hex_bytes("leafHash", HASH_BYTES).hex(),
                reason=item.text("reason", MAX_REASON_BYTES),
            )
        )
        item.done()
    tables = {}
    for item in predicate.objects("scoreTables", MAX_TABLES):
        tables[item.text("name")] = _parse_digest(item)
        item.done()
    attestation = Attestation(
        operation=operation,
        store_id=store_id,
        audited_version=audited_version,
        audited_digest=audited_digest,
        version=version,
        digest=digest,
        run_id=predicate.text("runId"),
        created_ms=predicate.whole("createdMs", MAX_TIME_MS),
        parameters=MappingProxyType(predicate.texts("parameters", MAX_SETTINGS, MAX_SETTING_BYTES)),
        models=MappingProxyType(predicate.texts("models", MAX_SETTINGS, MAX_SETTING_BYTES)),
        removed=tuple(removed),
        score_tables=MappingProxyType(tables),
    )
    predicate.done()
    fields.done()
    return attestation


def _parse_snapshot(fields: strict_json.Fields, name: str) -> tuple[str, int, str]:
    items = fields.objects(name, 1)
    if len(items) != 1:
        raise VerificationError(f"{fields.where}: {name!r} must name one snapshot")
    match = _SNAPSHOT_NAME.fullmatch(items[0].text("name"))
    if match is None or int(match[2]) > MAX_VERSION:
        raise VerificationError(f"{fields.where}: {name!r} does not name a snapshot")
    digest = _parse_digest(items[0])
    items[0].done()
    return match[1], int(match[2]), digest


def _parse_digest(fields: strict_json.Fields) -> str:
    digest = fields.object("digest")
    value = digest.hex_bytes("sha256", HASH_BYTES).hex()
    digest.done()
    return value
