"""A million mutated inputs for every decoder: each is refused with our own error, or is the one form of what it says.

    python -m benchmarks.fuzz [--inputs 1000000] [--only NAME]

Two kinds of mutation, drawn with a fixed seed: bytes (flips, cuts, repeats, splices of two seeds), and, for the JSON
formats, members of the decoded value replaced or dropped before it is spelled canonically again, so that inputs get
past the spelling to the rules behind it. Any exception other than VerificationError ends the run and prints the input.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from audit.entry import Entry, Parent
from audit.errors import VerificationError
from audit.provenance import base64_strict, cbor, dsse, merkle, strict_json
from audit.provenance.checkpoint import Checkpoint, parse_checkpoint_text, sign_checkpoint
from audit.provenance.ed25519 import PrivateKey, PublicKey
from audit.provenance.keys import generate_keys
from audit.provenance.leaf import Tombstone, decode_leaf, encode_entry, encode_tombstone
from audit.provenance.note import open_note, parse_note
from audit.provenance.policy import PAYLOAD_TYPE, TrustPolicy
from audit.snapshot.attest import attest, verify_attestation
from audit.snapshot.checkpoints import encode_checkpoints, parse_checkpoints
from audit.snapshot.layout import FileRef
from audit.snapshot.manifest import BucketFiles, Manifest, open_manifest, sign_manifest, tombstones_root
from audit.snapshot.purify import Purified, RemovedEntry
from benchmarks.resultfile import ResultFile

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = generate_keys()
NOW_MS = 1_800_000_000_000
ODD_VALUES = (
    "null", "true", "-1", "0", "1", str(2**63), str(2**64), str(10**30), '""', '"x"', '"é"', r'"\u0000"',
    f'"{"ab" * 32}"', "[]", "{}", "[[]]", '{"":""}', f'"{"x" * 5_000}"',
)  # fmt: skip
"""As JSON text: each use is a fresh value, since a mutation may go on inside it."""

ODD_BYTES = (b"\x00", b"\xff", b"\n", b"+", b"\x9f", b"\xc2", b"\x1b", b'"', b"\xcc\x81")


def mutate(draw: random.Random, seeds: list[bytes]) -> bytes:
    """One to four byte-level changes of a seed."""
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            data.insert(at, draw.randrange(256))
        elif kind == 2:
            del data[at : at + draw.randint(1, 8)]
        elif kind == 3:
            data[at:at] = data[at : at + draw.randint(1, 16)]
        elif kind == 4:
            other = draw.choice(seeds)
            data[at:] = other[draw.randrange(len(other) + 1) :]
        else:
            data[at : at + 1] = draw.choice(ODD_BYTES)
    return bytes(data)


def mutate_value(draw: random.Random, seed: bytes) -> Any:
    """Replace, drop or add one member somewhere in a JSON value."""
    value = json.loads(seed)
    for _ in range(draw.randint(1, 2)):
        node: Any = value
        while True:
            keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = draw.choice(keys)
            if isinstance(node[key], dict | list) and node[key] and draw.random() < 0.8:
                node = node[key]
                continue
            if draw.random() < 0.2:
                del node[key]
            else:
                node[key] = json.loads(draw.choice(ODD_VALUES))
            break
        if isinstance(node, dict) and draw.random() < 0.1:
            node[draw.choice(["", "extra", "version"])] = json.loads(draw.choice(ODD_VALUES))
    return value


def envelope_of(sealed: bytes) -> tuple[str, bytes]:
    """Payload type and payload."""
    record = json.loads(sealed)
    return record["payloadType"], b64decode(record["payload"])


def respell(kind: str, payload: Any) -> bytes:
    """An envelope without signatures around a payload: decoders parse before they look for signatures."""
    text = b64encode(strict_json.encode(payload)).decode()
    return strict_json.encode({"payload": text, "payloadType": kind, "signatures": []})


def example_manifest() -> Manifest:
    """One bucket with every kind of file."""
    ref = FileRef(sha256="ab" * 32, size=10, rows=1)
    buckets = {7: BucketFiles(data=(ref,), leaves=ref, checkpoints=ref, tombstones=ref)}
    return Manifest(
        store_id="cd" * 16, version=3, oldest=1, operation="purify", parent="ef" * 32, created_ms=NOW_MS,
        expires_ms=NOW_MS + 5, run_id="run", policy_version=1, policy_sha256=KEYS.policy.digest, models={"nli": "m"},
        config={"alpha": "0.6"}, entries=1, leaves=2, tenants=1, checkpoints_root="00" * 32,
        tombstones_root=tombstones_root(buckets), buckets=buckets,
    )  # fmt: skip


def example_attestation() -> bytes:
    """One removed entry."""
    removed = RemovedEntry(tenant="t", entry_id="e", index=0, leaf_hash="ab" * 32, reason="harm")
    purified = Purified(
        store_id="cd" * 16, audited_version=1, audited_digest="ab" * 32, version=2, digest="cd" * 32, published=True,
        removed=(removed,), entries=0,
    )  # fmt: skip
    return attest(
        purified, KEYS, run_id="r", now_ms=NOW_MS, parameters={"a": "b"}, models={}, score_tables={"s": "ab" * 32}
    )


def targets() -> dict[str, tuple[Callable[[bytes], Any], Callable[[random.Random], bytes]]]:
    """Decoder and input source, by name."""
    entry = Entry(
        tenant="acme", entry_id="e", principal="p", source="agent", request="é", response="a", created_at_ms=5,
        parents=(Parent(entry_id="d", weight_ppm=7),), metadata={"k": "v", "l": "w"},
    )  # fmt: skip
    stone = Tombstone(
        tenant="acme", entry_id="e", removed_index=0, removed_leaf_hash=b"h" * 32, reason="r", run_id="u",
        created_at_ms=1, extra={"x": "y"},
    )  # fmt: skip
    leaves = [encode_entry(entry, origin="o", index=300), encode_tombstone(stone, origin="o", index=2**20)]
    log = KEYS.keys["log"][0]
    checkpoint = Checkpoint(origin="memaudit/s/acme", size=70_000, root=b"r" * 32)
    note = sign_checkpoint(checkpoint, [log])
    vkeys = [log.public().vkey.encode(), KEYS.keys["root"][0].public().vkey.encode()]
    logs = encode_checkpoints({"acme": note})
    leaf_file = FileRef(sha256="ab" * 32, size=70_000 * 32, rows=70_000)
    manifest, policy, statement = sign_manifest(example_manifest(), KEYS), KEYS.policy.envelope, example_attestation()
    payloads = {name: envelope_of(data) for name, data in (("m", manifest), ("p", policy), ("s", statement))}

    def structured(name: str) -> Callable[[random.Random], bytes]:
        kind, payload = payloads[name]
        return lambda draw: respell(kind, mutate_value(draw, payload))

    def from_bytes(*seeds: bytes) -> Callable[[random.Random], bytes]:
        return lambda draw: mutate(draw, list(seeds))

    def read_manifest(data: bytes) -> object:
        return open_manifest(data, KEYS.policy, version=3, now_ms=NOW_MS, check_expiry=True, where="f")

    return {
        "cbor": (lambda data: cbor.decode(data, max_bytes=10_000, where="f"), from_bytes(*leaves)),
        "leaf": (lambda data: decode_leaf(data, "f"), from_bytes(*leaves)),
        "note": (lambda data: parse_note(data, "f"), from_bytes(note)),
        "signed note": (lambda data: open_note(data, [log.public()], where="f"), from_bytes(note)),
        "checkpoint": (
            lambda data: parse_checkpoint_text(data.decode("utf-8", "replace"), "f"),
            from_bytes(checkpoint.text().encode()),
        ),
        "vkey": (lambda data: PublicKey.from_vkey(data.decode("utf-8", "replace")), from_bytes(*vkeys)),
        "private key": (
            lambda data: PrivateKey.from_text(data.decode("utf-8", "replace"), "f"), from_bytes(log.to_text().encode()),
        ),
        "base64": (lambda data: base64_strict.decode(data.decode("utf-8", "replace"), "f"), from_bytes(b"QUJDRA==")),
        "json": (lambda data: strict_json.decode(data, max_bytes=10**6, where="f"), from_bytes(logs, policy)),
        "envelope": (
            lambda data: dsse.parse_envelope(data, PAYLOAD_TYPE, max_bytes=10**6, where="f"), from_bytes(policy),
        ),
        "checkpoint file": (lambda data: parse_checkpoints(data, 0, leaf_file, "f"), from_bytes(logs)),
        "manifest": (read_manifest, structured("m")),
        "policy": (lambda data: TrustPolicy.read(data, "f"), structured("p")),
        "attestation": (lambda data: verify_attestation(data, KEYS.policy, "f"), structured("s")),
        "inclusion proof": (check_inclusion, lambda draw: draw.randbytes(draw.randint(0, 200))),
        "consistency proof": (check_consistency, lambda draw: draw.randbytes(draw.randint(0, 200))),
    }  # fmt: skip


def check_inclusion(data: bytes) -> None:
    """Two numbers and a list of hashes, of any length, out of any bytes."""
    index, size = int.from_bytes(data[:1], "big"), int.from_bytes(data[1:2], "big")
    merkle.verify_inclusion(index, size, data[2:34], merkle.unpack(data[34:]), data[-32:])


def check_consistency(data: bytes) -> None:
    """Two sizes, two roots and a list of hashes, of any length, out of any bytes."""
    size1, size2 = int.from_bytes(data[:1], "big"), int.from_bytes(data[1:2], "big")
    merkle.verify_consistency(size1, size2, merkle.unpack(data[2:]), data[-32:], data[2:34])


def main() -> None:
    """Fuzz what is not in the result file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    result = ResultFile("fuzz", "python -m benchmarks.fuzz", {"inputs": options.inputs})
    done = {row["decoder"] for row in result.rows}
    for name, (decode, source) in targets().items():
        if name in done or (options.only and options.only != name):
            continue
        draw, refused, start = random.Random(name), 0, time.perf_counter()
        for _ in range(options.inputs):
            data = source(draw)
            try:
                decode(data)
            except VerificationError:
                refused += 1
            except BaseException:
                print(f"{name}: {data!r}")
                raise
        seconds = round(time.perf_counter() - start, 1)
        row = {"decoder": name, "inputs": options.inputs, "refused": refused, "foreign": 0, "seconds": seconds}
        result.add_row(row)
        print(row, flush=True)
    foreign, fewest = sum(row["foreign"] for row in result.rows), min(row["inputs"] for row in result.rows)
    result.add_bar("exceptions that are not ours", foreign, f"over {len(result.rows)} decoders", "0", met=foreign == 0)
    result.add_bar("inputs per decoder", fewest, "inputs", ">= 1000000", met=fewest >= 1_000_000)


if __name__ == "__main__":
    main()
