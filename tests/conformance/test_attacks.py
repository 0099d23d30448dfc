"""One vector file per attack, for the fourteen families of attacks on stores like ours (the terms are TUF's).

Each file names its family, what the attacker does, and the error a reader must give. Kinds: "store" (steps of
`tests.conformance.attacker`), "decode" (bytes for one decoder), "policy" (signers and versions of a rotation),
"crash" (the process dies at every file operation). A vector may also say that the reader must succeed ("error": null):
the control, or the recovery from an attack.
"""

import json
from base64 import b64decode
from collections import Counter
from pathlib import Path

import pytest

from memory_audit.errors import VerificationError
from memory_audit.provenance import base64_strict, dsse, strict_json
from memory_audit.provenance.ed25519 import PrivateKey, PublicKey
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.checkpoint import parse_checkpoint_text
from memory_audit.provenance.tlog.note import open_note, parse_note
from memory_audit.provenance.trust_policy import Role, TrustPolicy, sign_policy
from memory_audit.snapshot.pin import read_pin
from memory_audit.snapshot.reader import open_snapshot
from memory_audit.snapshot.verify import verify_store
from tests.conformance import cbor_reader
from tests.conformance.attacker import Attacker
from tests.conformance.crash import crash_everywhere
from tests.conformance.leaf_reader import decode_leaf
from tests.unit.snapshot.stores import keyring, make_history

FOLDER = Path(__file__).parent / "attacks"
VECTORS = sorted(FOLDER.glob("*.json"))
FAMILIES = range(1, 15)


def load(path):
    return json.loads(path.read_text())


def test_every_family_has_its_vectors():
    families = Counter(load(path)["family"] for path in VECTORS)
    assert set(families) == set(FAMILIES)
    assert all(path.name.startswith(f"{load(path)['family']:02}-") for path in VECTORS)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if "-killed-" in path.stem else []) for path in VECTORS],
)
def test_attack(path, tmp_path, monkeypatch):
    vector = load(path)
    run = {"store": run_store, "decode": run_decode, "policy": run_policy, "crash": run_crash}[vector["kind"]]
    if vector["error"] is None:
        run(vector, tmp_path, monkeypatch)
    else:
        with pytest.raises(VerificationError, match=vector["error"]):
            run(vector, tmp_path, monkeypatch)


def run_store(vector, tmp_path, _monkeypatch):
    make_history(tmp_path / "s")
    attacker = Attacker(tmp_path / "s", keyring().policy)
    for step in vector["steps"]:
        arguments = dict(step)
        getattr(attacker, arguments.pop("do"))(**arguments)
    read = {"now_ms": attacker.now_ms, "pin": attacker.pin}
    if vector.get("reader", "open") == "verify":
        verify_store(attacker.store, attacker.trust, deep=True, **read)
        return
    snapshot = open_snapshot(attacker.store, attacker.trust, version=attacker.version, **read)
    for tenant in snapshot.tenants:
        snapshot.log(tenant)


def run_decode(vector, tmp_path, _monkeypatch):
    data = content(vector["input"])
    where = "vector"
    decoders = {
        "leaf": lambda: decode_leaf(data, where),
        "cbor": lambda: cbor_reader.decode(data, max_bytes=1 << 20, where=where),
        "json": lambda: strict_json.decode(data, max_bytes=1 << 20, where=where),
        "note": lambda: parse_note(data, where),
        "open_note": lambda: open_note(
            data, [PublicKey.from_vkey(vkey) for vkey in vector["vkeys"]], threshold=vector["threshold"], where=where
        ),
        "checkpoint": lambda: parse_checkpoint_text(data.decode(), where),
        "vkey": lambda: PublicKey.from_vkey(data.decode()),
        "base64": lambda: base64_strict.decode(data.decode(), where),
        "envelope": lambda: dsse.parse_envelope(data, "type", max_bytes=1 << 20, where=where),
        "pin": lambda: pin_of(data, tmp_path),
        "inclusion": lambda: inclusion(vector["proof"]),
        "consistency": lambda: consistency(vector["proof"]),
    }
    decoders[vector["decoder"]]()


def content(given):
    """Bytes of a vector: hex, text, or a repeated unit (for data without end)."""
    if "hex" in given:
        return bytes.fromhex(given["hex"])
    if "text" in given:
        return given["text"].encode() * given.get("times", 1)
    return bytes.fromhex(given["repeat_hex"]) * given["times"]


def pin_of(data, tmp_path):
    (tmp_path / "pin.json").write_bytes(data)
    return read_pin(tmp_path / "pin.json")


def leaves(size):
    return [merkle.leaf_hash(b"leaf %d" % number) for number in range(size)]


def inclusion(given):
    """A genuine proof of leaf `index` of `size`, claimed to be something else."""
    hashes = leaves(given["size"])
    proof = merkle.inclusion_proof(hashes, given["index"]) + [b64decode(item) for item in given.get("extra", [])]
    proof += [b"\x00" * 32] * given.get("padding", 0)
    claimed = given["claimed"]
    leaf = hashes[claimed.get("leaf", given["index"])]
    size = claimed.get("size", given["size"])
    merkle.verify_inclusion(claimed.get("index", given["index"]), size, leaf, proof, merkle.root(hashes))


def consistency(given):
    """A genuine proof between two sizes, claimed to be something else."""
    hashes = leaves(given["size"])
    proof = merkle.consistency_proof(hashes, given["first"])
    first = given["claimed"].get("first", given["first"])
    root1 = merkle.root(hashes[: given["claimed"].get("root_of", given["first"])])
    merkle.verify_consistency(first, given["size"], proof, root1, merkle.root(hashes))


def run_policy(vector, _tmp_path, _monkeypatch):
    """Policies 1, 2 …: each with its root keys, threshold and signers, by letter; the reader installs them in order."""
    policy = None
    for number, step in enumerate(vector["policies"], start=1):
        signed = sign_policy_as_is(step, step.get("version", number))
        policy = TrustPolicy.read(signed, "policy") if policy is None else policy.rotated(signed, "policy")


def sign_policy_as_is(step, version):
    """Seal a policy without asking whether a reader would take it."""
    roles = {"root": letters(step["roots"]), "writer": letters("w"), "log": letters(step.get("logs", "l"))}
    roles["auditor"] = letters(step.get("auditors", "a"))
    base = sign_policy(
        version=1,
        roles={name: role_of(name, keys, 1) for name, keys in {  # type: ignore[misc]
            "root": letters("z"), "writer": letters("w"), "log": letters("l"), "auditor": letters("a")}.items()},
        revoked={}, root_keys=letters("z"),
    )  # fmt: skip
    envelope = json.loads(base.envelope)
    payload = json.loads(b64decode(envelope["payload"]))
    payload["version"] = version
    for name, keys in roles.items():
        records = [{"vkey": key.public().vkey} | ({"principals": ["*"]} if name == "writer" else {}) for key in keys]
        payload["roles"][name] = {"threshold": step["threshold"] if name == "root" else 1, "keys": records}
    return dsse.seal(envelope["payloadType"], strict_json.encode(payload), letters(step["signers"]))


def letters(names):
    return [PrivateKey(f"key-{letter}", letter.encode() * 32) for letter in names]


def role_of(name, keys, threshold):
    public = {key.public().key_id: key.public() for key in keys}
    principals = {key_id: frozenset({"*"}) for key_id in public} if name == "writer" else {}
    return Role(threshold=threshold, keys=public, principals=principals)


def run_crash(vector, tmp_path, monkeypatch):
    crash_everywhere(vector["operation"], vector["moment"], tmp_path, monkeypatch)
