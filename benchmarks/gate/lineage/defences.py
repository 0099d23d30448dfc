"""Three defences around the same memory: none, signatures only, and MemLineage (signatures, lineage, gate).

The signed ones keep their memory in a real store: every write is signed and published, every read opens the newest
version and verifies it. `none` keeps a list. Of all of them the same is asked: what may the agent read, and may it make
this call. An agent whose memory does not verify goes on without memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_audit.entry import Entry, Parent
from memory_audit.errors import VerificationError
from memory_audit.gate.gate import Gate
from memory_audit.lineage.verified import VerifiedLineage
from memory_audit.provenance.keys import generate_keys
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memory_audit.entry import Source
    from memory_audit.gate.call import Context, ToolCall
    from memory_audit.gate.gate_policy import GatePolicy
    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["NOW_MS", "TENANT", "MemLineage", "SignatureOnly", "Unprotected", "memory_entry"]

TENANT = "northwind"
NOW_MS = 1_800_000_000_000
STORE_ID = "0b" * 16


def memory_entry(  # noqa: PLR0917
    entry_id: str, source: Source, principal: str, request: str, response: str, parents: Mapping[str, int] | None = None
) -> Entry:
    """One memory of the harness's tenant; `parents` are weights in parts per million."""
    return Entry(
        tenant=TENANT, entry_id=entry_id, principal=principal, source=source, request=request, response=response,
        created_at_ms=NOW_MS,
        parents=tuple(Parent(entry_id=name, weight_ppm=weight) for name, weight in (parents or {}).items()),
    )  # fmt: skip


class Unprotected:
    """No defence: whoever can write is believed, every call is made."""

    name = "none"

    def __init__(self) -> None:
        self._memories: list[Entry] = []

    def write(self, entries: list[Entry]) -> None:
        """Store through the agent's own write path."""
        self._memories += entries

    def inject(self, entry: Entry) -> None:
        """Store behind the agent's back, as someone with access to the disk."""
        self._memories.append(entry)

    def read(self) -> list[Entry]:
        """What the agent may retrieve from, in order of writing."""
        return list(self._memories)

    def dispatch(self, call: ToolCall, context: Context) -> ToolCall | None:
        """Return the call that is made, or None."""
        del context
        return call


class SignatureOnly:
    """Signed entries in a verified store, and nothing asked about where their content came from.

    Args:
        folder: An empty folder for the store.
        keyring: The owner's: it has writer keys, an attacker's does not.
    """

    name = "signature-only"

    def __init__(self, folder: Path, keyring: Keyring) -> None:
        self._path = folder / "store"
        self._folder = folder
        self._keyring = keyring
        self._exists = False

    def write(self, entries: list[Entry]) -> None:
        """Sign and publish."""
        publish: Any = append_entries if self._exists else create_store
        options = {} if self._exists else {"store_id": STORE_ID}
        publish(self._path, entries, self._keyring, now_ms=NOW_MS, **options)
        self._exists = True

    def inject(self, entry: Entry) -> None:
        """Replace the store by one that also has `entry`, signed throughout with the attacker's own keys."""
        entries = [*self._open().entries(TENANT), entry]
        forged = self._folder / "forged"
        create_store(forged, entries, generate_keys("attacker"), now_ms=NOW_MS, store_id=STORE_ID)
        self._path.rename(self._folder / "replaced")
        forged.rename(self._path)

    def read(self) -> list[Entry]:
        """Live entries of the newest version; none where it does not verify."""
        try:
            return list(self._open().entries(TENANT))
        except VerificationError:
            return []

    def dispatch(self, call: ToolCall, context: Context) -> ToolCall | None:
        """Every call is made: whatever verified may be acted upon."""
        del context
        return call

    def _open(self) -> VerifiedSnapshot:
        return open_snapshot(self._path, self._keyring.policy, now_ms=NOW_MS)


class MemLineage(SignatureOnly):
    """The same store, and the gate before every call.

    Args:
        folder: An empty folder for the store.
        keyring: The owner's.
        policy: Of the gate.
        name: In the rows.
    """

    def __init__(self, folder: Path, keyring: Keyring, policy: GatePolicy, name: str) -> None:
        super().__init__(folder, keyring)
        self.name = name
        self._policy = policy

    def dispatch(self, call: ToolCall, context: Context) -> ToolCall | None:
        """Ask the gate; a store that does not verify leaves it without lineage, so that it fails closed."""
        try:
            lineage = VerifiedLineage(self._open(), TENANT, self._policy.trust, self._policy.tau_ppm)
        except VerificationError:
            lineage = None
        return Gate(self._policy, lineage).decide(call, context, now_ms=NOW_MS).call
