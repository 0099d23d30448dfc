"""Our checkpoints and proofs, opened by Go's `sumdb/note` and `tlog` (golang-go, golang-golang-x-mod-dev).

1,000 random trees: for each a signed checkpoint, an inclusion proof and a consistency proof, and one of the three with
one bit changed. Both sides must agree on every one.
"""

import json
import os
import random
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest

from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.checkpoint import Checkpoint, sign_checkpoint
from tests.unit.snapshot.stores import keyring, make_history, open_store

pytestmark = pytest.mark.tool("go")

PACKAGES = Path("/usr/share/gocode")
SOURCE = Path(__file__).parent / "go" / "verify.go"
TREES = 1_000

if shutil.which("go") is None or not (PACKAGES / "src/golang.org/x/mod/sumdb/tlog").is_dir():
    pytest.skip("needs Debian's golang-go and golang-golang-x-mod-dev", allow_module_level=True)


@pytest.fixture(scope="module")
def verifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("go")
    environment = {
        **os.environ, "GO111MODULE": "off", "GOPATH": str(PACKAGES), "GOCACHE": str(folder / "cache"),
        "GOFLAGS": "", "CGO_ENABLED": "0",
    }  # fmt: skip
    program = folder / "verify"
    subprocess.run(["go", "build", "-o", program, SOURCE], env=environment, check=True, timeout=110)

    def run(cases):
        text = "\n".join(json.dumps(case) for case in cases) + "\n"
        answer = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=60)
        return answer.stdout.splitlines()

    return run


def b64(data):
    return b64encode(data).decode()


def flipped(data):
    return bytes([data[0] ^ 1]) + data[1:]


def cases_of(draw, key):
    """Three good cases of one random tree, and a bad one."""
    size = draw.randrange(1, 200)
    hashes = [merkle.leaf_hash(draw.randbytes(8)) for _ in range(size)]
    root = merkle.root(hashes)
    index, first = draw.randrange(size), draw.randrange(1, size + 1)
    note = sign_checkpoint(Checkpoint(origin="memaudit/go/t", size=size, root=root), [key])
    good = [
        {"kind": "note", "vkey": key.public().vkey, "note": note.decode(), "size": size, "root": b64(root)},
        {"kind": "inclusion", "size": size, "root": b64(root), "index": index, "leaf": b64(hashes[index]),
         "proof": [b64(item) for item in merkle.inclusion_proof(hashes, index)]},
        {"kind": "consistency", "size": first, "size2": size, "root": b64(merkle.root(hashes[:first])),
         "root2": b64(root), "proof": [b64(item) for item in merkle.consistency_proof(hashes, first)]},
    ]  # fmt: skip
    bad = dict(draw.choice(good))
    if bad["kind"] == "note":
        bad["note"] = bad["note"].replace("memaudit/go/t", "memaudit/go/u")
    else:
        bad["root"] = b64(flipped(root if bad["kind"] == "inclusion" else merkle.root(hashes[:first])))
    return good, bad


def test_go_agrees_on_a_thousand_random_trees(verifier):
    draw = random.Random(20260523)
    key = PrivateKey("memaudit/log", b"g" * 32)
    cases = [cases_of(draw, key) for _ in range(TREES)]
    good = [case for items, _ in cases for case in items]
    assert [answer for answer in verifier(good) if answer != "ok"] == []
    answers = verifier([bad for _, bad in cases])
    assert len(answers) == TREES
    assert "ok" not in answers


def test_go_opens_the_checkpoints_of_a_purified_store(verifier, tmp_path):
    make_history(tmp_path / "s")
    snapshot = open_store(tmp_path / "s")
    before = open_store(tmp_path / "s", version=2).checkpoint("acme")
    cases = []
    for tenant in snapshot.tenants:
        log = snapshot.log(tenant)
        cases.append({
            "kind": "note", "vkey": keyring().policy.roles["log"].keys.copy().popitem()[1].vkey,
            "note": log.note.decode(), "size": log.checkpoint.size, "root": b64(log.checkpoint.root),
        })  # fmt: skip
        cases.extend({
            "kind": "inclusion", "size": log.checkpoint.size, "root": b64(log.checkpoint.root), "index": item.index,
            "leaf": b64(log.leaf_hashes[item.index]),
            "proof": [b64(part) for part in merkle.inclusion_proof(log.leaf_hashes, item.index)],
        } for item in log.entries)  # fmt: skip
    log = snapshot.log("acme")
    cases.append({
        "kind": "consistency", "size": before.size, "size2": log.checkpoint.size, "root": b64(before.root),
        "root2": b64(log.checkpoint.root),
        "proof": [b64(part) for part in merkle.consistency_proof(log.leaf_hashes, before.size)],
    })  # fmt: skip
    assert verifier(cases) == ["ok"] * len(cases)
