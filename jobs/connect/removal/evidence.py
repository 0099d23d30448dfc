"""What is left of removed memories in a source: counted by enumeration, and by a search of raw bytes.

`examine` trusts nothing that a system says of its deletions. It is run in a fresh process (`examined_afresh`), which
holds no cache, handle or transaction of the one that deleted.

What must be as before is compared by a census: of each layer the number of rows, and the sum of their keyed hashes
(HMAC-SHA-256, modulo 2**256). The sum does not depend on the order of rows, and without the key nobody can make rows
whose sum is that of others (Clarke et al., "Incremental Multiset Hash Functions", ASIACRYPT 2003, MSet-Add-Hash).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import os
import subprocess
import sys
import unicodedata
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from memory_audit.errors import IncompleteError
from memory_audit.jobs.connect.address import parse_address
from memory_audit.jobs.connect.connector import Record, Removed
from memory_audit.text.nfc import few_marks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from memory_audit.jobs.connect.connector import Connector

__all__ = ["Census", "Evidence", "Question", "examine", "examined_afresh", "text_hash"]

Census = dict[str, tuple[int, str]]
"""Layer to the number of rows and the sum of their keyed hashes, hex; a layer without rows is not there."""

MIN_NEEDLE_BYTES = 8
"""Shorter texts are in any file by chance."""

MODULUS = 1 << 256


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a fresh process is asked."""

    address: str
    options: dict[str, str]
    records: tuple[Record, ...]
    texts_only: tuple[str, ...]
    context: bool
    key: str
    """Of the census, hex."""

    raw_bytes: bool
    """Whether files are searched."""

    def removed(self) -> Removed:
        """Return what was taken out."""
        return Removed(records=self.records, texts_only=self.texts_only, context=self.context)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; it holds no text."""

    enumerated: int
    """Memories that the source has."""

    ids: tuple[str, ...]
    """Of removed memories that it has still."""

    copies: tuple[str, ...]
    """Ids of other memories with the text of a removed one, by its normal form (`text_hash`)."""

    rows: dict[str, int]
    """Of each layer."""

    held: dict[str, int]
    """Those of them that hold an id or a text."""

    census: Census
    """Of all rows, without what is to go."""

    searched_bytes: int | None
    """In files; None: not searched, or none can be reached."""

    hits: dict[str, int]
    """File to finds of a text in its raw bytes."""

    short: int
    """Texts too short to be searched for in raw bytes."""


def text_hash(text: str) -> str:
    """Return the SHA-256 (hex) of a text's normal form: NFKC, case folded, white space folded."""
    folded = " ".join(unicodedata.normalize("NFKC", few_marks(text)).casefold().split())
    return hashlib.sha256(folded.encode(errors="surrogatepass")).hexdigest()


def examine(source: Connector, removed: Removed, key: bytes, *, raw_bytes: bool) -> Evidence:
    """Enumerate a source, and search its files.

    Args:
        source: Opened.
        removed: What was taken out, or is to be.
        key: Of the census; one for a removal.
        raw_bytes: Whether files are searched.

    Raises:
        UsageError: as `Connector.rows`.
    """
    texts = {text_hash(text) for text in removed.texts}
    enumerated, ids, copies = 0, [], []
    for record in source.records():
        enumerated += 1
        if record.record_id in removed.ids:
            ids.append(record.record_id)
        elif text_hash(record.text) in texts:
            copies.append(record.record_id)
    rows: dict[str, int] = defaultdict(int)
    held: dict[str, int] = defaultdict(int)
    sums: dict[str, tuple[int, int]] = {}
    for row in source.rows(removed):
        rows[row.layer] += 1
        held[row.layer] += row.kept != row.raw
        if row.kept is not None:
            count, total = sums.get(row.layer, (0, 0))
            digest = int.from_bytes(hmac.digest(key, row.kept, "sha256"))
            sums[row.layer] = count + 1, (total + digest) % MODULUS
    needles = [needle for needle in _needles(removed.texts) if raw_bytes]
    searched, hits = _search(source.files(), needles) if raw_bytes else (None, {})
    return Evidence(
        enumerated=enumerated, ids=tuple(ids), copies=tuple(copies), rows=dict(rows), held=dict(held),
        census={layer: (count, f"{total:064x}") for layer, (count, total) in sums.items()},
        searched_bytes=searched, hits=hits,
        short=sum(len(text.encode(errors="surrogatepass")) < MIN_NEEDLE_BYTES for text in removed.texts),
    )  # fmt: skip


def examined_afresh(question: Question) -> Evidence:
    """Examine a source in a process of its own.

    Raises:
        IncompleteError: it could not; says why.
    """
    command = [sys.executable, "-P", "-m", "memory_audit.jobs.connect.removal.evidence"]
    done = subprocess.run(command, input=msgspec.json.encode(question), capture_output=True, check=False)  # noqa: S603 - this program
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise IncompleteError(f"{question.address}: could not be examined afterwards: {told[-1]:.300}")
    return msgspec.json.decode(done.stdout, type=Evidence)


def _needles(texts: Iterable[str]) -> list[bytes]:
    """Return the bytes that a text may lie in a file as: UTF-8, and escaped in JSON."""
    forms = {
        form.encode(errors="surrogatepass")
        for text in texts
        for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    }
    return sorted(form for form in forms if len(form) >= MIN_NEEDLE_BYTES)


def _search(files: Iterable[Path], needles: list[bytes]) -> tuple[int | None, dict[str, int]]:
    searched, hits = None, {}
    for path in files:
        try:
            file = path.open("rb")
        except FileNotFoundError:  # a server's, which has gone on
            continue
        with file:
            size = os.fstat(file.fileno()).st_size
            searched = (searched or 0) + size
            if not size:
                continue
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found = sum(_count(data, needle) for needle in needles)
        if found:
            hits[str(path)] = found
    return searched, hits


def _count(data: mmap.mmap, needle: bytes) -> int:
    count, at = 0, data.find(needle)
    while at >= 0:
        count, at = count + 1, data.find(needle, at + len(needle))
    return count


def _main() -> None:
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    source = parse_address(question.address, question.options).open_connector()
    found = examine(source, question.removed(), bytes.fromhex(question.key), raw_bytes=question.raw_bytes)
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    _main()
