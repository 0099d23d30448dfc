"""An attacker of stores, driven by the files in `attacks/`: it owns the store, and whatever keys a vector grants.

A vector of kind "store" is a list of steps, each a method of `Attacker` with its arguments; then a reader opens and
verifies the store and must fail with the vector's error. Steps edit the newest version in memory, as an insider with
the full format at hand would, and `publish` writes what became of it: leaf hashes, checkpoints and manifest all match
the edited entries, signed by the keys the step names. What the attacker lacks is a key, or the reader's pin.
"""

import json
import shutil
from base64 import b64decode, b64encode
from dataclasses import replace

import numpy as np

from memory_audit.entry import Parent
from memory_audit.provenance import dsse, strict_json
from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.leaf import SIGNATURE_DOMAIN, Tombstone, encode_entry, encode_tombstone
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.checkpoint import Checkpoint, log_origin, sign_checkpoint
from memory_audit.provenance.trust_policy import Revocation, sign_policy
from memory_audit.snapshot.checkpoints import encode_checkpoints
from memory_audit.snapshot.columns.tables import (
    SignedEntry,
    SignedTombstone,
    write_entries,
    write_table,
    write_tombstones,
)
from memory_audit.snapshot.ids import id_digests
from memory_audit.snapshot.layout import bucket_of, manifest_path, put_file
from memory_audit.snapshot.manifest import PAYLOAD_TYPE, BucketFiles, checkpoints_root, tombstones_root
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from tests.unit.snapshot.stores import NOW, entry, keyring, open_store, put_back, quarantine, remove

STRANGER = PrivateKey("stranger", b"stranger".ljust(32, b"."))


def key_of(role):
    """The publisher's key of a role, granted to the attacker, or a key nobody knows."""
    return STRANGER if role in {"stranger", "nobody"} else keyring().keys[role][0]


