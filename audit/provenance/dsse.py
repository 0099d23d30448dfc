"""DSSE envelopes (secure-systems-lab/dsse v1.0.2): a typed payload with signatures by role keys.

    {"payload": base64, "payloadType": "application/vnd.memaudit.manifest+json", "signatures": [{"keyid", "sig"}]}

Stricter than the specification, because nothing but a byte-for-byte copy of what was published may verify: the envelope
and its payload are canonical JSON; a signature by a key the policy does not know, or one that fails, refuses the whole
envelope; the same key twice counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory_audit.errors import VerificationError
from memory_audit.provenance import base64_strict, strict_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memory_audit.provenance.ed25519 import PublicKey, Signer

__all__ = ["Envelope", "parse_envelope", "seal", "verify_envelope"]

MAX_SIGNATURES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A parsed envelope: nothing in it is trusted yet."""

    payload_type: str
    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]
    """Key id and signature."""

    where: str

    def json(self, max_bytes: int) -> Any:
        """Decode the payload as canonical JSON."""
        return strict_json.decode(self.payload, max_bytes=max_bytes, where=self.where)


def seal(payload_type: str, payload: bytes, keys: Iterable[Signer]) -> bytes:
    """Sign a payload with every key and return the envelope."""
    message = _pae(payload_type, payload)
    signatures = [{"keyid": key.public().key_id, "sig": base64_strict.encode(key.sign(message))} for key in keys]
    if not signatures:
        raise ValueError("an envelope needs a key")
    record = {"payload": base64_strict.encode(payload), "payloadType": payload_type, "signatures": signatures}
    return strict_json.encode(record)


def parse_envelope(data: bytes, payload_type: str, *, max_bytes: int, where: str) -> Envelope:
    """Read an envelope of the given type, verifying no signature.

    Raises:
        VerificationError: names `where` and the rule broken.
    """
    fields = strict_json.Fields(strict_json.decode(data, max_bytes=max_bytes, where=where), where)
    got_type = fields.text("payloadType")
    payload = base64_strict.decode(fields.text("payload", max_bytes), where)
    signatures = []
    for item in fields.objects("signatures", MAX_SIGNATURES):
        signatures.append((item.text("keyid"), base64_strict.decode(item.text("sig"), item.where)))
        item.done()
    fields.done()
    if got_type != payload_type:
        raise VerificationError(f"{where}: payload type {got_type!r:.80}, expected {payload_type!r}")
    return Envelope(payload_type=got_type, payload=payload, signatures=tuple(signatures), where=where)


def verify_envelope(
    envelope: Envelope, keys: Mapping[str, PublicKey], threshold: int, role: str, *, advice: str = ""
) -> frozenset[str]:
    """Check every signature and that `threshold` distinct keys of `keys` signed.

    Args:
        envelope: What was signed.
        keys: Those that count, by id.
        threshold: How many of them must have signed.
        role: Of these keys, for errors.
        advice: What to do about an unknown key, for errors.

    Returns:
        The ids of the keys that signed.

    Raises:
        VerificationError: unknown key, wrong signature, or too few keys.
    """
    message = _pae(envelope.payload_type, envelope.payload)
    return check_signers(envelope.signatures, message, keys, threshold, role, where=envelope.where, advice=advice)


def check_signers(  # noqa: PLR0913 - what was signed, and who had to
    signatures: Iterable[tuple[str, bytes]],
    message: bytes,
    keys: Mapping[str, PublicKey],
    threshold: int,
    role: str,
    *,
    where: str,
    advice: str = "",
) -> frozenset[str]:
    """Check the signatures (key id, signature) of a message, as `verify_envelope` does those of an envelope."""
    signed: set[str] = set()
    for key_id, signature in signatures:
        key = keys.get(key_id)
        if key is None:
            raise VerificationError(f"{where}: signed by key {key_id!r:.70}, which has no role {role}{advice}")
        if not key.verifies(signature, message):
            raise VerificationError(f"{where}: signature of {key.name} does not verify")
        signed.add(key_id)
    if len(signed) < threshold:
        raise VerificationError(f"{where}: signed by {len(signed)} {role} keys, expected {threshold}")
    return frozenset(signed)


def _pae(payload_type: str, payload: bytes) -> bytes:
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
