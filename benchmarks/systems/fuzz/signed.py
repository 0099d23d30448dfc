"""Targets of what a store signs: proofs, notes, keys, leaves, envelopes with manifests and policies, Parquet files.

Payloads are mutated inside the signature (the auditor is the attacker's), so that inputs reach the rules behind it. The
keys are the same in every process: an input found by one engine is an input of all.
"""

from __future__ import annotations

import hashlib
import io
import json
from base64 import b64decode
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

import pyarrow.parquet as pq

from benchmarks.systems.fuzz.target import Target, same
from memory_audit.calibration_file import PAYLOAD_TYPE as CALIBRATION_TYPE
from memory_audit.calibration_file import CalibrationFile, Incident, Setting, parse_calibration, sign_calibration
from memory_audit.entry import Entry, Parent
from memory_audit.errors import AuditError
from memory_audit.jobs.run.run_seal import PAYLOAD_TYPE as SEAL_TYPE
from memory_audit.jobs.run.run_seal import read_seal
from memory_audit.provenance import base64_strict, cbor, dsse, strict_json
from memory_audit.provenance.ed25519 import PrivateKey, PublicKey
from memory_audit.provenance.key_files.pem import decode_pem, encode_pem
from memory_audit.provenance.key_files.token import TokenKey
from memory_audit.provenance.keys import Keyring
from memory_audit.provenance.leaf import LEAF_START, Tombstone, encode_entry, encode_tombstone
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.checkpoint import Checkpoint, parse_checkpoint_text, sign_checkpoint
from memory_audit.provenance.tlog.note import open_note, parse_note
from memory_audit.provenance.tlog.tiles import edge_bytes
from memory_audit.provenance.trust_policy import (
    ANY_PRINCIPAL,
    PAYLOAD_TYPE,
    Revocation,
    Role,
    RoleName,
    TrustPolicy,
    sign_policy,
)
from memory_audit.snapshot.attest import attest, verify_attestation
from memory_audit.snapshot.checkpoints import encode_checkpoints, parse_checkpoints
from memory_audit.snapshot.columns import tables as columns
from memory_audit.snapshot.columns.rows import check_rows_format, signed_leaves, tenants_of
from memory_audit.snapshot.columns.tables import (
    SignedEntry,
    SignedTombstone,
    read_entries,
    read_table,
    read_tombstones,
)
from memory_audit.snapshot.layout import FileRef, bucket_of
from memory_audit.snapshot.manifest import BucketFiles, Manifest, open_manifest, sign_manifest, tombstones_root
from memory_audit.snapshot.pin import parse_pin
from memory_audit.snapshot.publishing.purify import Purified, RemovedEntry, Withdrawal
from tests.conformance import cbor_reader
from tests.conformance.leaf_reader import decode_leaf

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

__all__ = ["NOW_MS", "keyring", "signed_targets"]

NOW_MS = 1_800_000_000_000
STORE = "cd" * 16
TREE_SIZE = 70_000


@cache
def keyring() -> Keyring:
    """Return one key per role, derived from its name, and policy 1."""
    names: tuple[RoleName, ...] = get_args(RoleName)
    keys = {role: PrivateKey(f"fuzz/{role}", hashlib.sha256(role.encode()).digest()) for role in names}
    roles: dict[RoleName, Role] = {}
    for role, key in keys.items():
        key_id = key.public().key_id
        principals = {key_id: frozenset({ANY_PRINCIPAL})} if role == "writer" else {}
        roles[role] = Role(threshold=1, keys={key_id: key.public()}, principals=principals)
    policy = sign_policy(version=1, roles=roles, revoked={}, root_keys=[keys["root"]])
    return Keyring(policy=policy, keys=MappingProxyType({role: (key,) for role, key in keys.items()}))


def signed_targets() -> list[Target]:
    """Return the targets, in order of what builds on what."""
    return [*_encodings(), *_notes(), *_envelopes(), *_proofs(), *_tables()]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _entry() -> Entry:
    return Entry(
        tenant="acme", entry_id="e", principal="p", source="agent", request="é", response="a", created_at_ms=5,
        parents=(Parent(entry_id="d", weight_ppm=7),), metadata={"k": "v", "l": "w"},
    )  # fmt: skip