class Attacker:
    """Holds the newest version of a store as it would publish it next."""

    def __init__(self, store, trust) -> None:
        self.store = store
        self.trust = trust
        self.pin = None
        self.now_ms = NOW + 10
        self.version = None
        self._load()

    def _load(self) -> None:
        snapshot = open_store(self.store, check_expiry=False)
        self.manifest = snapshot.manifest
        self.logs = {tenant: snapshot.log(tenant) for tenant in snapshot.tenants}
        self.entries = {tenant: list(log.entries) for tenant, log in self.logs.items()}
        self.quarantined = {tenant: list(log.quarantined) for tenant, log in self.logs.items()}
        self.tombstones = {
            tenant: list(snapshot.bucket(bucket_of(tenant)).tombstones.get(tenant, ())) for tenant in self.logs
        }
        self.hashes = {tenant: list(log.leaf_hashes) for tenant, log in self.logs.items()}

    def _origin(self, tenant):
        return log_origin(self.manifest.store_id, tenant)

    # The victim's own life.

    def honest_append(self, tenant, entry_id) -> None:
        append_entries(self.store, [entry(tenant, entry_id)], keyring(), now_ms=NOW + 3)
        self._load()

    def honest_purge(self, tenant, entry_id) -> None:
        remove(self.store, {tenant: {entry_id: "harm"}}, now_ms=NOW + 3)
        self._load()

    def honest_quarantine(self, tenant, entry_id) -> None:
        quarantine(self.store, {tenant: {entry_id: "doubtful"}}, now_ms=NOW + 3)
        self._load()

    def honest_release(self, tenant, entry_id) -> None:
        put_back(self.store, {tenant: [entry_id]}, now_ms=NOW + 4)
        self._load()

    def reader_pins(self) -> None:
        """The reader opens the store and keeps a pin outside it."""
        self.pin = open_store(self.store).pin()

    def save_copy(self) -> None:
        shutil.copytree(self.store, self.store.parent / "copy")

    def restore_copy(self) -> None:
        shutil.rmtree(self.store)
        shutil.copytree(self.store.parent / "copy", self.store)
        self._load()

    def clock(self, now_ms) -> None:
        self.now_ms = now_ms

    def reader_asks_version(self, version) -> None:
        self.version = version

    def policy_rotates(self, revoke, logs, manifests, *, fresh=None) -> None:
        """The publisher revokes a key from these positions on, and the reader installs the policy."""
        policy = keyring().policy
        key_id = key_of(revoke).public().key_id
        positions = {self._origin(tenant): position for tenant, position in logs.items()}
        roles = dict(policy.roles)
        if fresh:
            new = PrivateKey(fresh, fresh.encode().ljust(32, b"."))
            keys = {**roles[revoke].keys, new.public().key_id: new.public()}
            principals = {**roles[revoke].principals}
            if revoke == "writer":
                principals[new.public().key_id] = frozenset({"*"})
            roles[revoke] = replace(roles[revoke], keys=keys, principals=principals)
        revocation = Revocation(logs=positions, manifests={self.manifest.store_id: manifests})
        self.trust = sign_policy(
            version=2, roles=roles, revoked={key_id: revocation}, root_keys=[key_of("root")], previous=policy
        )

    # Raw files.

    def remove_manifest(self, version) -> None:
        manifest_path(self.store, version).unlink()

    def copy_manifest(self, version, name) -> None:
        shutil.copy(manifest_path(self.store, version), self.store / "manifests" / name)

    def grow_manifest(self, size) -> None:
        with manifest_path(self.store, self.manifest.version).open("r+b") as file:
            file.truncate(size)

    def put_old_file_in_place(self, kind, bucket_tenant, old_version) -> None:
        """Overwrite a file of the newest version by the same tenant's file of an older one."""
        bucket = bucket_of(bucket_tenant)
        new, old = (
            getattr(item.buckets[bucket], kind)
            for item in (self.manifest, open_store(self.store, version=old_version).manifest)
        )
        folder = self.store / kind / f"b={bucket:02x}"
        suffix = next(folder.iterdir()).suffix
        shutil.copy(folder / f"{old.sha256}{suffix}", folder / f"{new.sha256}{suffix}")

    def edit_envelope(self, **changes) -> None:  # noqa: ANN003
        """Change members of the newest manifest's envelope: `payload` (merged into the JSON) or `signatures`."""
        path = manifest_path(self.store, self.manifest.version)
        envelope = json.loads(path.read_bytes())
        if "payload" in changes:
            payload = json.loads(b64decode(envelope["payload"])) | changes["payload"]
            envelope["payload"] = b64encode(strict_json.encode(payload)).decode()
        if "signatures" in changes:
            envelope["signatures"] = changes["signatures"]
        path.write_bytes(strict_json.encode(envelope))

    # Edits by an insider.

    def change_entry(self, tenant, index, **fields) -> None:  # noqa: ANN003
        """Change an entry and keep its writer's signature."""
        place = self._place(tenant, index)
        if "parents" in fields:
            fields["parents"] = tuple(Parent(**parent) for parent in fields["parents"])
        item = self.entries[tenant][place]
        self._put(tenant, place, replace(item, entry=replace(item.entry, **fields)))

    def swap_entries(self, tenant, first, second) -> None:
        a, b = self._place(tenant, first), self._place(tenant, second)
        rows = self.entries[tenant]
        one, two = rows[a], rows[b]
        self._put(tenant, a, replace(two, index=first))
        self._put(tenant, b, replace(one, index=second))

    def replay_entry(self, donor, donor_index, tenant, index) -> None:
        """Another tenant's genuine entry and signature in this place."""
        item = self.entries[donor][self._place(donor, donor_index)]
        moved = replace(item, index=index, entry=replace(item.entry, tenant=tenant, entry_id=f"replayed-{index}"))
        self._put(tenant, self._place(tenant, index), moved)

    def replay_from_another_store(self, tenant, index) -> None:
        """The same tenant, id, index and writer, genuinely signed, in another store."""
        other = self.store.parent / "other"
        rows = [entry(tenant, f"e{number}", response="from elsewhere") for number in range(index + 1)]
        create_store(other, rows, keyring(), now_ms=NOW, store_id="cd" * 16)
        donor = open_store(other).log(tenant).entries[index]
        self._put(tenant, self._place(tenant, index), donor)

    def hide_entry(self, tenant, index) -> None:
        """Drop an entry from the live view, leaving its leaf."""
        del self.entries[tenant][self._place(tenant, index)]

    def drop_leaf(self, tenant, index) -> None:
        """Drop an entry and its leaf; later ones move up."""
        del self.entries[tenant][self._place(tenant, index)]
        del self.hashes[tenant][index]
        self.entries[tenant] = [replace(item, index=item.index - (item.index > index)) for item in self.entries[tenant]]
        for place in range(len(self.entries[tenant])):
            self._put(tenant, place, self.entries[tenant][place])

    def truncate(self, tenant, size) -> None:
        self.entries[tenant] = [item for item in self.entries[tenant] if item.index < size]
        self.tombstones[tenant] = [item for item in self.tombstones[tenant] if item.index < size]
        del self.hashes[tenant][size:]

    def append_entry(self, tenant, entry_id, signer, **fields) -> None:  # noqa: ANN003
        if "parents" in fields:
            fields["parents"] = tuple(Parent(**parent) for parent in fields["parents"])
        body, index, key = entry(tenant, entry_id, **fields), len(self.hashes[tenant]), key_of(signer)
        leaf = encode_entry(body, origin=self._origin(tenant), index=index)
        signature = key.sign(SIGNATURE_DOMAIN + leaf)
        self.entries[tenant].append(
            SignedEntry(entry=body, index=index, key_id=key.public().key_id, signature=signature)
        )
        self.hashes[tenant].append(merkle.leaf_hash(leaf))

    def bury(self, tenant, index, signer, *, removed_leaf_hash=None, keep=False) -> None:
        """Append a tombstone for an entry by a key of the attacker's choice."""
        place = self._place(tenant, index)
        self._sign_tombstone(tenant, self.entries[tenant][place].entry.entry_id, index, signer, removed_leaf_hash)
        if not keep:
            del self.entries[tenant][place]

    def unquarantine(self, tenant, entry_id, signer=None) -> None:
        """Bring an entry back from quarantine; with a signer, by a tombstone for the one that put it there."""
        if signer is not None:
            stone = next(item for item in self.tombstones[tenant] if item.tombstone.entry_id == entry_id)
            self._sign_tombstone(tenant, entry_id, stone.index, signer)
        (item,) = [item for item in self.quarantined[tenant] if item.entry.entry_id == entry_id]
        self.quarantined[tenant].remove(item)
        self.entries[tenant] = sorted([*self.entries[tenant], item], key=lambda item: item.index)

    def lose_quarantined(self, tenant, entry_id) -> None:
        self.quarantined[tenant] = [item for item in self.quarantined[tenant] if item.entry.entry_id != entry_id]

    def hold_without_a_tombstone(self, tenant, index) -> None:
        self.quarantined[tenant].append(self.entries[tenant].pop(self._place(tenant, index)))

    def change_quarantined(self, tenant, entry_id, **fields) -> None:  # noqa: ANN003
        self.quarantined[tenant] = [
            replace(item, entry=replace(item.entry, **fields)) if item.entry.entry_id == entry_id else item
            for item in self.quarantined[tenant]
        ]

    def _sign_tombstone(self, tenant, entry_id, index, signer, removed_leaf_hash=None) -> None:
        stone = Tombstone(
            tenant=tenant, entry_id=entry_id, removed_index=index,
            removed_leaf_hash=bytes.fromhex(removed_leaf_hash) if removed_leaf_hash else self.hashes[tenant][index],
            reason="none of your business", run_id="evil", created_at_ms=NOW,
        )  # fmt: skip
        at, key = len(self.hashes[tenant]), key_of(signer)
        leaf = encode_tombstone(stone, origin=self._origin(tenant), index=at)
        signed = ((key.public().key_id, key.sign(SIGNATURE_DOMAIN + leaf)),) if signer != "nobody" else ()
        self.tombstones[tenant].append(SignedTombstone(tombstone=stone, index=at, signatures=signed))
        self.hashes[tenant].append(merkle.leaf_hash(leaf))

    def unbury(self, tenant, entry_id, *, drop_tombstone) -> None:
        """Bring a removed entry back into the live view, with or without its tombstone row."""
        old = next(
            item
            for version in range(self.manifest.version - 1, 0, -1)
            for item in open_store(self.store, version=version).log(tenant).entries
            if item.entry.entry_id == entry_id
        )
        self.entries[tenant] = sorted([*self.entries[tenant], old], key=lambda item: item.index)
        if drop_tombstone:
            self.tombstones[tenant] = [s for s in self.tombstones[tenant] if s.tombstone.entry_id != entry_id]

    def drop_tombstone_row(self, tenant, entry_id) -> None:
        self.tombstones[tenant] = [s for s in self.tombstones[tenant] if s.tombstone.entry_id != entry_id]

    def publish(self, manifest_signer="log", checkpoint_signer="log", *, version=None, **changes) -> None:  # noqa: ANN003
        """Write all files of the edited version and sign them with these keys, as the next version by default."""
        buckets, notes = {}, {}
        for bucket in sorted({bucket_of(tenant) for tenant in self.hashes}):
            tenants = sorted(tenant for tenant in self.hashes if bucket_of(tenant) == bucket)
            rows = [item for tenant in tenants for item in self.entries[tenant]]
            held = [item for tenant in tenants for item in self.quarantined[tenant]]
            stones = [item for tenant in tenants for item in self.tombstones[tenant]]
            packed = b"".join(item for tenant in tenants for item in self.hashes[tenant])
            known = np.unique(np.concatenate([id_digests(tenant, self._ids_of(tenant)) for tenant in tenants]))
            mine = {
                tenant: sign_checkpoint(
                    Checkpoint(
                        origin=self._origin(tenant), size=len(self.hashes[tenant]),
                        root=merkle.root(self.hashes[tenant]),
                    ),
                    [key_of(checkpoint_signer)],
                )
                for tenant in tenants
            }  # fmt: skip
            buckets[bucket] = BucketFiles(
                data=(put_file(self.store, "data", bucket, write_table(write_entries(rows)), len(rows)),),
                hashes=put_file(self.store, "edges", bucket, packed, len(packed) // 32),  # no log fills a tile
                ids=(put_file(self.store, "ids", bucket, known.tobytes(), len(known)),),
                tombstones=put_file(self.store, "tombstones", bucket, write_tombstones(stones), len(stones))
                if stones
                else None,
                checkpoints=put_file(self.store, "checkpoints", bucket, encode_checkpoints(mine), len(mine)),
                quarantine=(put_file(self.store, "quarantine", bucket, write_table(write_entries(held)), len(held)),)
                if held
                else (),
            )
            notes |= mine
        forged = replace(
            self.manifest,
            **({
                "version": self.manifest.version + 1, "parent": self.manifest.digest, "operation": "append",
                "created_ms": NOW + 5, "buckets": buckets, "checkpoints_root": checkpoints_root(
                    notes[tenant] for tenant in sorted(notes)), "tombstones_root": tombstones_root(buckets),
                "entries": sum(len(rows) for rows in self.entries.values()),
                "leaves": sum(len(hashes) for hashes in self.hashes.values()),
            } | ({} if version is None else {"version": version}) | changes),
        )  # fmt: skip
        self._write_manifest(forged, manifest_signer)

    def publish_mixed(self, kind, tenant, old_version, manifest_signer="log") -> None:
        """Sign a next version that takes one component of one bucket from an older version."""
        bucket = bucket_of(tenant)
        old = open_store(self.store, version=old_version).manifest
        files = replace(self.manifest.buckets[bucket], **{kind: getattr(old.buckets[bucket], kind)})
        buckets = {**self.manifest.buckets, bucket: files}
        forged = replace(
            self.manifest, version=self.manifest.version + 1, parent=self.manifest.digest, operation="append",
            buckets=buckets, tombstones_root=tombstones_root(buckets),
            entries=sum(ref.rows for item in buckets.values() for ref in item.data),
        )  # fmt: skip
        self._write_manifest(forged, manifest_signer)

    def publish_data_twice(self, tenant, manifest_signer="log") -> None:
        """Sign a next version that names a data file of one bucket twice, and counts its entries twice."""
        bucket = bucket_of(tenant)
        files = self.manifest.buckets[bucket]
        doubled = replace(files, data=(*files.data, files.data[0]))
        forged = replace(
            self.manifest, version=self.manifest.version + 1, parent=self.manifest.digest, operation="append",
            buckets={**self.manifest.buckets, bucket: doubled}, entries=self.manifest.entries + files.data[0].rows,
        )  # fmt: skip
        self._write_manifest(forged, manifest_signer)

    def _write_manifest(self, manifest, signer) -> None:
        data = dsse.seal(PAYLOAD_TYPE, manifest.payload(), [key_of(signer)])
        manifest_path(self.store, manifest.version).write_bytes(data)

    def _ids_of(self, tenant):
        entries = [item.entry for item in (*self.entries[tenant], *self.quarantined[tenant])]
        return [item.entry_id for item in (*entries, *(stone.tombstone for stone in self.tombstones[tenant]))]

    def _place(self, tenant, index):
        return next(place for place, item in enumerate(self.entries[tenant]) if item.index == index)

    def _put(self, tenant, place, item) -> None:
        self.entries[tenant][place] = item
        leaf = encode_entry(item.entry, origin=self._origin(tenant), index=item.index)
        self.hashes[tenant][item.index] = merkle.leaf_hash(leaf)
