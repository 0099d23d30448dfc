"""One tenant's log while a version is being built: leaves are signed, hashed onto it, and its checkpoint signed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from memory_audit.provenance.leaf import SIGNATURE_DOMAIN, encode_tombstone, entry_encoder
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.checkpoint import Checkpoint, log_origin, sign_checkpoint
from memory_audit.snapshot.bucket import check_root
from memory_audit.snapshot.columns.tables import SignedEntry, SignedTombstone

if TYPE_CHECKING:
    from memory_audit.entry import Entry
    from memory_audit.provenance.ed25519 import Signer
    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.leaf import Tombstone
    from memory_audit.provenance.tlog.tiles import TiledTree
    from memory_audit.snapshot.bucket import BucketView

__all__ = ["LogWriter"]


class LogWriter:
    """One tenant's log while a version is being built: appends leaves, then signs the checkpoint."""

    def __init__(self, store_id: str, tenant: str, tree: TiledTree, keyring: Keyring) -> None:
        self.tenant = tenant
        self.origin = log_origin(store_id, tenant)
        self.tree = tree
        self._keyring = keyring
        self._encode = entry_encoder(self.origin, tenant)
        self._writers: dict[str, tuple[Signer, str]] = {}

    @classmethod
    def following(cls, view: BucketView, tenant: str, keyring: Keyring) -> Self:
        """Go on with the log that a bucket has of a tenant, or begin it.

        Raises:
            VerificationError: the right edge of its tree is not that of its checkpoint, or this does not verify.
        """
        tree, checkpoint = view.tree(tenant), view.checkpoint(tenant)
        if checkpoint is not None:
            check_root(tree, checkpoint, f"the log of tenant {tenant!r:.80}")
        return cls(view.store_id, tenant, tree, keyring)

    def append_entry(self, entry: Entry) -> SignedEntry:
        """Sign an entry for the next index and append it.

        Raises:
            UsageError: no key speaks for its principal.
        """
        index = self.tree.size
        writer = self._writers.get(entry.principal)
        if writer is None:
            key = self._keyring.writer_for(entry.principal)
            writer = self._writers[entry.principal] = key, key.public().key_id
        key, key_id = writer
        leaf = self._encode(entry, index)
        self._append(leaf)
        return SignedEntry(entry=entry, index=index, key_id=key_id, signature=key.sign(SIGNATURE_DOMAIN + leaf))

    def append_tombstone(self, tombstone: Tombstone) -> SignedTombstone:
        """Sign a tombstone for the next index, by every auditor whose key is there, and append it.

        Raises:
            UsageError: too few auditors' keys.
        """
        index = self.tree.size
        leaf = encode_tombstone(tombstone, origin=self.origin, index=index)
        self._append(leaf)
        signatures = tuple(
            (key.public().key_id, key.sign(SIGNATURE_DOMAIN + leaf)) for key in self._keyring.signers("auditor")
        )
        return SignedTombstone(tombstone=tombstone, index=index, signatures=signatures)

    def _append(self, leaf: bytes) -> None:
        self.tree.extend(merkle.leaf_hash(leaf))

    def checkpoint(self) -> bytes:
        """Sign the log as it is now."""
        checkpoint = Checkpoint(origin=self.origin, size=self.tree.size, root=self.tree.root())
        return sign_checkpoint(checkpoint, self._keyring.signers("log"))
