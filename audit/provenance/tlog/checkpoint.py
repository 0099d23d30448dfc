"""C2SP checkpoints (c2sp.org/tlog-checkpoint): the signed size and root of one tenant's log.

    memaudit/6d1f…/acme
    3
    wmPfF9…=

    — memaudit/log Az3grl…=

Line 1 is the origin, line 2 the tree size in decimal, line 3 the root hash in base64. Extension lines are refused: the
specification advises against them, and nothing here reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from memory_audit.errors import VerificationError
from memory_audit.provenance import base64_strict
from memory_audit.provenance.tlog.merkle import EMPTY_ROOT, HASH_BYTES, MAX_TREE_SIZE
from memory_audit.provenance.tlog.note import open_note, sign_note

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memory_audit.provenance.ed25519 import PublicKey, Signer

__all__ = ["Checkpoint", "log_origin", "open_checkpoint", "parse_checkpoint_text", "sign_checkpoint"]

_SIZE = re.compile(r"0|[1-9][0-9]{0,12}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a log commits to."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """Return the note text."""
        return f"{self.origin}\n{self.size}\n{base64_strict.encode(self.root)}\n"


def log_origin(store_id: str, tenant: str) -> str:
    """Name one tenant's log: no two stores and no two tenants share an origin."""
    return f"memaudit/{store_id}/{quote(tenant, safe='')}"


def sign_checkpoint(checkpoint: Checkpoint, keys: Iterable[Signer]) -> bytes:
    """Return the signed note."""
    return sign_note(checkpoint.text(), keys)


def open_checkpoint(
    data: bytes, keys: Sequence[PublicKey], *, origin: str, threshold: int = 1, where: str
) -> Checkpoint:
    """Verify a signed checkpoint of the log `origin`.

    Raises:
        VerificationError: the note does not verify, is not a checkpoint, or is another log's.
    """
    checkpoint = parse_checkpoint_text(open_note(data, keys, threshold=threshold, where=where).text, where)
    if checkpoint.origin != origin:
        raise VerificationError(f"{where}: checkpoint of log {checkpoint.origin!r:.100}, expected {origin!r:.100}")
    return checkpoint


def parse_checkpoint_text(text: str, where: str) -> Checkpoint:
    """Parse the text of a checkpoint.

    Raises:
        VerificationError: names `where` and the rule broken.
    """
    lines = text.removesuffix("\n").split("\n")
    if len(lines) != 3 or not lines[0] or not text.endswith("\n"):  # noqa: PLR2004 - origin, size, root
        raise VerificationError(
            f"{where}: a checkpoint is three lines (origin, size, root) that end in newlines, got {len(lines)}"
        )
    origin, size_text, root_text = lines
    if not _SIZE.fullmatch(size_text) or int(size_text) > MAX_TREE_SIZE:
        raise VerificationError(f"{where}: tree size {size_text!r:.40} is not a decimal from 0 to {MAX_TREE_SIZE}")
    root = base64_strict.decode(root_text, where)
    size = int(size_text)
    if len(root) != HASH_BYTES:
        raise VerificationError(f"{where}: root hash of {len(root)} bytes, expected {HASH_BYTES}")
    if size == 0 and root != EMPTY_ROOT:
        raise VerificationError(f"{where}: root of the empty tree is {root.hex()}, expected {EMPTY_ROOT.hex()}")
    return Checkpoint(origin=origin, size=size, root=root)
