"""MemAudit's store for the attack suite `agmi-check` (PyPI: agent-memory-integrity).

    agmi-check --adapter tests.conformance.agmi_adapter:MemAuditStoreAdapter

The attacker owns every file of the store and rewrites rows of the newest data file in place, signatures included; what
it does not own are the private keys and the reader's pin, which lies outside the store. Two tenants are the two
contexts. `verify` is the plain read path: open with the pin, ask for the tenants' entries.
"""

import json
import shutil
import tempfile
from base64 import b64decode
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from agmi.adapters.base import MemoryAdapter, Record

from memory_audit.errors import VerificationError
from memory_audit.provenance.leaf import encode_entry
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.checkpoint import log_origin
from memory_audit.snapshot.columns.tables import ENTRY_SCHEMA, read_entries
from memory_audit.snapshot.layout import bucket_of
from memory_audit.snapshot.pin import read_pin, write_pin
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from tests.conformance.attacker import Attacker
from tests.unit.snapshot.stores import NOW, entry, keyring, open_store

FIRST, SECOND = "context-a", "context-b"


class MemAuditStoreAdapter(MemoryAdapter):
    """The store under attack."""

    name = "memaudit"
    detection_point = "read"
    supports_replay = True
    supports_metadata = True
    supports_snapshot = True

    def setup(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="memaudit-agmi-"))
        self._store = self._folder / "store"
        self._pin = self._folder / "outside" / "pin.json"

    def teardown(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def seed(self, n) -> None:
        create_store(self._store, [_memory(FIRST, number) for number in range(n)], keyring(), now_ms=NOW)
        self._remember()

    def seed_other(self, n) -> None:
        self._append([_memory(SECOND, number) for number in range(n)])

    def append_genuine(self) -> None:
        self._append([_memory(FIRST, 1_000)])

    def _append(self, entries) -> None:
        append_entries(self._store, entries, keyring(), now_ms=NOW, pin=read_pin(self._pin))
        self._remember()

    def _remember(self) -> None:
        write_pin(self._pin, open_store(self._store, pin=read_pin(self._pin)).pin())

    def reload(self) -> None:
        """Nothing is kept in memory between calls."""

    def verify(self) -> bool:
        self.verify_detail = None
        try:
            snapshot = open_store(self._store, pin=read_pin(self._pin))
            for tenant in snapshot.tenants:
                snapshot.entries(tenant)
        except VerificationError as error:
            self.verify_detail = str(error)
            return False
        return True

    # What the attacker does: raw files, no keys.

    def _data_file(self, tenant):
        manifests = sorted((self._store / "manifests").glob("*.json"), key=lambda path: int(path.stem))
        payload = json.loads(b64decode(json.loads(manifests[-1].read_text())["payload"]))
        bucket = bucket_of(tenant)
        files = next(item["data"] for item in payload["buckets"] if item["bucket"] == bucket)
        return self._store / "data" / f"b={bucket:02x}" / f"{files[-1]['sha256']}.parquet"

    def _rows(self, tenant):
        rows = pq.read_table(pa.BufferReader(self._data_file(tenant).read_bytes())).to_pylist()
        return [row for row in rows if row["tenant"] == tenant]

    def _write(self, tenant, rows) -> None:
        pq.write_table(pa.Table.from_pylist(rows, schema=ENTRY_SCHEMA), self._data_file(tenant), store_schema=False)

    def read_all_raw(self):
        return [Record(seq=number, fields=row) for number, row in enumerate(self._rows(FIRST))]

    def read_other_raw(self):
        return [Record(seq=number, fields=row) for number, row in enumerate(self._rows(SECOND))]

    def write_raw(self, record) -> None:
        rows = self._rows(FIRST)
        row = {**record.fields, "leaf_index": record.seq, "tenant": FIRST}
        rows[record.seq : record.seq + 1] = [row]
        self._write(FIRST, rows)

    def delete_raw(self, seq) -> None:
        rows = self._rows(FIRST)
        del rows[seq]
        self._write(FIRST, rows)

    def replay_onto(self, victim_seq, donor) -> None:
        rows = self._rows(FIRST)
        slot = {name: rows[victim_seq][name] for name in ("tenant", "leaf_index", "entry_id")}
        rows[victim_seq] = {**donor.fields, **slot}
        self._write(FIRST, rows)

    def mutate_payload(self, record):
        record.fields["response"] += "  [TAMPERED]"
        return record

    def forge_record(self, template):
        fields = {**template.fields, "entry_id": "forged", "leaf_index": template.seq + 1}
        return self.mutate_payload(Record(seq=template.seq + 1, fields=fields))

    def read_meta(self, seq):
        row = self._rows(FIRST)[seq]
        return {"source": row["source"], "created_at_ms": row["created_at_ms"], **dict(row["metadata"])}

    def write_meta(self, seq, meta) -> None:
        rows = self._rows(FIRST)
        known = {"source", "created_at_ms"}
        rows[seq]["metadata"] = [(name, str(value)) for name, value in meta.items() if name not in known]
        self._write(FIRST, rows)

    def snapshot_store(self):
        return self._copy_store(self._store)

    def restore_store(self, token) -> None:
        self._restore_store(token, self._store)

    def identity_of(self, record):
        return f"{record.fields['tenant']}:{record.fields['leaf_index']}"

    def payload_of(self, record):
        return record.fields["request"] + "\n" + record.fields["response"]

    def owner_of(self, record):
        return record.fields["tenant"]


def _memory(tenant, number):
    return entry(tenant, f"{tenant}-{number}", response=f"Answer {number} of {tenant}.")


class StolenLogKeyAdapter(MemAuditStoreAdapter):
    """The same attacker, who has also stolen the log's key: every edit is published as a well-formed next version.

    Leaf hashes, checkpoints and manifest all match the edited rows. What is left to stop it: the writers' signatures,
    the rule that every leaf is accounted for, and the reader's pin.
    """

    name = "memaudit, log key stolen"

    def setup(self) -> None:
        super().setup()
        self._attacker: Attacker | None = None

    def _write(self, tenant, rows) -> None:
        if self._attacker is None:
            self._attacker = Attacker(self._store, keyring().policy)
        attacker = self._attacker
        items = read_entries(pa.Table.from_pylist(rows, schema=ENTRY_SCHEMA))
        hashes = attacker.hashes[tenant][: rows[-1]["leaf_index"] + 1]
        for item in items:
            leaf = encode_entry(item.entry, origin=log_origin(attacker.manifest.store_id, tenant), index=item.index)
            hashes[item.index : item.index + 1] = [merkle.leaf_hash(leaf)]
        attacker.entries[tenant], attacker.hashes[tenant] = items, hashes
        attacker.publish()