def _tombstone() -> Tombstone:
    return Tombstone(
        tenant="acme", entry_id="e", removed_index=0, removed_leaf_hash=b"h" * 32, reason="r", run_id="u",
        created_at_ms=1, extra={"x": "y"},
    )  # fmt: skip


def _encodings() -> list[Target]:
    leaves = (
        encode_entry(_entry(), origin="o", index=300),
        encode_tombstone(_tombstone(), origin="o", index=2**20),
    )
    return [
        Target(
            name="cbor",
            decode=lambda data: same(cbor.encode(cbor_reader.decode(data, max_bytes=10_000, where="f")), data),
            seeds=leaves,
        ),
        Target(name="leaf", decode=lambda data: decode_leaf(data, "f"), seeds=leaves),
        Target(
            name="base64",
            decode=lambda data: same(base64_strict.encode(base64_strict.decode(_text(data), "f")), _text(data)),
            seeds=(b"QUJDRA==",),
        ),
        Target(
            name="json",
            decode=lambda data: same(strict_json.encode(strict_json.decode(data, max_bytes=10**6, where="f")), data),
            seeds=(keyring().policy.envelope, _pin()),
            shape="canonical json",
        ),
        Target(name="pin", decode=lambda data: parse_pin(data, "f"), seeds=(_pin(),), shape="canonical json"),
    ]


def _pin() -> bytes:
    logs = {"acme": {"size": 120, "root": "ab" * 32}, "é": {"size": 0, "root": "00" * 32}}
    return strict_json.encode(
        {"format": "memaudit pin v1", "store_id": STORE, "version": 7, "digest": "ef" * 32, "logs": logs}
    )


