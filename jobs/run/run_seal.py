"""What binds a run folder to the auditor: a code in the name of each shard while it runs, and a seal when it ends.

    RUN/seal.dsse.json   a DSSE envelope signed by the auditor, whose payload is
                         {"format": "memaudit run seal v1", "store": "6d1f…", "version": 2,
                          "files": {"result.json": SHA-256 (hex), "replays/5f….parquet": …}}

`files` are those that the audit wrote, as it wrote them, or read and knew by their codes: nothing is read from disk in
order to be sealed. A code is an HMAC-SHA256 over kind, model and content, under a secret of the auditor's private keys
and of what the run is of. So no shard of another run, of another model or by somebody else gets into a run that is
continued, or into one that reuses an earlier run. Whoever audits a group of tenants gets the codes of its folder
(`Part`), and no key. A seal counts where its signers may sign the version after the audited one.

An audit without the auditor's keys has codes that anybody can make, and no seal.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.errors import AuditError, UsageError, VerificationError
from memory_audit.provenance import dsse, durable, strict_json
from memory_audit.provenance.ed25519 import derived_secret
from memory_audit.snapshot.layout import MAX_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.trust_policy import TrustPolicy

__all__ = ["MAX_SEAL_BYTES", "PAYLOAD_TYPE", "SEAL_FILE", "Codes", "Part", "Seal", "Sealer", "read_seal"]

SEAL_FILE = "seal.dsse.json"

MAX_SEAL_BYTES = 256 << 20
"""1.7 million shards: three months of one every five seconds."""

MAX_FILES = 2_000_000

PAYLOAD_TYPE = "application/vnd.memaudit.run+json"
_FORMAT = "memaudit run seal v1"
_PURPOSE = b"memaudit run codes v1"
_NAME = re.compile(r"(?:groups/[0-9a-f-]+/)?(?:[a-z]+/)?[0-9a-z]+\.[a-z]+", re.ASCII)
_CODE_CHARACTERS = 32
"""128 bits, in hex."""


class Codes:
    """Codes of one run's parts."""

    def __init__(self, secret: bytes, identity: Mapping[str, str]) -> None:
        self._key = hmac.digest(secret, _text(dict(identity)), "sha256")

    def of(self, kind: str, model: str, data: bytes) -> str:
        """Return the code (hex) of a part: its kind, the model that it is from, and its bytes."""
        return self.of_digest(kind, model, _digest(data))

    def of_digest(self, kind: str, model: str, digest: str) -> str:
        """Return the code of a part by the SHA-256 (hex) of its bytes."""
        return hmac.digest(self._key, _text([kind, model, digest]), "sha256").hex()[:_CODE_CHARACTERS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """A verified seal."""

    store_id: str
    version: int
    """Of the store, as audited."""

    files: Mapping[str, str]
    """File name to SHA-256 (hex)."""

    digest: str
    """SHA-256 (hex) of the seal's own file."""


class Part:
    """What one group's audit needs to know of the sealer, in whatever process: its own codes, and no key."""

    def __init__(self, codes: Codes) -> None:
        self._codes = codes
        self.files: dict[str, str] = {}
        """What the group's folder holds: file name to SHA-256 (hex)."""

    def codes(self, _identity: Mapping[str, str]) -> Codes:
        """Return the codes of this group's folder."""
        return self._codes

    def note(self, name: str, data: bytes) -> None:
        """Say what a file of the folder holds."""
        self.note_digest(name, _digest(data))

    def note_digest(self, name: str, digest: str) -> None:
        """Say it by the SHA-256 (hex) of what the file holds."""
        self.files[name] = digest

    def write(self, folder: Path, name: str, data: bytes) -> None:
        """Put a finished file into the folder, whole or not at all. Raises like `Sealer.write`."""
        self.note(name, data)
        durable.replace(folder / name, data)


class Sealer:
    """Knows what one audit wrote, and seals it.

    Args:
        keyring: Holds the auditor's keys; None where the audit has none.

    Raises:
        UsageError: the keyring lacks the auditor's keys.
    """

    def __init__(self, keyring: Keyring | None = None) -> None:
        self._keyring = keyring
        keys = () if keyring is None else keyring.signers("auditor")
        secrets = sorted((key.public().key_id, derived_secret(key, _PURPOSE)) for key in keys)
        self._secret = b"".join(secret for _, secret in secrets)
        self._files: dict[str, str] = {}
        self._sealed: Mapping[str, str] = {}

    def codes(self, identity: Mapping[str, str]) -> Codes:
        """Return the codes of the run that depends on `identity`."""
        return Codes(self._secret, identity)

    def look(self, run: Path) -> None:
        """Learn what an earlier start sealed in a run folder.

        A seal that does not verify, or says otherwise of what is noted already, says nothing.
        """
        if self._keyring is None or not (run / SEAL_FILE).exists():
            return
        try:
            data = durable.read_bounded(run / SEAL_FILE, MAX_SEAL_BYTES, SEAL_FILE)
            sealed = read_seal(data, self._keyring.policy, SEAL_FILE).files
        except AuditError:
            return
        if self._files.items() <= sealed.items():
            self._sealed = sealed

    def vouches(self, name: str, data: bytes) -> bool:
        """Tell whether an earlier start sealed this file so; without keys nothing is vouched for, and all is taken."""
        return self._keyring is None or self._sealed.get(name) == _digest(data)

    def note(self, name: str, data: bytes) -> None:
        """Say what a file of the run holds: it is to be sealed so."""
        self.note_digest(name, _digest(data))

    def note_digest(self, name: str, digest: str) -> None:
        """Say it by the SHA-256 (hex) of what the file holds."""
        self._files[name] = digest

    def take(self, folder: str, files: Mapping[str, str]) -> None:
        """Note the files of a part: its folder within the run, and what `Part.files` says."""
        self._files |= {f"{folder}/{name}": digest for name, digest in files.items()}

    def open(self, run: Path) -> None:
        """Take the seal off a run that is about to be written to."""
        self._sealed = {}
        if (run / SEAL_FILE).exists():
            durable.remove(run / SEAL_FILE)

    def write(self, run: Path, name: str, data: bytes) -> None:
        """Put a finished file into the run, whole or not at all; a seal that says otherwise goes first.

        Raises:
            IncompleteError: the disk is full or refuses.
        """
        self.note(name, data)
        if name in self._sealed and not self.vouches(name, data):
            durable.remove(run / SEAL_FILE)
        durable.replace(run / name, data)

    def seal(self, run: Path, store_id: str, version: int) -> bytes | None:
        """Seal a run that has ended; return the seal as written, None where the audit has no keys.

        Raises:
            UsageError: more shards than a seal can list.
            IncompleteError: the disk is full or refuses.
        """
        if self._keyring is None:
            return None
        record = {"format": _FORMAT, "store": store_id, "version": version, "files": self._files}
        data = dsse.seal(PAYLOAD_TYPE, strict_json.encode(record), self._keyring.signers("auditor"))
        if len(data) > MAX_SEAL_BYTES:
            raise UsageError(f"{run}: {len(self._files)} files are more than one seal can list: audit fewer tenants")
        durable.replace(run / SEAL_FILE, data)
        return data


def read_seal(data: bytes, trust: TrustPolicy, where: str) -> Seal:
    """Verify a seal.

    Raises:
        VerificationError: not a seal, or not one by auditor's keys that may sign the version after the audited one.
    """
    envelope = dsse.parse_envelope(data, PAYLOAD_TYPE, max_bytes=MAX_SEAL_BYTES, where=where)
    auditor, advice = trust.roles["auditor"], ": audit again, with keys of this policy, and another --out"
    dsse.verify_envelope(envelope, auditor.keys, 1, "auditor", advice=advice)  # before a stranger's is parsed
    fields = strict_json.Fields(envelope.json(MAX_SEAL_BYTES), where)
    if fields.text("format") != _FORMAT:
        raise VerificationError(f"{where}: not a {_FORMAT}")
    store_id, version = fields.text("store"), fields.whole("version", MAX_VERSION, 1)
    files = fields.texts("files", MAX_FILES)
    fields.done()
    if not all(map(_NAME.fullmatch, files)):
        raise VerificationError(f"{where}: names what is no file of a run")
    keys = trust.manifest_keys("auditor", store_id, version + 1)
    dsse.verify_envelope(envelope, keys, auditor.threshold, "auditor", advice=advice)
    return Seal(store_id=store_id, version=version, files=MappingProxyType(files), digest=_digest(data))


def _text(value: dict[str, str] | list[str]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()  # ASCII: a stranger's marker may hold what UTF-8 cannot


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