def _notes() -> list[Target]:
    log = PrivateKey("fuzz/log", hashlib.sha256(b"log").digest())
    uri = "pkcs11:token=fuzz;object=log;id=%01?module-path=/usr/lib/m.so"
    checkpoint = Checkpoint(origin="memaudit/s/acme", size=TREE_SIZE, root=b"r" * 32)
    note = sign_checkpoint(checkpoint, [log])
    logs = encode_checkpoints({"acme": note})
    hashes = FileRef(sha256="ab" * 32, size=edge_bytes(TREE_SIZE), rows=edge_bytes(TREE_SIZE) // 32)
    vkeys = tuple(keyring().keys[role][0].public().vkey.encode() for role in ("log", "root"))

    def read_logs(data: bytes) -> None:
        refs = parse_checkpoints(data, bucket_of("acme"), hashes, "f", tiled=True)
        same(encode_checkpoints({ref.tenant: ref.note for ref in refs}), data)

    def open_one(data: bytes) -> None:
        keyring().policy.open_checkpoint(data, origin=checkpoint.origin, where="f")

    return [
        Target(name="note", decode=lambda data: parse_note(data, "f"), seeds=(note,)),
        Target(name="signed note", decode=lambda data: open_note(data, [log.public()], where="f"), seeds=(note,)),
        Target(
            name="checkpoint",
            decode=lambda data: same(parse_checkpoint_text(_text(data), "f").text(), _text(data)),
            seeds=(checkpoint.text().encode(),),
        ),
        Target(name="signed checkpoint", decode=open_one, seeds=(note,)),
        Target(name="checkpoint file", decode=read_logs, seeds=(logs,), shape="canonical json"),
        Target(
            name="vkey", decode=lambda data: same(PublicKey.from_vkey(_text(data)).vkey, _text(data)), seeds=vkeys
        ),
        Target(
            name="private key",
            decode=lambda data: same(
                PrivateKey.from_text(_text(data), "f").to_text(), _text(data).removesuffix("\n") + "\n"
            ),
            seeds=(log.to_text().encode(),),
        ),
        Target(
            name="private key, PEM", decode=lambda data: decode_pem(_text(data), None, "f"),
            seeds=(encode_pem(log.seed, None).encode(),), raises=AuditError,
        ),
        Target(
            name="key in a token", decode=lambda data: same(_uri(_uri(_text(data))), _uri(_text(data))),
            seeds=(uri.encode(),), raises=AuditError,
        ),
    ]  # fmt: skip


def _uri(text: str) -> str:
    return TokenKey.parse(text, "f").uri()


def _payload(sealed: bytes) -> bytes:
    return b64decode(json.loads(sealed)["payload"])


def _sealing(kind: str, role: RoleName) -> Callable[[bytes], bytes]:
    keys = keyring().signers(role)
    return lambda payload: dsse.seal(kind, payload, keys)


def _envelopes() -> list[Target]:
    trust = keyring().policy
    manifests = [sign_manifest(_manifest(kind), keyring()) for kind in get_args(Withdrawal)]
    statements = [_attestation(kind) for kind in get_args(Withdrawal)]
    following = sign_policy(
        version=2, roles=trust.roles, root_keys=list(keyring().keys["root"]), previous=trust,
        revoked={keyring().keys["log"][0].public().key_id: Revocation(logs={"o": 3}, manifests={STORE: 2})},
    )  # fmt: skip

    def read_manifest(data: bytes) -> None:
        found = open_manifest(data, trust, version=3, now_ms=NOW_MS, check_expiry=True, where="f")
        same(found.payload(), _payload(data))

    kinds = {name: json.loads(data)["payloadType"] for name, data in (("m", manifests[0]), ("s", statements[0]))}
    policies = (_payload(trust.envelope), _payload(following.envelope))
    return [
        Target(
            name="envelope",
            decode=lambda data: dsse.parse_envelope(data, PAYLOAD_TYPE, max_bytes=10**6, where="f"),
            seeds=(trust.envelope,),
            shape="canonical json",
        ),
        Target(
            name="manifest", decode=read_manifest, seeds=tuple(map(_payload, manifests)), shape="canonical json",
            wrap=_sealing(kinds["m"], "auditor"),
        ),
        Target(
            name="policy", decode=lambda data: TrustPolicy.read(data, "f"), seeds=policies, shape="canonical json",
            wrap=_sealing(PAYLOAD_TYPE, "root"),
        ),
        Target(
            name="rotated policy", decode=lambda data: trust.rotated(data, "f"), seeds=policies[1:],
            shape="canonical json", wrap=_sealing(PAYLOAD_TYPE, "root"),
        ),
        Target(
            name="attestation", decode=lambda data: verify_attestation(data, trust, "f"),
            seeds=tuple(map(_payload, statements)), shape="canonical json", wrap=_sealing(kinds["s"], "auditor"),
        ),
        Target(
            name="calibration", decode=lambda data: parse_calibration(data, trust, "f"),
            seeds=(_payload(sign_calibration(_calibration(), keyring().signers("auditor"))),), shape="canonical json",
            wrap=_sealing(CALIBRATION_TYPE, "auditor"),
        ),
        Target(
            name="run seal", decode=lambda data: read_seal(data, trust, "f"), seeds=(strict_json.encode(_seal()),),
            shape="canonical json", wrap=_sealing(SEAL_TYPE, "auditor"),
        ),
    ]  # fmt: skip


def _calibration() -> CalibrationFile:
    setting = Setting(agent="ab" * 32, harm="regex", retrieval="dense", k=3, search="v1")
    incidents = tuple(Incident(tenant="t", event_id=f"e{number}", nats=number / 3) for number in range(3))
    return CalibrationFile(
        backbone="m", setting=setting, judged_by="probe_pattern", events=9, incidents=incidents, made_ms=NOW_MS
    )


def _seal() -> dict[str, object]:
    files = dict.fromkeys(("result.json", "run.json", f"replays/{'cd' * 16}.parquet"), "ab" * 32)
    return {"format": "memaudit run seal v1", "store": STORE, "version": 2, "files": files}


def _manifest(operation: Withdrawal) -> Manifest:
    """One bucket with every kind of file that such a version has; of the purification, in the layout without tiles."""
    ref = FileRef(sha256="ab" * 32, size=10, rows=1)
    held = (ref,) if operation == "quarantine" else ()
    files = BucketFiles(
        data=(ref,), hashes=ref, checkpoints=ref, tombstones=ref, quarantine=held, ids=held or None
    )  # fmt: skip
    buckets = {7: files}
    return Manifest(
        store_id=STORE, version=3, oldest=1, operation=operation, parent="ef" * 32, created_ms=NOW_MS,
        expires_ms=NOW_MS + 5, run_id="run", policy_version=1, policy_sha256=keyring().policy.digest,
        models={"nli": "m"}, config={"alpha": "0.6"}, entries=1, leaves=2, tenants=1, checkpoints_root="00" * 32,
        tombstones_root=tombstones_root(buckets), buckets=buckets,
    )  # fmt: skip


def _attestation(operation: Withdrawal) -> bytes:
    """One removed entry, or one in quarantine."""
    removed = RemovedEntry(tenant="t", entry_id="e", index=0, leaf_hash="ab" * 32, reason="harm")
    purified = Purified(
        operation=operation, store_id=STORE, audited_version=1, audited_digest="ab" * 32, version=2, digest="cd" * 32,
        published=True, removed=(removed,), entries=0,
    )  # fmt: skip
    return attest(
        purified, keyring(), run_id="r", now_ms=NOW_MS, parameters={"a": "b"}, models={}, score_tables={"s": "ab" * 32}
    )


def _proofs() -> list[Target]:
    hashes = [merkle.leaf_hash(bytes([number])) for number in range(13)]
    root = merkle.root(hashes)
    inclusion = tuple(
        bytes([index, 13]) + hashes[index] + b"".join(merkle.inclusion_proof(hashes, index)) + root
        for index in (0, 6, 12)
    )
    consistency = tuple(
        bytes([size, 13]) + merkle.root(hashes[:size]) + b"".join(merkle.consistency_proof(hashes, size)) + root
        for size in (1, 6, 8, 13)
    )
    return [
        Target(name="inclusion proof", decode=_check_inclusion, seeds=inclusion),
        Target(name="consistency proof", decode=_check_consistency, seeds=consistency),
    ]


def _check_inclusion(data: bytes) -> None:
    """Index and size (a byte each), a leaf hash, the proof's hashes, a root: of any length, out of any bytes."""
    index, size = int.from_bytes(data[:1], "big"), int.from_bytes(data[1:2], "big")
    merkle.verify_inclusion(index, size, data[2:34], _hashes(data[34:-32]), data[-32:])


def _check_consistency(data: bytes) -> None:
    """Two sizes (a byte each), a root, the proof's hashes, a root: of any length, out of any bytes."""
    size1, size2 = int.from_bytes(data[:1], "big"), int.from_bytes(data[1:2], "big")
    merkle.verify_consistency(size1, size2, _hashes(data[34:-32]), data[2:34], data[-32:])


def _hashes(data: bytes) -> list[bytes]:
    """Cut every 32 bytes; the last hash may be short, which a verifier must refuse."""
    return [data[start : start + 32] for start in range(0, len(data), 32)]


def _tables() -> list[Target]:
    signed = [SignedEntry(entry=_entry(), index=3, key_id="k", signature=b"s" * 64)]
    stone = SignedTombstone(tombstone=_tombstone(), index=4, signatures=(("k", b"s" * 64),))
    stones = read_parquet(columns.write_tombstones([stone]))
    return [
        Target(name="entries file", decode=_read_rows, seeds=(plain_parquet(columns.write_entries(signed)),)),
        Target(name="tombstones file", decode=lambda data: read_tombstones(data, "f"), seeds=(plain_parquet(stones),)),
    ]


def read_parquet(data: bytes) -> pa.Table:
    """Return the table of a Parquet file."""
    return pq.read_table(io.BytesIO(data))


def plain_parquet(table: pa.Table) -> bytes:
    """Write Parquet as a store does, but neither compressed nor by dictionary: a changed byte is a changed value."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", use_dictionary=False, write_statistics=False, store_schema=False)
    return sink.getvalue()


def _read_rows(data: bytes) -> None:
    """Read rows as a verifier does, and as entries: both must take the same rows, and come to the same leaves."""
    table = read_table(data, "f")
    check_rows_format(table, "f")
    tenants, _ = tenants_of(table.column("tenant"))
    leaves = [leaf for batch in signed_leaves(table, dict.fromkeys(tenants, "o")) for leaf in batch]
    entries: list[Any] = read_entries(table)
    for item in entries:
        replace(item.entry)  # judged once more, by itself
    same(
        b"".join(leaf[LEAF_START:] for leaf in leaves),
        b"".join(encode_entry(item.entry, origin="o", index=item.index) for item in entries),
    )
